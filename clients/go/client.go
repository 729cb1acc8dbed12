package pinfold

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	pb "github.com/pinfold/pinfold/clients/go/gen/pinfold/v1"
)

// Client is a connection to a supervisor. It is safe for use by many goroutines.
type Client struct {
	address  Address
	conn     *grpc.ClientConn
	closed   atomic.Bool
	patience time.Duration
	deadline time.Duration

	calls      pb.CallServiceClient
	agents     pb.AgentServiceClient
	tasks      pb.TaskServiceClient
	tools      pb.ToolServiceClient
	watches    pb.WatchServiceClient
	supervisor pb.SupervisorServiceClient
}

// Address is where the client connects to.
func (c *Client) Address() Address { return c.address }

// Conn is the connection below, for the generated stubs.
func (c *Client) Conn() *grpc.ClientConn { return c.conn }

// Close ends the connection. Calls run on; waits that are not settled are cancelled.
func (c *Client) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	return c.conn.Close()
}

// rpcKind is how an RPC may be treated.
type rpcKind int

const (
	// quick answers at once and is safe to repeat.
	quick rpcKind = iota
	// parks may take as long as it likes, and is safe to repeat.
	parks
	// once answers at once and must not be repeated.
	once
	// parksOnce may take as long as it likes, and must not be repeated.
	parksOnce
)

func (k rpcKind) limited() bool    { return k == quick || k == once }
func (k rpcKind) repeatable() bool { return k == quick || k == parks }

// unary makes one RPC, sent again after a lost connection where its kind allows.
func unary[Request, Response any](
	ctx context.Context,
	c *Client,
	kind rpcKind,
	method func(context.Context, *Request, ...grpc.CallOption) (*Response, error),
	request *Request,
) (*Response, error) {
	response, _, err := unaryRepeated(ctx, c, kind, method, request)
	return response, err
}

// unaryRepeated is unary that also tells whether the request was sent more than once.
func unaryRepeated[Request, Response any](
	ctx context.Context,
	c *Client,
	kind rpcKind,
	method func(context.Context, *Request, ...grpc.CallOption) (*Response, error),
	request *Request,
) (*Response, bool, error) {
	lost := c.newOutage()
	if !kind.repeatable() {
		lost.patience = 0
	}
	for {
		started := time.Now()
		response, err := attempt(ctx, c, kind, method, request)
		if err == nil {
			return response, lost.repeated(), nil
		}
		repeated := lost.repeated()
		if err := c.bear(ctx, lost, err, started); err != nil {
			return nil, repeated, err
		}
	}
}

func attempt[Request, Response any](
	ctx context.Context,
	c *Client,
	kind rpcKind,
	method func(context.Context, *Request, ...grpc.CallOption) (*Response, error),
	request *Request,
) (*Response, error) {
	if kind.limited() && c.deadline > 0 {
		limited, cancel := context.WithTimeout(ctx, c.deadline)
		defer cancel()
		ctx = limited
	}
	return method(ctx, request)
}

func (c *Client) newOutage() *outage { return &outage{patience: c.patience} }

// bear sleeps until the next attempt, or returns what the failure means.
func (c *Client) bear(ctx context.Context, lost *outage, err error, started time.Time) error {
	if c.closed.Load() {
		return &Error{Reason: ErrClientClosed, Code: codes.Canceled, Message: "the client is closed"}
	}
	err = lost.bear(ctx, err, started)
	if failure, ok := err.(*Error); ok && failure.Code == codes.Unavailable && failure.Reason == "" {
		return c.unreachable(failure)
	}
	return err
}

// unreachable is "not there", said so that one knows what to do.
func (c *Client) unreachable(failure *Error) *Error {
	hint := failure.Message
	if c.address.Socket != "" {
		hint = "start it with `pinfold serve`, or see PINFOLD_STATE and PINFOLD_ADDRESS"
	}
	return &Error{
		Code:    codes.Unavailable,
		Message: "no supervisor at " + c.address.String() + ": " + hint,
		cause:   failure,
	}
}
