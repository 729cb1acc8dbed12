package pinfold

import (
	pb "github.com/pinfold/pinfold/clients/go/gen/pinfold/v1"
)

// Answer is what Run returns: a result, or a placeholder for a call in the background.
type Answer struct {
	CallID string
	// TaskID is the same call for the task tools.
	TaskID string
	// Result is nil while the call is in the background.
	Result *Result
	// Placeholder is what a model reads then.
	Placeholder string
}

// InBackground: collect the result with a wait or the task tools.
func (a *Answer) InBackground() bool { return a.Result == nil }

// Text is what a model reads.
func (a *Answer) Text() string {
	if a.Result != nil {
		return a.Result.GetText()
	}
	return a.Placeholder
}

// Result is what a call ended with. A program's failure is a result, never an error.
type Result struct{ *pb.CallResult }

func newResult(message *pb.CallResult) *Result {
	if message == nil {
		return nil
	}
	return &Result{message}
}

// ExitCode is false when it ended by a signal, or isn't known.
func (r *Result) ExitCode() (int, bool) {
	process := r.GetProcess()
	if process == nil || process.ExitCode == nil {
		return 0, false
	}
	return int(process.GetExitCode()), true
}

// EndSignal is the signal that ended it, if one did.
func (r *Result) EndSignal() (int, bool) {
	process := r.GetProcess()
	if process == nil || process.Signal == nil {
		return 0, false
	}
	return int(process.GetSignal()), true
}

// OK: it ended by itself with exit code 0, or as an agent with an answer.
func (r *Result) OK() bool {
	if r.GetState() != pb.CallState_CALL_STATE_SUCCEEDED {
		return false
	}
	code, known := r.ExitCode()
	_, signalled := r.EndSignal()
	return !signalled && (!known || code == 0)
}

// WaitAnswer is how a wait ended. Running out of time and an interruption are answers too.
type WaitAnswer struct{ *pb.WaitResponse }

// First is the first of the results that the wait consumed, or nil.
func (w *WaitAnswer) First() *Result {
	if len(w.GetResults()) == 0 {
		return nil
	}
	return newResult(w.GetResults()[0])
}

// All are the results that the wait consumed, in request order for a set.
func (w *WaitAnswer) All() []*Result {
	results := make([]*Result, len(w.GetResults()))
	for i, message := range w.GetResults() {
		results[i] = newResult(message)
	}
	return results
}

// TimedOut: the wait's time passed; nothing is consumed.
func (w *WaitAnswer) TimedOut() bool {
	return w.GetOutcome() == pb.WaitOutcome_WAIT_OUTCOME_TIMED_OUT
}

// Interrupted: activating input came first; nothing is consumed, and a retry delivers.
func (w *WaitAnswer) Interrupted() bool {
	return w.GetOutcome() == pb.WaitOutcome_WAIT_OUTCOME_INTERRUPTED
}

// InputAvailable is the answer of WaitForInput when there is input.
func (w *WaitAnswer) InputAvailable() bool {
	return w.GetOutcome() == pb.WaitOutcome_WAIT_OUTCOME_INPUT_AVAILABLE
}
