package pinfold_test

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pinfold/pinfold/clients/go"
	pb "github.com/pinfold/pinfold/clients/go/gen/pinfold/v1"
)

// live is an agent of a real supervisor, where PINFOLD_TEST_ADDRESS names one.
func live(t *testing.T) *pinfold.Agent {
	t.Helper()
	address := os.Getenv("PINFOLD_TEST_ADDRESS")
	if address == "" {
		t.Skip("PINFOLD_TEST_ADDRESS names no supervisor")
	}
	client, err := pinfold.Dial(t.Context(), pinfold.WithAddress(address))
	if err != nil {
		t.Fatal(err)
	}
	agent, err := client.OpenAgent(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = agent.Stop(t.Context(), pinfold.WithGrace(0))
		_ = client.Close()
	})
	return agent
}

func TestLiveRunAndWait(t *testing.T) {
	agent := live(t)
	answer, err := agent.Run(t.Context(), pinfold.Shell("echo one; exit 3"))
	if err != nil {
		t.Fatal(err)
	}
	if code, known := answer.Result.ExitCode(); !known || code != 3 || answer.Result.OK() {
		t.Fatalf("got %v", answer.Result)
	}
	answer, err = agent.Run(t.Context(), pinfold.Exec("sh", "-c", "sleep 0.3; echo two"),
		pinfold.WithForegroundBudget(50*time.Millisecond))
	if err != nil || !answer.InBackground() {
		t.Fatalf("got %v, %v", answer, err)
	}
	waited, err := agent.WaitExact(t.Context(), answer.CallID)
	if err != nil || !strings.Contains(waited.First().GetText(), "out two") {
		t.Fatalf("got %v, %v", waited, err)
	}
	if _, err = agent.WaitExact(t.Context(), answer.CallID); !errors.Is(err, pinfold.ErrResultConsumed) {
		t.Fatalf("got %v", err)
	}
}

func TestLiveCancelHasAReceipt(t *testing.T) {
	agent := live(t)
	call, err := agent.Start(t.Context(), pinfold.Shell("echo up; sleep 60 & sleep 60"))
	if err != nil {
		t.Fatal(err)
	}
	output := agent.Output(t.Context(), call.GetCallId(), pinfold.AtMost(3))
	defer output.Close()
	if data, err := io.ReadAll(output); err != nil || string(data) != "up\n" {
		t.Fatalf("got %q, %v", data, err)
	}
	if _, err := agent.Cancel(t.Context(), call.GetCallId(), pinfold.WithReason("enough")); err != nil {
		t.Fatal(err)
	}
	result, err := agent.Ended(t.Context(), call.GetCallId())
	if err != nil {
		t.Fatal(err)
	}
	if result.GetState() != pb.CallState_CALL_STATE_CANCELLED || result.GetReceipt().GetEnded() < 2 ||
		len(result.GetReceipt().GetSurvivors()) != 0 || result.GetCancelReason() != "enough" {
		t.Fatalf("got %v", result)
	}
}

func TestLiveEvents(t *testing.T) {
	agent := live(t)
	info, err := agent.Client().Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := agent.SendPrompt(t.Context(), "hello"); err != nil {
		t.Fatal(err)
	}
	events := agent.Client().Events(t.Context(), info.GetRevision()+1,
		pinfold.OfAgents(agent.ID), pinfold.Named("prompt.queued"))
	for event, err := range events {
		if err != nil {
			t.Fatal(err)
		}
		if text := event.GetPromptQueued().GetPrompt().GetText(); text != "hello" {
			t.Fatalf("got %q", text)
		}
		break
	}
}

func TestLiveWork(t *testing.T) {
	agent := live(t)
	if _, err := agent.SendPrompt(t.Context(), "hello"); err != nil {
		t.Fatal(err)
	}
	// The turn itself stops the agent, which ends the loop.
	err := agent.Work(t.Context(), func(ctx context.Context, agent *pinfold.Agent, turn *pinfold.Turn) (string, error) {
		answer, err := agent.CallTool(ctx, "", "shell", map[string]any{"command": "echo " + turn.Text()})
		if err != nil {
			return "", err
		}
		if !strings.Contains(answer.GetText(), "out hello") {
			t.Errorf("got %q", answer.GetText())
		}
		_, err = agent.Stop(ctx)
		return "done", err
	})
	if err != nil {
		t.Fatal(err)
	}
}
