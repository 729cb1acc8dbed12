package pinfold_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strconv"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/pinfold/pinfold/clients/go"
	pb "github.com/pinfold/pinfold/clients/go/gen/pinfold/v1"
)

// flaky serves text from an offset on and cuts the connection after every few bytes.
func flaky(text string, offsets *[]int64) *fake {
	return &fake{
		readOutput: func(r *pb.ReadOutputRequest, s grpc.ServerStreamingServer[pb.ReadOutputResponse]) error {
			*offsets = append(*offsets, r.GetOffset())
			end := min(r.GetOffset()+5, int64(len(text)))
			if r.GetLimit() > 0 {
				end = min(end, r.GetOffset()+r.GetLimit())
			}
			if err := s.Send(&pb.ReadOutputResponse{
				Stream: pb.OutputStream_OUTPUT_STREAM_OUT,
				Offset: r.GetOffset(),
				Data:   []byte(text[r.GetOffset():end]),
			}); err != nil {
				return err
			}
			if end == int64(len(text)) || end == r.GetOffset()+r.GetLimit() {
				return nil
			}
			return errLost
		},
	}
}

func TestOutputResumesByOffset(t *testing.T) {
	var offsets []int64
	output := connect(t, flaky("twelve bytes", &offsets)).Agent("a").Output(t.Context(), "X")
	defer output.Close()
	data, err := io.ReadAll(output)
	if err != nil || string(data) != "twelve bytes" {
		t.Fatalf("got %q, %v", data, err)
	}
	if len(offsets) != 3 || offsets[1] != 5 || offsets[2] != 10 {
		t.Fatalf("offsets %v", offsets)
	}
}

func TestOutputStopsAtItsLimit(t *testing.T) {
	var offsets []int64
	output := connect(t, flaky("twelve bytes", &offsets)).Agent("a").
		Output(t.Context(), "X", pinfold.FromOffset(2), pinfold.AtMost(8))
	defer output.Close()
	var data bytes.Buffer
	for chunk, err := range output.Chunks() {
		if err != nil {
			t.Fatal(err)
		}
		if chunk.Offset != int64(2+data.Len()) {
			t.Fatalf("chunk at %d", chunk.Offset)
		}
		data.Write(chunk.Data)
	}
	if data.String() != "elve byt" {
		t.Fatalf("got %q", data.String())
	}
}

func TestOutputErrorComesFromRead(t *testing.T) {
	client := connect(t, &fake{
		readOutput: func(*pb.ReadOutputRequest, grpc.ServerStreamingServer[pb.ReadOutputResponse]) error {
			return refused(codes.NotFound, "CALL_UNKNOWN", "unknown tool call: `X`", nil)
		},
	})
	if _, err := client.Agent("a").ReadOutput(t.Context(), "X"); !errors.Is(err, pinfold.ErrCallUnknown) {
		t.Fatalf("got %v", err)
	}
}

func TestWatchResumesByRevision(t *testing.T) {
	var starts []int64
	client := connect(t, &fake{
		watch: func(r *pb.WatchRequest, s grpc.ServerStreamingServer[pb.WatchResponse]) error {
			starts = append(starts, r.GetStartRevision())
			if len(starts) == 1 {
				_ = s.Send(&pb.WatchResponse{Snapshot: &pb.Snapshot{}})
				return errLost
			}
			next := r.GetStartRevision()
			if next == 0 {
				_ = s.Send(&pb.WatchResponse{Snapshot: &pb.Snapshot{}})
				_ = s.Send(&pb.WatchResponse{Bookmark: &pb.Bookmark{Revision: 40}})
				next = 41
			}
			if next > 43 {
				return nil
			}
			_ = s.Send(&pb.WatchResponse{Events: []*pb.Event{{Revision: next, Name: "e"}}})
			return errLost
		},
	})
	var seen []string
	for event, err := range client.Events(t.Context(), 0, pinfold.OfAgents("a"), pinfold.Named("call.*")) {
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, strconv.FormatInt(event.GetRevision(), 10))
	}
	if len(seen) != 3 || seen[0] != "41" || seen[2] != "43" {
		t.Fatalf("events %v", seen)
	}
	// The snapshot without its bookmark is asked for again.
	if want := []int64{0, 0, 42, 43, 44}; len(starts) != len(want) || starts[1] != 0 || starts[2] != 42 {
		t.Fatalf("starts %v, want %v", starts, want)
	}
}

func TestLeavingALoopEndsTheStream(t *testing.T) {
	ended := make(chan struct{})
	client := connect(t, &fake{
		watch: func(_ *pb.WatchRequest, s grpc.ServerStreamingServer[pb.WatchResponse]) error {
			_ = s.Send(&pb.WatchResponse{Events: []*pb.Event{{Revision: 1}}})
			<-s.Context().Done()
			close(ended)
			return nil
		},
	})
	for range client.Events(t.Context(), 1) {
		break
	}
	<-ended
}

func TestListsReadAllPages(t *testing.T) {
	client := connect(t, &fake{
		listCalls: func(_ context.Context, r *pb.ListCallsRequest) (*pb.ListCallsResponse, error) {
			if r.GetAgentId() != "a" || !r.GetLiveOnly() {
				t.Errorf("request %v", r)
			}
			page, _ := strconv.Atoi(r.GetPageToken())
			response := &pb.ListCallsResponse{Calls: []*pb.Call{{CallId: strconv.Itoa(page)}}}
			if page < 2 {
				response.NextPageToken = strconv.Itoa(page + 1)
			}
			return response, nil
		},
	})
	calls, err := client.Agent("a").List(t.Context(), pinfold.LiveOnly())
	if err != nil || len(calls) != 3 || calls[2].GetCallId() != "2" {
		t.Fatalf("got %v, %v", calls, err)
	}
}

func TestInputIsWrittenInPieces(t *testing.T) {
	var got bytes.Buffer
	client := connect(t, &fake{
		writeInput: func(_ context.Context, r *pb.WriteInputRequest) (*pb.WriteInputResponse, error) {
			taken := min(len(r.GetData()), 100_000)
			if got.Len() == 100_000 {
				taken = min(taken, got.Len()%3)
			}
			got.Write(r.GetData()[:taken])
			return &pb.WriteInputResponse{Accepted: int64(taken)}, nil
		},
	})
	data := bytes.Repeat([]byte("0123456789"), 60_000)
	if err := client.Agent("a").WriteInput(t.Context(), "X", data); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), data) {
		t.Fatalf("got %d bytes", got.Len())
	}
}
