package pinfold_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pinfold/pinfold/clients/go"
	pb "github.com/pinfold/pinfold/clients/go/gen/pinfold/v1"
)

func TestReasonIsASentinel(t *testing.T) {
	client := connect(t, &fake{
		wait: func(context.Context, *pb.WaitRequest) (*pb.WaitResponse, error) {
			return nil, refused(codes.FailedPrecondition, "RESULT_CONSUMED",
				"result for tool call `X` already consumed", map[string]string{"tool_call_id": "X"})
		},
	})
	_, err := client.Agent("a").WaitExact(t.Context(), "X")
	if !errors.Is(err, pinfold.ErrResultConsumed) || errors.Is(err, pinfold.ErrCallUnknown) {
		t.Fatalf("got %v", err)
	}
	failure, ok := errors.AsType[*pinfold.Error](err)
	if !ok || failure.Code != codes.FailedPrecondition || failure.Metadata["tool_call_id"] != "X" {
		t.Fatalf("got %+v", failure)
	}
	if pinfold.ReasonOf(err) != pinfold.ErrResultConsumed || status.Code(err) != codes.FailedPrecondition {
		t.Fatalf("got %v, %v", pinfold.ReasonOf(err), status.Code(err))
	}
}

func TestLostRepliesAreRepeatedWithTheSameID(t *testing.T) {
	var ids []string
	client := connect(t, &fake{
		runShell: func(_ context.Context, r *pb.RunShellRequest) (*pb.RunShellResponse, error) {
			ids = append(ids, r.GetCallId())
			switch len(ids) {
			case 1:
				return nil, errLost
			case 2:
				return nil, status.Error(codes.Canceled, "dropped in a burst")
			}
			return &pb.RunShellResponse{
				CallId: r.GetCallId(),
				Answer: &pb.RunShellResponse_Placeholder{Placeholder: "running"},
			}, nil
		},
	})
	answer, err := client.Agent("a").Run(t.Context(), pinfold.Shell("true"))
	if err != nil {
		t.Fatal(err)
	}
	if len(ids) != 3 || ids[0] == "" || ids[0] != ids[1] || ids[1] != ids[2] {
		t.Fatalf("ids %q", ids)
	}
	if !answer.InBackground() || answer.Text() != "running" || answer.CallID != ids[0] {
		t.Fatalf("got %+v", answer)
	}
}

func TestOwnAnswerIsNotRepeated(t *testing.T) {
	attempts := 0
	client := connect(t, &fake{
		runShell: func(context.Context, *pb.RunShellRequest) (*pb.RunShellResponse, error) {
			attempts++
			return nil, refused(codes.Unavailable, "DRAINING", "the supervisor is draining", nil)
		},
	})
	_, err := client.Agent("a").Run(t.Context(), pinfold.Shell("true"))
	if !errors.Is(err, pinfold.ErrDraining) || attempts != 1 {
		t.Fatalf("got %v after %d attempts", err, attempts)
	}
}

func TestPatienceEnds(t *testing.T) {
	client := connect(t, &fake{
		runShell: func(context.Context, *pb.RunShellRequest) (*pb.RunShellResponse, error) {
			return nil, errLost
		},
	}, pinfold.WithPatience(200*time.Millisecond))
	started := time.Now()
	_, err := client.Agent("a").Run(t.Context(), pinfold.Shell("true"))
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "pinfold serve") {
		t.Fatalf("got %v", err)
	}
	if took := time.Since(started); took > 3*time.Second {
		t.Fatalf("took %v", took)
	}
}

func TestContextEndsRepeats(t *testing.T) {
	client := connect(t, &fake{
		runShell: func(ctx context.Context, _ *pb.RunShellRequest) (*pb.RunShellResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := client.Agent("a").Run(ctx, pinfold.Shell("true"))
	if !errors.Is(err, context.DeadlineExceeded) || status.Code(err) != codes.DeadlineExceeded {
		t.Fatalf("got %v", err)
	}
}

func TestCancelWhoseReplyWasLost(t *testing.T) {
	attempts := 0
	client := connect(t, &fake{
		cancelCall: func(context.Context, *pb.CancelCallRequest) (*pb.CancelCallResponse, error) {
			if attempts++; attempts == 1 {
				return nil, errLost
			}
			return nil, refused(codes.FailedPrecondition, "CALL_ALREADY_CANCELED", "already", nil)
		},
	})
	agent := client.Agent("a")
	answer, err := agent.Cancel(t.Context(), "X")
	if err != nil || answer.GetText() != "Tool cancellation requested" {
		t.Fatalf("got %v, %v", answer, err)
	}
	if _, err = agent.Cancel(t.Context(), "X"); !errors.Is(err, pinfold.ErrCallAlreadyCanceled) {
		t.Fatalf("a first attempt that is refused: %v", err)
	}
}

func TestWaitRepeatHasWhatIsLeftOfItsTime(t *testing.T) {
	var seen []*pb.WaitRequest
	client := connect(t, &fake{
		wait: func(_ context.Context, r *pb.WaitRequest) (*pb.WaitResponse, error) {
			if seen = append(seen, r); len(seen) == 1 {
				return nil, errLost
			}
			return &pb.WaitResponse{Outcome: pb.WaitOutcome_WAIT_OUTCOME_TIMED_OUT}, nil
		},
	})
	answer, err := client.Agent("a").WaitAnyBackground(t.Context(), pinfold.WithTimeout(time.Minute))
	if err != nil || !answer.TimedOut() || answer.First() != nil {
		t.Fatalf("got %v, %v", answer, err)
	}
	if seen[0].GetWaitId() == "" || seen[0].GetWaitId() != seen[1].GetWaitId() {
		t.Fatalf("ids %q, %q", seen[0].GetWaitId(), seen[1].GetWaitId())
	}
	first, second := seen[0].GetTimeout().AsDuration(), seen[1].GetTimeout().AsDuration()
	if first != time.Minute || second >= first || second < 50*time.Second {
		t.Fatalf("times %v, %v", first, second)
	}
}

func TestReconnectsToANewServer(t *testing.T) {
	state := t.TempDir()
	path := filepath.Join(state, "pinfold.sock")
	stop := serve(t, &fake{}, path)
	client, err := pinfold.Dial(t.Context(), pinfold.WithState(state), pinfold.WithPatience(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Info(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop()
	time.AfterFunc(300*time.Millisecond, func() { serve(t, &fake{}, path) })
	if _, err := client.Info(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestTokenGoesWithEveryRPC(t *testing.T) {
	f := &fake{}
	client := connect(t, f, pinfold.WithToken("secret"))
	if _, err := client.Info(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(f.tokens) != 1 || f.tokens[0] != "Bearer secret" {
		t.Fatalf("got %q", f.tokens)
	}
	_, err := pinfold.New(pinfold.WithAddress("example.org:443"), pinfold.WithToken("secret"))
	if !errors.Is(err, pinfold.ErrTokenWithoutTLS) {
		t.Fatalf("a token in the clear: %v", err)
	}
}

func TestDialSaysWhatToDo(t *testing.T) {
	_, err := pinfold.Dial(t.Context(), pinfold.WithState(t.TempDir()))
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "pinfold serve") {
		t.Fatalf("got %v", err)
	}
}

func TestAddressFromTheEnvironment(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		environment map[string]string
		options     []pinfold.DialOption
		address     string
	}{
		"default":   {map[string]string{"HOME": "/h"}, nil, "unix:/h/.local/state/pinfold/pinfold.sock"},
		"xdg":       {map[string]string{"XDG_STATE_HOME": "/x"}, nil, "unix:/x/pinfold/pinfold.sock"},
		"state":     {map[string]string{"PINFOLD_STATE": "/s"}, nil, "unix:/s/pinfold.sock"},
		"address":   {map[string]string{"PINFOLD_ADDRESS": "unix:///a/b.sock", "PINFOLD_STATE": "/s"}, nil, "unix:/a/b.sock"},
		"tcp":       {map[string]string{"PINFOLD_ADDRESS": "localhost:99"}, nil, "localhost:99"},
		"option":    {map[string]string{"PINFOLD_ADDRESS": "localhost:99"}, []pinfold.DialOption{pinfold.WithState("/o")}, "unix:/o/pinfold.sock"},
		"long path": {map[string]string{"PINFOLD_STATE": long}, nil, "unix:" + long + "/pinfold.sock"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, variable := range []string{"PINFOLD_ADDRESS", "PINFOLD_STATE", "XDG_STATE_HOME"} {
				t.Setenv(variable, want.environment[variable])
			}
			if home := want.environment["HOME"]; home != "" {
				t.Setenv("HOME", home)
			}
			client, err := pinfold.New(want.options...)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			if got := client.Address().String(); got != want.address {
				t.Fatalf("got %s, want %s", got, want.address)
			}
		})
	}
	if _, err := pinfold.New(pinfold.WithAddress("nonsense")); !errors.Is(err, pinfold.ErrInvalidAddress) {
		t.Fatalf("got %v", err)
	}
}

func TestSocketWithALongPath(t *testing.T) {
	// The listener needs a short name, the client has only the long one.
	short, err := os.MkdirTemp("/tmp", "pf")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(short)
	long := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	if err := os.Symlink(short, long); err != nil {
		t.Fatal(err)
	}
	serve(t, &fake{}, filepath.Join(short, "pinfold.sock"))
	client, err := pinfold.Dial(t.Context(), pinfold.WithState(long))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Info(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestClosedClient(t *testing.T) {
	client := connect(t, &fake{})
	_ = client.Close()
	if _, err := client.Info(t.Context()); !errors.Is(err, pinfold.ErrClientClosed) {
		t.Fatalf("got %v", err)
	}
}
