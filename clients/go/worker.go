package pinfold

import (
	"context"
	"errors"
	"os"
	"time"

	"google.golang.org/grpc/codes"
)

// ErrTurnCancelled is what a TurnFunc returns when TakePrompts says that a user cancelled the
// turn: the next turn is waiting.
var ErrTurnCancelled = errors.New("pinfold: the turn was cancelled")

// TurnFunc does the work of one turn and returns the agent's answer. An error other than
// ErrTurnCancelled ends the worker, and the turn stays open for the next one.
type TurnFunc func(ctx context.Context, agent *Agent, turn *Turn) (answer string, err error)

// What there is of an answer is handed over within the grace that a stopped worker has.
const draftTime = time.Second

// Work takes turns until the agent is stopped or ctx ends, both of which return nil, or until
// do fails.
func (a *Agent) Work(ctx context.Context, do TurnFunc) error {
	for {
		turn, err := a.NextTurn(ctx)
		if err == nil && turn != nil {
			err = a.workTurn(ctx, turn, do)
		}
		switch {
		case err == nil, errors.Is(err, ErrTurnCancelled):
		case over(ctx, err):
			return nil
		default:
			return err
		}
	}
}

// over: the agent is being ended, and so is its worker.
func over(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, ErrAgentStopped) || errors.Is(err, ErrAgentUnknown)
}

func (a *Agent) workTurn(ctx context.Context, turn *Turn, do TurnFunc) error {
	answer, err := do(ctx, a, turn)
	if err == nil {
		return a.EndTurn(ctx, turn.ID, answer)
	}
	if turn.Draft != "" && over(ctx, err) {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), draftTime)
		defer cancel()
		// Nobody is left to tell of a failure.
		_ = a.endTurn(last, turn.ID, turn.Draft, true)
	}
	return err
}

// Worker connects the worker of a sub-agent, as the supervisor starts it for a `command` role:
// it finds PINFOLD_ADDRESS, PINFOLD_AGENT_ID and PINFOLD_TOKEN in its environment.
//
//	func main() {
//		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
//		defer stop()
//		err := pinfold.Worker(ctx, func(ctx context.Context, agent *pinfold.Agent, turn *pinfold.Turn) (string, error) {
//			return think(ctx, agent, turn.Text())
//		})
//		if err != nil { log.Fatal(err) }
//	}
func Worker(ctx context.Context, do TurnFunc, options ...DialOption) error {
	id := os.Getenv("PINFOLD_AGENT_ID")
	if id == "" {
		return &Error{
			Code: codes.FailedPrecondition,
			Message: "PINFOLD_AGENT_ID is not set: the supervisor starts this program for a role " +
				"with `command`",
		}
	}
	// A supervisor that restarts is waited for, as in every later request.
	client, err := New(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	return client.Agent(id).Work(ctx, do)
}
