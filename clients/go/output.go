package pinfold

import (
	"context"
	"io"
	"iter"
	"time"

	pb "github.com/pinfold/pinfold/clients/go/gen/pinfold/v1"
)

// Chunk is consecutive bytes of one stream, from Offset on. Dropped bytes from there on aren't
// kept; then there is no Data.
type Chunk struct {
	Stream  pb.OutputStream
	Offset  int64
	Data    []byte
	Dropped int64
	// Time is when it arrived.
	Time time.Time
}

// End is the offset after it.
func (c Chunk) End() int64 { return c.Offset + int64(len(c.Data)) + c.Dropped }

// OutputOption is a setting of Output and ReadOutput.
type OutputOption func(*pb.ReadOutputRequest)

// FromOffset begins there. Offsets count the bytes received, both streams together.
func FromOffset(offset int64) OutputOption {
	return func(r *pb.ReadOutputRequest) { r.Offset = offset }
}

// OnlyStream keeps to one stream.
func OnlyStream(stream pb.OutputStream) OutputOption {
	return func(r *pb.ReadOutputRequest) { r.Stream = stream }
}

// AtMost stops after that many bytes.
func AtMost(bytes int64) OutputOption {
	return func(r *pb.ReadOutputRequest) { r.Limit = bytes }
}

// NoFollow stops at what there is now.
func NoFollow() OutputOption {
	return func(r *pb.ReadOutputRequest) { r.Follow = false }
}

// UntilClosed stays until all streams are at their end, also when processes that the call left
// behind hold them. Otherwise output ends with the call.
func UntilClosed() OutputOption {
	return func(r *pb.ReadOutputRequest) { r.UntilEnd = false }
}

// Output is the output of one call. Use it as a reader or by its chunks, not both.
type Output struct {
	chunks iter.Seq2[Chunk, error]
	cancel context.CancelFunc

	next func() (Chunk, error, bool)
	stop func()
	rest []byte
	err  error
}

// Output follows the output of a call until it ends, from its beginning. A lost connection loses
// and repeats nothing, and no reader moves another's place. Close it, or end ctx.
func (a *Agent) Output(ctx context.Context, callID string, options ...OutputOption) *Output {
	inner, cancel := context.WithCancel(ctx)
	return &Output{chunks: a.chunks(inner, callID, options), cancel: cancel}
}

// ReadOutput is all the bytes there are now.
func (a *Agent) ReadOutput(ctx context.Context, callID string, options ...OutputOption) ([]byte, error) {
	output := a.Output(ctx, callID, append([]OutputOption{NoFollow()}, options...)...)
	defer output.Close()
	return io.ReadAll(output)
}

// Chunks gives the output as it comes. An error is the last thing that it gives.
func (o *Output) Chunks() iter.Seq2[Chunk, error] { return o.chunks }

// Read implements io.Reader: the bytes of both streams in the order of arrival. What was dropped
// is left out.
func (o *Output) Read(p []byte) (int, error) {
	if o.next == nil {
		o.next, o.stop = iter.Pull2(o.chunks)
	}
	for len(o.rest) == 0 && o.err == nil {
		chunk, err, more := o.next()
		switch {
		case !more:
			o.err = io.EOF
		case err != nil:
			o.err = err
		default:
			o.rest = chunk.Data
		}
	}
	if len(o.rest) == 0 {
		return 0, o.err
	}
	n := copy(p, o.rest)
	o.rest = o.rest[n:]
	return n, nil
}

// Close lets go of the stream.
func (o *Output) Close() error {
	o.cancel()
	if o.stop != nil {
		o.stop()
	}
	return nil
}

func (a *Agent) chunks(
	ctx context.Context, callID string, options []OutputOption,
) iter.Seq2[Chunk, error] {
	wanted := &pb.ReadOutputRequest{AgentId: a.ID, CallId: callID, Follow: true, UntilEnd: true}
	for _, option := range options {
		option(wanted)
	}
	return func(yield func(Chunk, error) bool) {
		position, read := wanted.GetOffset(), int64(0)
		request := func() *pb.ReadOutputRequest {
			if wanted.GetLimit() > 0 && read >= wanted.GetLimit() {
				return nil
			}
			return &pb.ReadOutputRequest{
				AgentId:  wanted.GetAgentId(),
				CallId:   wanted.GetCallId(),
				Offset:   position,
				Follow:   wanted.GetFollow(),
				UntilEnd: wanted.GetUntilEnd(),
				Stream:   wanted.GetStream(),
				Limit:    wanted.GetLimit() - min(read, wanted.GetLimit()),
			}
		}
		for response, err := range stream(ctx, a.client, a.client.calls.ReadOutput, request) {
			if err != nil {
				yield(Chunk{}, err)
				return
			}
			if len(response.GetData()) == 0 && response.GetDropped() == 0 {
				continue
			}
			chunk := newChunk(response)
			position = chunk.End()
			read += int64(len(chunk.Data))
			if !yield(chunk, nil) {
				return
			}
		}
	}
}

func newChunk(response *pb.ReadOutputResponse) Chunk {
	chunk := Chunk{
		Stream:  response.GetStream(),
		Offset:  response.GetOffset(),
		Data:    response.GetData(),
		Dropped: response.GetDropped(),
	}
	if at := response.GetTime(); at != nil {
		chunk.Time = at.AsTime()
	}
	return chunk
}
