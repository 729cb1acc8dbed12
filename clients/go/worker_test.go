package pinfold_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/pinfold/pinfold/clients/go"
	pb "github.com/pinfold/pinfold/clients/go/gen/pinfold/v1"
)

// driven is a supervisor that hands out two turns and then stops the agent.
func driven(acknowledged *[]string, answers *[]string) *fake {
	turns := 0
	return &fake{
		nextTurn: func(_ context.Context, r *pb.NextTurnRequest) (*pb.NextTurnResponse, error) {
			*acknowledged = append(*acknowledged, r.GetAcknowledgeDeliveryId())
			if turns++; turns == 3 {
				return nil, refused(codes.FailedPrecondition, "AGENT_STOPPED", "agent is not live", nil)
			}
			return &pb.NextTurnResponse{
				TurnId:     "t",
				DeliveryId: "d-next",
				Prompts:    []*pb.Prompt{{Text: "one"}, {Text: "two"}},
			}, nil
		},
		takePrompt: func(_ context.Context, r *pb.TakePromptsRequest) (*pb.TakePromptsResponse, error) {
			*acknowledged = append(*acknowledged, r.GetAcknowledgeDeliveryId())
			return &pb.TakePromptsResponse{DeliveryId: "d-take", Prompts: []*pb.Prompt{{Text: "more"}}}, nil
		},
		endTurn: func(_ context.Context, r *pb.EndTurnRequest) (*pb.EndTurnResponse, error) {
			*acknowledged = append(*acknowledged, r.GetAcknowledgeDeliveryId())
			*answers = append(*answers, r.GetAnswer())
			return &pb.EndTurnResponse{}, nil
		},
	}
}

func TestWorkAcknowledgesEachDelivery(t *testing.T) {
	var acknowledged, answers []string
	agent := connect(t, driven(&acknowledged, &answers)).Agent("a")
	err := agent.Work(t.Context(), func(ctx context.Context, agent *pinfold.Agent, turn *pinfold.Turn) (string, error) {
		if len(answers) == 1 {
			return turn.Text(), nil
		}
		taken, err := agent.TakePrompts(ctx)
		return taken.Prompts[0].GetText(), err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(answers) != 2 || answers[0] != "more" || answers[1] != "one\n\ntwo" {
		t.Fatalf("answers %q", answers)
	}
	want := []string{"", "d-next", "d-take", "", "d-next", ""}
	for i, id := range want {
		if acknowledged[i] != id {
			t.Fatalf("acknowledged %q, want %q", acknowledged, want)
		}
	}
}

func TestWorkEndsWithTheFailureOfATurn(t *testing.T) {
	var acknowledged, answers []string
	agent := connect(t, driven(&acknowledged, &answers)).Agent("a")
	failure := errors.New("no")
	err := agent.Work(t.Context(), func(context.Context, *pinfold.Agent, *pinfold.Turn) (string, error) {
		return "", failure
	})
	if !errors.Is(err, failure) || len(answers) != 0 {
		t.Fatalf("got %v, answers %q", err, answers)
	}
}

func TestWorkerNeedsItsAgent(t *testing.T) {
	t.Setenv("PINFOLD_AGENT_ID", "")
	if err := pinfold.Worker(t.Context(), nil); err == nil {
		t.Fatal("no error")
	}
}

func TestToolArguments(t *testing.T) {
	var got []string
	agent := connect(t, &fake{
		callTool: func(_ context.Context, r *pb.CallToolRequest) (*pb.CallToolResponse, error) {
			got = append(got, r.GetArgumentsJson())
			return &pb.CallToolResponse{ToolCallId: r.GetToolCallId()}, nil
		},
	}).Agent("a")
	for _, arguments := range []any{
		nil, `{"a": 1.0}`, []byte(`{"b":2}`), json.RawMessage(`{"c":3}`), map[string]any{"d": 4},
	} {
		response, err := agent.CallTool(t.Context(), "X", "shell", arguments)
		if err != nil || response.GetToolCallId() != "X" {
			t.Fatalf("got %v, %v", response, err)
		}
	}
	want := []string{"", `{"a": 1.0}`, `{"b":2}`, `{"c":3}`, `{"d":4}`}
	for i, text := range want {
		if got[i] != text {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	if _, err := agent.CallTool(t.Context(), "", "shell", func() {}); !errors.Is(err, pinfold.ErrInvalidArgument) {
		t.Fatalf("got %v", err)
	}
}

func TestWorkHandsOverTheDraftOfAnAgentThatIsStopped(t *testing.T) {
	var acknowledged, answers []string
	agent := connect(t, driven(&acknowledged, &answers)).Agent("a")
	ctx, stop := context.WithCancel(t.Context())
	err := agent.Work(ctx, func(ctx context.Context, _ *pinfold.Agent, turn *pinfold.Turn) (string, error) {
		turn.Draft = "so far"
		stop()
		return "", ctx.Err()
	})
	if err != nil || len(answers) != 1 || answers[0] != "so far" {
		t.Fatalf("got %v, answers %q", err, answers)
	}
}

func TestWorkGoesOnAfterACancelledTurn(t *testing.T) {
	var acknowledged, answers []string
	agent := connect(t, driven(&acknowledged, &answers)).Agent("a")
	turns := 0
	err := agent.Work(t.Context(), func(context.Context, *pinfold.Agent, *pinfold.Turn) (string, error) {
		turns++
		return "", pinfold.ErrTurnCancelled
	})
	if err != nil || turns != 2 || len(answers) != 0 {
		t.Fatalf("got %v after %d turns, answers %q", err, turns, answers)
	}
}
