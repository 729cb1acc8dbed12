package pinfold

import (
	"time"

	pb "github.com/pinfold/pinfold/clients/go/gen/pinfold/v1"
)

// Options that several methods take. Each method names the interface that it takes.

// CallOption is a setting of Run and Start.
type CallOption interface{ applyCall(*pb.RunShellRequest) }

// WaitOption is a setting of a wait.
type WaitOption interface{ applyWait(*pb.WaitRequest) }

// CancelOption is a setting of Cancel.
type CancelOption interface{ applyCancel(*pb.CancelCallRequest) }

// StopOption is a setting of Agent.Stop.
type StopOption interface{ applyStop(*pb.StopAgentRequest) }

// ReadOption is a setting of TaskOutput.
type ReadOption interface{ applyRead(*pb.ReadTaskRequest) }

// TurnOption is a setting of NextTurn.
type TurnOption interface{ applyTurn(*pb.NextTurnRequest) }

type timeoutOption time.Duration

// WithTimeout limits a call's running time, foreground and background alike (0: over at once);
// or how long a wait, a waiting read or NextTurn stays. The end of the latter is an answer.
func WithTimeout(limit time.Duration) interface {
	CallOption
	WaitOption
	ReadOption
	TurnOption
} {
	return timeoutOption(limit)
}

func (o timeoutOption) applyCall(r *pb.RunShellRequest) { r.Timeout = duration(time.Duration(o)) }
func (o timeoutOption) applyWait(r *pb.WaitRequest)     { r.Timeout = duration(time.Duration(o)) }
func (o timeoutOption) applyRead(r *pb.ReadTaskRequest) { r.Timeout = duration(time.Duration(o)) }
func (o timeoutOption) applyTurn(r *pb.NextTurnRequest) { r.Timeout = duration(time.Duration(o)) }

type graceOption time.Duration

// WithGrace is the time between TERM and KILL. Default: the call's own, else 2 s.
func WithGrace(grace time.Duration) interface {
	CallOption
	CancelOption
	StopOption
} {
	return graceOption(grace)
}

func (o graceOption) applyCall(r *pb.RunShellRequest)     { r.Grace = duration(time.Duration(o)) }
func (o graceOption) applyCancel(r *pb.CancelCallRequest) { r.Grace = duration(time.Duration(o)) }
func (o graceOption) applyStop(r *pb.StopAgentRequest)    { r.Grace = duration(time.Duration(o)) }

type reasonOption string

// WithReason is recorded with a cancel or a stop, and shown in results and events.
func WithReason(reason string) interface {
	CancelOption
	StopOption
} {
	return reasonOption(reason)
}

func (o reasonOption) applyCancel(r *pb.CancelCallRequest) { r.Reason = string(o) }
func (o reasonOption) applyStop(r *pb.StopAgentRequest)    { r.Reason = string(o) }

type callFunc func(*pb.RunShellRequest)

func (f callFunc) applyCall(r *pb.RunShellRequest) { f(r) }

type waitFunc func(*pb.WaitRequest)

func (f waitFunc) applyWait(r *pb.WaitRequest) { f(r) }

type readFunc func(*pb.ReadTaskRequest)

func (f readFunc) applyRead(r *pb.ReadTaskRequest) { f(r) }
