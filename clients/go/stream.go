package pinfold

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"google.golang.org/grpc"
)

// stream is a server stream, opened again after a lost connection. request makes the request
// that goes on where the last one stopped, or nil when there is nothing left to ask for.
func stream[Request, Response any](
	ctx context.Context,
	c *Client,
	open func(context.Context, *Request, ...grpc.CallOption) (grpc.ServerStreamingClient[Response], error),
	request func() *Request,
) iter.Seq2[*Response, error] {
	return func(yield func(*Response, error) bool) {
		// Its end is what lets go of a stream that is not read to its end.
		inner, cancel := context.WithCancel(ctx)
		defer cancel()
		lost := c.newOutage()
		for message := request(); message != nil; message = request() {
			started := time.Now()
			messages, err := open(inner, message)
			for err == nil {
				var response *Response
				response, err = messages.Recv()
				if err == nil {
					lost.over()
					if !yield(response, nil) {
						return
					}
				}
			}
			if errors.Is(err, io.EOF) {
				return
			}
			if err := c.bear(ctx, lost, err, started); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}
