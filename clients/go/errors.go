package pinfold

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const errorDomain = "pinfold"

// Error is what the supervisor answered in place of a result, or why it could not be reached.
//
// It matches its [Reason] with [errors.Is], and the context's error when the context ended.
type Error struct {
	// Reason is empty when the error came from below, such as a lost connection.
	Reason  Reason
	Code    codes.Code
	Message string
	// Metadata has the reason's details, such as the limit that was reached.
	Metadata map[string]string
	// RetryAfter is when to try again, 0 where the supervisor named no time.
	RetryAfter time.Duration

	cause error
}

func (e *Error) Error() string {
	switch {
	case e.Message != "":
		return "pinfold: " + e.Message
	case e.Reason != "":
		return "pinfold: " + string(e.Reason)
	default:
		return "pinfold: " + e.Code.String()
	}
}

// Is reports whether target is this error's reason.
func (e *Error) Is(target error) bool {
	reason, ok := target.(Reason)
	return ok && reason == e.Reason
}

// Unwrap gives the error below, if any.
func (e *Error) Unwrap() error { return e.cause }

// GRPCStatus lets status.FromError and status.Code read the error.
func (e *Error) GRPCStatus() *status.Status { return status.New(e.Code, e.Message) }

// ReasonOf gives the reason of an error, or "" for one that has none.
func ReasonOf(err error) Reason {
	if found, ok := errors.AsType[*Error](err); ok {
		return found.Reason
	}
	return ""
}

// fromRPC turns the error of an RPC into an *Error. ctx is the caller's own, so that its end
// is told from a lost connection.
func fromRPC(ctx context.Context, err error) *Error {
	if known, ok := errors.AsType[*Error](err); ok {
		return known
	}
	st := status.Convert(err)
	result := &Error{
		Code:    st.Code(),
		Message: strings.Join(strings.Fields(st.Message()), " "),
		cause:   err,
	}
	for _, detail := range st.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			if detail.GetDomain() == errorDomain {
				result.Reason = Reason(detail.GetReason())
				result.Metadata = detail.GetMetadata()
			}
		case *errdetails.RetryInfo:
			result.RetryAfter = detail.GetRetryDelay().AsDuration()
		}
	}
	ended := ctx.Err()
	if ended == nil && result.Code == codes.DeadlineExceeded {
		// gRPC's clock was faster than the context's.
		ended = context.DeadlineExceeded
	}
	if ended != nil && result.Reason == "" {
		result.cause = ended
		result.Code = status.FromContextError(ended).Code()
	}
	return result
}

// lostConnection: nothing was decided, as far as is known, so the request may be sent again.
func (e *Error) lostConnection() bool {
	switch e.Code {
	case codes.Unavailable:
		// With a reason it is the supervisor's own answer, such as "draining".
		return e.Reason == "" || e.RetryAfter > 0
	case codes.Canceled:
		// A server that goes down or drops a burst ends RPCs so. The caller's own cancel never
		// gets here.
		return e.Reason == ""
	default:
		return false
	}
}

func invalid(message string) *Error {
	return &Error{Reason: ErrInvalidArgument, Code: codes.InvalidArgument, Message: message}
}
