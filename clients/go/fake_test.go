package pinfold_test

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/pinfold/pinfold/clients/go"
	pb "github.com/pinfold/pinfold/clients/go/gen/pinfold/v1"
)

// fake is a supervisor whose answers a test writes itself.
type fake struct {
	pb.UnimplementedCallServiceServer
	pb.UnimplementedAgentServiceServer
	pb.UnimplementedTaskServiceServer
	pb.UnimplementedToolServiceServer
	pb.UnimplementedWatchServiceServer
	pb.UnimplementedSupervisorServiceServer

	runShell   func(context.Context, *pb.RunShellRequest) (*pb.RunShellResponse, error)
	cancelCall func(context.Context, *pb.CancelCallRequest) (*pb.CancelCallResponse, error)
	wait       func(context.Context, *pb.WaitRequest) (*pb.WaitResponse, error)
	readOutput func(*pb.ReadOutputRequest, grpc.ServerStreamingServer[pb.ReadOutputResponse]) error
	writeInput func(context.Context, *pb.WriteInputRequest) (*pb.WriteInputResponse, error)
	listCalls  func(context.Context, *pb.ListCallsRequest) (*pb.ListCallsResponse, error)
	watch      func(*pb.WatchRequest, grpc.ServerStreamingServer[pb.WatchResponse]) error
	nextTurn   func(context.Context, *pb.NextTurnRequest) (*pb.NextTurnResponse, error)
	takePrompt func(context.Context, *pb.TakePromptsRequest) (*pb.TakePromptsResponse, error)
	endTurn    func(context.Context, *pb.EndTurnRequest) (*pb.EndTurnResponse, error)
	callTool   func(context.Context, *pb.CallToolRequest) (*pb.CallToolResponse, error)

	mu     sync.Mutex
	tokens []string
}

func (f *fake) RunShell(ctx context.Context, r *pb.RunShellRequest) (*pb.RunShellResponse, error) {
	return f.runShell(ctx, r)
}

func (f *fake) CancelCall(ctx context.Context, r *pb.CancelCallRequest) (*pb.CancelCallResponse, error) {
	return f.cancelCall(ctx, r)
}

func (f *fake) Wait(ctx context.Context, r *pb.WaitRequest) (*pb.WaitResponse, error) {
	return f.wait(ctx, r)
}

func (f *fake) ReadOutput(
	r *pb.ReadOutputRequest, s grpc.ServerStreamingServer[pb.ReadOutputResponse],
) error {
	return f.readOutput(r, s)
}

func (f *fake) WriteInput(ctx context.Context, r *pb.WriteInputRequest) (*pb.WriteInputResponse, error) {
	return f.writeInput(ctx, r)
}

func (f *fake) ListCalls(ctx context.Context, r *pb.ListCallsRequest) (*pb.ListCallsResponse, error) {
	return f.listCalls(ctx, r)
}

func (f *fake) Watch(r *pb.WatchRequest, s grpc.ServerStreamingServer[pb.WatchResponse]) error {
	return f.watch(r, s)
}

func (f *fake) NextTurn(ctx context.Context, r *pb.NextTurnRequest) (*pb.NextTurnResponse, error) {
	return f.nextTurn(ctx, r)
}

func (f *fake) TakePrompts(ctx context.Context, r *pb.TakePromptsRequest) (*pb.TakePromptsResponse, error) {
	return f.takePrompt(ctx, r)
}

func (f *fake) EndTurn(ctx context.Context, r *pb.EndTurnRequest) (*pb.EndTurnResponse, error) {
	return f.endTurn(ctx, r)
}

func (f *fake) CallTool(ctx context.Context, r *pb.CallToolRequest) (*pb.CallToolResponse, error) {
	return f.callTool(ctx, r)
}

func (f *fake) GetInfo(ctx context.Context, _ *pb.GetInfoRequest) (*pb.GetInfoResponse, error) {
	incoming, _ := metadata.FromIncomingContext(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tokens = append(f.tokens, incoming.Get("authorization")...)
	return &pb.GetInfoResponse{Version: "fake"}, nil
}

// serve listens on path until the returned function is called, which cuts all connections.
func serve(t *testing.T, f *fake, path string) (stop func()) {
	t.Helper()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterCallServiceServer(server, f)
	pb.RegisterAgentServiceServer(server, f)
	pb.RegisterTaskServiceServer(server, f)
	pb.RegisterToolServiceServer(server, f)
	pb.RegisterWatchServiceServer(server, f)
	pb.RegisterSupervisorServiceServer(server, f)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return server.Stop
}

// connect is a client of f.
func connect(t *testing.T, f *fake, options ...pinfold.DialOption) *pinfold.Client {
	t.Helper()
	state := t.TempDir()
	serve(t, f, filepath.Join(state, "pinfold.sock"))
	client, err := pinfold.Dial(t.Context(), append([]pinfold.DialOption{
		pinfold.WithState(state), pinfold.WithPatience(5 * time.Second),
	}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func refused(code codes.Code, reason, message string, metadata map[string]string) error {
	st, err := status.New(code, message).WithDetails(
		&errdetails.ErrorInfo{Reason: reason, Domain: "pinfold", Metadata: metadata})
	if err != nil {
		panic(err)
	}
	return st.Err()
}

var errLost = status.Error(codes.Unavailable, "connection lost")
