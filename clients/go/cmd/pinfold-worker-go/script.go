package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/pinfold/pinfold/clients/go"
	pb "github.com/pinfold/pinfold/clients/go/gen/pinfold/v1"
)

// later is the answer of a turn for which the script has none.
const later = "Received."

var fields = regexp.MustCompile(`\{(body|from|parent|self|out|wait|agent|body:(\w+))\}`)

// badLine is a line that is no directive. It is the agent's answer, so that its author sees it.
type badLine string

func (b badLine) Error() string { return string(b) }

// script is where the script stands.
type script struct {
	agent     *pinfold.Agent
	lines     []string
	values    map[string]string
	calls     []string
	onMessage string
	// waiting are messages that no await_message has taken.
	waiting []*pb.Prompt
	// current is the turn that the script is in.
	current *pinfold.Turn
}

func newScript(agent *pinfold.Agent, turn *pinfold.Turn) *script {
	body, parent := turn.Text(), ""
	for _, prompt := range turn.Prompts {
		if prompt.GetKind() == pb.PromptKind_PROMPT_KIND_START {
			// The first paragraph says who started the agent.
			_, body, _ = strings.Cut(prompt.GetText(), "\n\n")
			parent = prompt.GetFromAgentId()
			break
		}
	}
	made := &script{agent: agent, values: map[string]string{"parent": parent, "self": agent.ID}}
	for line := range strings.SplitSeq(body, "\n") {
		if strings.TrimSpace(line) != "" {
			made.lines = append(made.lines, line)
		}
	}
	return made
}

// turn goes on with the script until it has an answer. Between two directives it takes what has
// arrived, as a model's loop does between two rounds of tools.
func (s *script) turn(ctx context.Context, turn *pinfold.Turn) (string, error) {
	s.current = turn
	answer, done, err := s.follow(ctx, turn)
	if bad, ok := errors.AsType[badLine](err); ok {
		s.lines = nil
		return "error: " + bad.Error(), nil
	}
	if !done {
		answer = later
	}
	return answer, err
}

func (s *script) follow(ctx context.Context, turn *pinfold.Turn) (answer string, done bool, err error) {
	answer, done, err = s.arrived(ctx, turn.Prompts)
	for err == nil && !done && len(s.lines) > 0 {
		line := s.lines[0]
		s.lines = s.lines[1:]
		if answer, done, err = s.do(ctx, line); err == nil && !done {
			answer, done, err = s.take(ctx)
		}
	}
	return answer, done, err
}

func (s *script) take(ctx context.Context) (answer string, done bool, err error) {
	taken, err := s.agent.TakePrompts(ctx)
	if err != nil {
		return "", false, err
	}
	if taken.TurnCancelled {
		return "", false, pinfold.ErrTurnCancelled
	}
	return s.arrived(ctx, taken.Prompts)
}

func (s *script) arrived(ctx context.Context, prompts []*pb.Prompt) (answer string, done bool, err error) {
	for _, prompt := range prompts {
		if prompt.GetKind() != pb.PromptKind_PROMPT_KIND_MESSAGE {
			continue
		}
		s.waiting = append(s.waiting, prompt)
		s.about(prompt)
		if s.onMessage == "" {
			continue
		}
		if answer, done, err = s.do(ctx, s.onMessage); err != nil || done {
			return answer, done, err
		}
	}
	return "", false, nil
}

// about makes a message the one that `{body}` and `{from}` stand for.
func (s *script) about(message *pb.Prompt) {
	s.values["body"] = message.GetBody()
	s.values["from"] = message.GetFromAgentId()
}

// filled is a text with values in the place of `{body}` and the like.
func (s *script) filled(text string) string {
	return fields.ReplaceAllStringFunc(text, func(found string) string {
		match := fields.FindStringSubmatch(found)
		if match[2] == "" {
			return s.values[match[1]]
		}
		given := regexp.MustCompile(`\b` + match[2] + `=(\S+)`).FindStringSubmatch(s.values["body"])
		if given == nil {
			return ""
		}
		return given[1]
	})
}

// call is the id of a shell call by its number.
func (s *script) call(number string) (string, error) {
	var n int
	if _, err := fmt.Sscanf(number, "%d", &n); err != nil || n < 1 || n > len(s.calls) {
		return "", badLine(fmt.Sprintf("no such shell call: '%s' of %d", number, len(s.calls)))
	}
	return s.calls[n-1], nil
}
