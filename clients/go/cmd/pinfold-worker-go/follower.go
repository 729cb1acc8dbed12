package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pinfold/pinfold/clients/go"
	pb "github.com/pinfold/pinfold/clients/go/gen/pinfold/v1"
)

// follower does what scripts say. It remembers over turns whom it works for and how it answers
// messages.
type follower struct {
	parent    string
	onMessage string
	calls     []string
}

func (f *follower) turn(ctx context.Context, agent *pinfold.Agent, turn *pinfold.Turn) (string, error) {
	if answer, found := f.answer(turn.Prompts); found {
		return answer, nil
	}
	f.calls = nil
	var script []directive
	for _, prompt := range turn.Prompts {
		script = append(script, f.script(prompt)...)
	}
	for _, step := range script {
		if step.name == "final" {
			return step.rest, nil
		}
		if err := f.do(ctx, agent, step); err != nil {
			return "", err
		}
		taken, err := agent.TakePrompts(ctx)
		if err != nil {
			return "", err
		}
		if answer, found := f.answer(taken.Prompts); found || taken.TurnCancelled {
			return answer, nil
		}
	}
	return "done", nil
}

// script is the directives of a prompt that has some. What other agents say is not obeyed.
func (f *follower) script(prompt *pb.Prompt) []directive {
	switch prompt.GetKind() {
	case pb.PromptKind_PROMPT_KIND_START:
		f.parent = prompt.GetFromAgentId()
	case pb.PromptKind_PROMPT_KIND_USER:
	default:
		return nil
	}
	script := parse(prompt.GetText())
	for _, step := range script {
		// A message may come before the line is reached.
		if step.name == "on_message" {
			f.onMessage = step.rest
		}
	}
	return script
}

// answer is what to answer if a message is among the prompts and the script has foreseen it.
func (f *follower) answer(prompts []*pb.Prompt) (string, bool) {
	for _, prompt := range prompts {
		if prompt.GetKind() == pb.PromptKind_PROMPT_KIND_MESSAGE && f.onMessage != "" {
			return strings.ReplaceAll(f.onMessage, "{body}", prompt.GetBody()), true
		}
	}
	return "", false
}

func (f *follower) do(ctx context.Context, agent *pinfold.Agent, step directive) error {
	switch step.name {
	case "shell":
		return f.tool(ctx, agent, "shell", map[string]any{"command": step.rest})
	case "wait":
		return f.wait(ctx, agent, step.rest)
	case "message":
		recipient, text := firstWord(step.rest)
		if recipient == "parent" {
			recipient = f.parent
		}
		return f.tool(ctx, agent, "message", map[string]any{"recipient_id": recipient, "message": text})
	case "status":
		state, title := firstWord(step.rest)
		return f.tool(ctx, agent, "status", map[string]any{"state": state, "title": title})
	case "sleep":
		seconds, err := strconv.ParseFloat(step.rest, 64)
		if err != nil {
			return fmt.Errorf("sleep: %w", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(seconds * float64(time.Second))):
		}
	}
	return nil
}

func (f *follower) wait(ctx context.Context, agent *pinfold.Agent, which string) error {
	if which == "" {
		return f.tool(ctx, agent, "wait", nil)
	}
	number, err := strconv.Atoi(which)
	if err != nil || number < 1 || number > len(f.calls) {
		return fmt.Errorf("wait: no call number %q yet", which)
	}
	return f.tool(ctx, agent, "wait", map[string]any{"tool_call_id": f.calls[number-1]})
}

// tool calls a tool as a model would. What the model would read, an error included, is not the
// worker's own failure.
func (f *follower) tool(ctx context.Context, agent *pinfold.Agent, name string, arguments map[string]any) error {
	response, err := agent.CallTool(ctx, "", name, arguments)
	if err == nil && name == "shell" {
		f.calls = append(f.calls, response.GetToolCallId())
	}
	return err
}
