package pinfold

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"

	pb "github.com/pinfold/pinfold/clients/go/gen/pinfold/v1"
)

// A program that reads slowly takes its input in pieces of this size.
const inputPiece = 256 << 10

// Run runs a command. It returns when the command has ended, or has gone to the background (see
// [Answer.InBackground]). A non-zero exit code, a signal and a timeout are results.
func (a *Agent) Run(ctx context.Context, command Command, options ...CallOption) (*Answer, error) {
	response, err := unary(ctx, a.client, parks, a.client.calls.RunShell, a.request(command, options))
	if err != nil {
		return nil, err
	}
	return &Answer{
		CallID:      response.GetCallId(),
		TaskID:      response.GetTaskId(),
		Result:      newResult(response.GetResult()),
		Placeholder: response.GetPlaceholder(),
	}, nil
}

// Start is Run that returns as soon as the call is queued and durable. Follow it with Output and
// Ended, or collect it with a wait. It stays a foreground call for its foreground budget.
func (a *Agent) Start(ctx context.Context, command Command, options ...CallOption) (*pb.Call, error) {
	request := a.request(command, options)
	request.Detach = true
	response, err := unary(ctx, a.client, quick, a.client.calls.RunShell, request)
	if err != nil {
		return nil, err
	}
	if call := response.GetCall(); call != nil {
		return call, nil
	}
	// A repeat that came after its end.
	return a.Get(ctx, response.GetCallId())
}

func (a *Agent) request(command Command, options []CallOption) *pb.RunShellRequest {
	request := &pb.RunShellRequest{AgentId: a.ID}
	if command.set != nil {
		command.set(request)
	}
	for _, option := range options {
		option.applyCall(request)
	}
	request.CallId = orNewID(request.CallId, "call")
	return request
}

// Get is the call as it stands, by call id or task id. It consumes nothing.
func (a *Agent) Get(ctx context.Context, callID string) (*pb.Call, error) {
	response, err := unary(ctx, a.client, quick, a.client.calls.GetCall,
		&pb.GetCallRequest{AgentId: a.ID, CallId: callID})
	return response.GetCall(), err
}

// Ended waits for the end of a call without consuming its result.
func (a *Agent) Ended(ctx context.Context, callID string) (*Result, error) {
	call, err := a.Get(ctx, callID)
	if err != nil {
		return nil, err
	}
	if call.GetResult() != nil {
		return newResult(call.GetResult()), nil
	}
	follow := a.client.Watch(ctx, 0, OfAgents(a.ID), OfCall(call.GetCallId()))
	for response, err := range follow {
		if err != nil {
			return nil, err
		}
		// It may have ended before the snapshot.
		ended := response.GetBookmark() != nil
		for _, event := range response.GetEvents() {
			ended = ended || event.GetCallEnded() != nil
		}
		if !ended {
			continue
		}
		if call, err = a.Get(ctx, callID); err != nil {
			return nil, err
		}
		if call.GetResult() != nil {
			return newResult(call.GetResult()), nil
		}
	}
	return nil, &Error{Code: codes.Unavailable, Message: "the log ended before call " + callID}
}

// Cancel asks for the end of one call and returns at once; Ended waits for the end.
// ErrCallAlreadyCanceled, ErrCallAlreadyDone, ErrCallNotCancellable, ErrCancelTargetUnknown.
func (a *Agent) Cancel(
	ctx context.Context, callID string, options ...CancelOption,
) (*pb.CancelCallResponse, error) {
	request := &pb.CancelCallRequest{AgentId: a.ID, CallId: callID}
	for _, option := range options {
		option.applyCancel(request)
	}
	response, repeated, err := unaryRepeated(ctx, a.client, quick, a.client.calls.CancelCall, request)
	if repeated && errors.Is(err, ErrCallAlreadyCanceled) {
		// The reply to the first attempt was lost.
		return &pb.CancelCallResponse{Text: "Tool cancellation requested"}, nil
	}
	return response, err
}

// WriteInput writes all of data to the standard input, as fast as the program reads it. It is
// not repeated after a lost connection: then nobody knows how much was taken.
func (a *Agent) WriteInput(ctx context.Context, callID string, data []byte) error {
	pause := time.Duration(0)
	for len(data) > 0 {
		response, err := unary(ctx, a.client, once, a.client.calls.WriteInput, &pb.WriteInputRequest{
			AgentId: a.ID,
			CallId:  callID,
			Data:    data[:min(len(data), inputPiece)],
		})
		if err != nil {
			return err
		}
		data = data[response.GetAccepted():]
		if response.GetAccepted() > 0 {
			pause = 0
			continue
		}
		pause = min(2*pause+5*time.Millisecond, 250*time.Millisecond)
		select {
		case <-ctx.Done():
			return fromRPC(ctx, ctx.Err())
		case <-time.After(pause):
		}
	}
	return nil
}

// CloseInput ends the standard input.
func (a *Agent) CloseInput(ctx context.Context, callID string) error {
	_, err := unary(ctx, a.client, quick, a.client.calls.CloseInput,
		&pb.CloseInputRequest{AgentId: a.ID, CallId: callID})
	return err
}

// Resize sets the size of the call's terminal.
func (a *Agent) Resize(ctx context.Context, callID string, rows, columns int) error {
	_, err := unary(ctx, a.client, quick, a.client.calls.ResizeTerminal, &pb.ResizeTerminalRequest{
		AgentId: a.ID,
		CallId:  callID,
		Size:    &pb.TerminalSize{Rows: int32(rows), Columns: int32(columns)},
	})
	return err
}
