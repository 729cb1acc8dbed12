package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	pb "github.com/pinfold/pinfold/clients/go/gen/pinfold/v1"
)

// do is one directive. done: it was `final`, and ends the turn with answer.
func (s *script) do(ctx context.Context, line string) (answer string, done bool, err error) {
	name, rest := firstWord(strings.TrimSpace(line))
	if name == "on_message" {
		s.onMessage = rest
		return "", false, nil
	}
	text := s.filled(rest)
	switch name {
	case "final":
		s.lines = nil
		return text, true, nil
	case "shell":
		id := fmt.Sprintf("%s-call-%d", s.agent.ID, len(s.calls)+1)
		s.calls = append(s.calls, id)
		_, err = s.tool(ctx, id, "shell", map[string]any{"command": text})
	case "wait":
		err = s.wait(ctx, text)
	case "cancel":
		var id string
		if id, err = s.call(text); err == nil {
			_, err = s.tool(ctx, "", "cancel", map[string]any{"tool_call_id": id})
		}
	case "await_message":
		return s.awaitMessage(ctx)
	case "message":
		recipient, body := firstWord(text)
		if recipient == "parent" {
			recipient = s.values["parent"]
		}
		_, err = s.tool(ctx, "", "message", map[string]any{"recipient_id": recipient, "message": body})
	case "status":
		state, title := firstWord(text)
		_, err = s.tool(ctx, "", "status", map[string]any{"state": state, "title": title})
	case "agent":
		err = s.startAgent(ctx, strings.Fields(text))
	case "say":
		s.current.Draft += text + "\n"
	case "sleep":
		err = pause(ctx, text)
	default:
		err = badLine("not a directive: '" + strings.TrimSpace(line) + "'")
	}
	return "", false, err
}

func firstWord(text string) (word, rest string) {
	word, rest, _ = strings.Cut(text, " ")
	return word, strings.TrimSpace(rest)
}

// tool calls a tool as a model would. What a model would read, an error included, is a value of
// the script and no failure of the worker.
func (s *script) tool(
	ctx context.Context, id, name string, arguments map[string]any,
) (*pb.CallToolResponse, error) {
	response, err := s.agent.CallTool(ctx, id, name, arguments)
	if err == nil {
		s.values["out"] = response.GetText()
	}
	return response, err
}

func (s *script) wait(ctx context.Context, number string) error {
	arguments := map[string]any{}
	if number != "" {
		id, err := s.call(number)
		if err != nil {
			return err
		}
		arguments["tool_call_id"] = id
	}
	_, err := s.tool(ctx, "", "wait", arguments)
	s.values["wait"] = s.values["out"]
	return err
}

func (s *script) awaitMessage(ctx context.Context) (answer string, done bool, err error) {
	// One that came before this line was reached counts too.
	for len(s.waiting) == 0 {
		if _, err := s.agent.WaitForInput(ctx); err != nil {
			return "", false, err
		}
		if answer, done, err = s.take(ctx); err != nil || done {
			return answer, done, err
		}
	}
	s.about(s.waiting[0])
	s.waiting = s.waiting[1:]
	return "", false, nil
}

// startAgent starts a sub-agent with the indented lines that follow.
func (s *script) startAgent(ctx context.Context, words []string) error {
	var inner []string
	for len(s.lines) > 0 && strings.TrimLeft(s.lines[0][:1], " \t") == "" {
		inner = append(inner, s.lines[0])
		s.lines = s.lines[1:]
	}
	arguments := map[string]any{"prompt": "final done"}
	if len(inner) > 0 {
		arguments["prompt"] = outdented(inner)
	}
	if len(words) > 0 && words[0] == "call" {
		arguments["mode"] = "call"
		words = words[1:]
	}
	if len(words) > 0 {
		arguments["role"] = words[0]
	}
	response, err := s.tool(ctx, "", "agent_start", arguments)
	s.values["agent"] = response.GetAgentStart().GetSubAgentId()
	return err
}

func outdented(lines []string) string {
	width := len(lines[0])
	for _, line := range lines {
		width = min(width, len(line)-len(strings.TrimLeft(line, " \t")))
	}
	cut := make([]string, len(lines))
	for i, line := range lines {
		cut[i] = line[width:]
	}
	return strings.Join(cut, "\n")
}

func pause(ctx context.Context, text string) error {
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return badLine("not a number of seconds: '" + text + "'")
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Duration(seconds * float64(time.Second))):
		return nil
	}
}
