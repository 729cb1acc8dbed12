package pinfold

import (
	"context"
	"time"

	pb "github.com/pinfold/pinfold/clients/go/gen/pinfold/v1"
)

// WithWaitID names a wait; one is generated. The same id again gets the same answer.
func WithWaitID(id string) WaitOption {
	return waitFunc(func(r *pb.WaitRequest) { r.WaitId = id })
}

// WaitExact waits for one call and consumes its result. Each result is consumed at most once:
// ErrResultConsumed, ErrWaitInProgress, ErrCallUnknown, ErrCallReturnedNormally.
func (a *Agent) WaitExact(ctx context.Context, callID string, options ...WaitOption) (*WaitAnswer, error) {
	return a.wait(ctx, &pb.WaitRequest{Form: &pb.WaitRequest_Exact_{
		Exact: &pb.WaitRequest_Exact{CallId: callID},
	}}, options)
}

// WaitAll waits for all of 1 to 64 calls and consumes all results together, or none.
func (a *Agent) WaitAll(ctx context.Context, callIDs []string, options ...WaitOption) (*WaitAnswer, error) {
	return a.waitSet(ctx, callIDs, pb.SetMode_SET_MODE_ALL, options)
}

// WaitAny waits for the first of 1 to 64 calls and consumes that result only.
func (a *Agent) WaitAny(ctx context.Context, callIDs []string, options ...WaitOption) (*WaitAnswer, error) {
	return a.waitSet(ctx, callIDs, pb.SetMode_SET_MODE_ANY, options)
}

func (a *Agent) waitSet(
	ctx context.Context, callIDs []string, mode pb.SetMode, options []WaitOption,
) (*WaitAnswer, error) {
	return a.wait(ctx, &pb.WaitRequest{Form: &pb.WaitRequest_Set_{
		Set: &pb.WaitRequest_Set{CallIds: callIDs, Mode: mode},
	}}, options)
}

// WaitAnyBackground takes the oldest result that nobody has consumed, or the next one.
// ErrNothingToWaitFor when nothing runs in the background and nothing is completed.
func (a *Agent) WaitAnyBackground(ctx context.Context, options ...WaitOption) (*WaitAnswer, error) {
	return a.wait(ctx, &pb.WaitRequest{Form: &pb.WaitRequest_Bare_{Bare: &pb.WaitRequest_Bare{}}}, options)
}

// WaitForInput waits for activating input; it consumes neither input nor results.
func (a *Agent) WaitForInput(ctx context.Context, options ...WaitOption) (*WaitAnswer, error) {
	return a.wait(ctx, &pb.WaitRequest{Form: &pb.WaitRequest_Input_{Input: &pb.WaitRequest_Input{}}}, options)
}

func (a *Agent) wait(
	ctx context.Context, request *pb.WaitRequest, options []WaitOption,
) (*WaitAnswer, error) {
	request.AgentId = a.ID
	for _, option := range options {
		option.applyWait(request)
	}
	request.WaitId = orNewID(request.WaitId, "wait")
	var until time.Time
	if request.GetTimeout() != nil {
		until = time.Now().Add(request.GetTimeout().AsDuration())
	}
	lost := a.client.newOutage()
	for {
		if lost.repeated() && !until.IsZero() {
			// A repeat has what is left of the time.
			request.Timeout = duration(max(0, time.Until(until)))
		}
		started := time.Now()
		response, err := a.client.calls.Wait(ctx, request)
		if err == nil {
			return &WaitAnswer{response}, nil
		}
		if err := a.client.bear(ctx, lost, err, started); err != nil {
			return nil, err
		}
	}
}
