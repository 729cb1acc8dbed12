package pinfold

import (
	"context"
	"math"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	pb "github.com/pinfold/pinfold/clients/go/gen/pinfold/v1"
)

// messageLimit is as good as none: the supervisor has bounds of its own, with names.
const messageLimit = math.MaxInt32

type dialOptions struct {
	address  string
	state    string
	token    string
	tls      *TLS
	patience time.Duration
	deadline time.Duration
	grpc     []grpc.DialOption
}

// DialOption is a setting of a client.
type DialOption func(*dialOptions)

// WithAddress chooses the supervisor at "unix:PATH", a path with a slash, or "HOST:PORT".
// Default: PINFOLD_ADDRESS, else the socket in the state directory.
func WithAddress(address string) DialOption {
	return func(o *dialOptions) { o.address = address }
}

// WithState chooses the supervisor of a state directory. Default: PINFOLD_STATE, else
// $XDG_STATE_HOME/pinfold, else ~/.local/state/pinfold.
func WithState(directory string) DialOption {
	return func(o *dialOptions) { o.state = directory }
}

// WithToken sets the token that goes with every RPC. Default: PINFOLD_TOKEN.
func WithToken(token string) DialOption {
	return func(o *dialOptions) { o.token = token }
}

// WithTLS secures a TCP address. Default: [TLSFromEnvironment].
func WithTLS(tls TLS) DialOption {
	return func(o *dialOptions) { o.tls = &tls }
}

// WithPatience sets how long a request goes on trying while the supervisor can't be reached.
// Default: 30 s.
func WithPatience(patience time.Duration) DialOption {
	return func(o *dialOptions) { o.patience = patience }
}

// WithDeadline limits each attempt of an RPC that answers at once; 0: no limit. Default: 60 s.
func WithDeadline(deadline time.Duration) DialOption {
	return func(o *dialOptions) { o.deadline = deadline }
}

// WithGRPC adds options of the connection below, such as interceptors.
func WithGRPC(options ...grpc.DialOption) DialOption {
	return func(o *dialOptions) { o.grpc = append(o.grpc, options...) }
}

// New makes a client that connects with its first RPC. It fails only for settings that can't
// be right.
func New(options ...DialOption) (*Client, error) {
	chosen := dialOptions{
		token:    os.Getenv("PINFOLD_TOKEN"),
		tls:      TLSFromEnvironment(),
		patience: 30 * time.Second,
		deadline: time.Minute,
	}
	for _, option := range options {
		option(&chosen)
	}
	address, err := resolve(chosen.address, chosen.state)
	if err != nil {
		return nil, err
	}
	target, settings, err := channel(address, chosen.tls, chosen.token)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(target, append(settings, chosen.grpc...)...)
	if err != nil {
		return nil, badAddress(err.Error())
	}
	return &Client{
		address:    address,
		conn:       conn,
		patience:   chosen.patience,
		deadline:   chosen.deadline,
		calls:      pb.NewCallServiceClient(conn),
		agents:     pb.NewAgentServiceClient(conn),
		tasks:      pb.NewTaskServiceClient(conn),
		tools:      pb.NewToolServiceClient(conn),
		watches:    pb.NewWatchServiceClient(conn),
		supervisor: pb.NewSupervisorServiceClient(conn),
	}, nil
}

// Dial makes a client and connects it. It fails at once when nobody is there; use [New] for a
// client that should wait for a supervisor that is still starting.
func Dial(ctx context.Context, options ...DialOption) (*Client, error) {
	client, err := New(options...)
	if err != nil {
		return nil, err
	}
	if err := client.connect(ctx); err != nil {
		_ = client.Close()
		return nil, err
	}
	return client, nil
}

func (c *Client) connect(ctx context.Context) error {
	c.conn.Connect()
	for {
		state := c.conn.GetState()
		switch state {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			return c.unreachable(c.whyUnreachable(ctx))
		}
		if !c.conn.WaitForStateChange(ctx, state) {
			return fromRPC(ctx, ctx.Err())
		}
	}
}

// whyUnreachable asks for anything: the connection's last failure comes back.
func (c *Client) whyUnreachable(ctx context.Context) *Error {
	_, err := c.supervisor.GetInfo(ctx, &pb.GetInfoRequest{})
	if err == nil {
		err = status.Error(codes.Unavailable, "the connection failed")
	}
	return fromRPC(ctx, err)
}

func channel(address Address, tls *TLS, token string) (string, []grpc.DialOption, error) {
	settings := []grpc.DialOption{
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(messageLimit), grpc.MaxCallSendMsgSize(messageLimit),
		),
		// Repeats are this client's own: they carry ids.
		grpc.WithDisableRetry(),
		grpc.WithNoProxy(),
		// A supervisor that was started again is there in a fraction of a second.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay:  firstPause,
				Multiplier: pauseFactor,
				Jitter:     0.2,
				MaxDelay:   longestPause,
			},
			MinConnectTimeout: 5 * time.Second,
		}),
	}
	if token != "" {
		if tls == nil && !address.private() {
			return "", nil, &Error{
				Reason:  ErrTokenWithoutTLS,
				Code:    codes.InvalidArgument,
				Message: "a token is not sent to " + address.String() + " in the clear: use TLS",
			}
		}
		settings = append(settings, grpc.WithPerRPCCredentials(bearer(token)))
	}
	if address.Socket != "" {
		connect := func(ctx context.Context, _ string) (net.Conn, error) {
			return dialSocket(ctx, address.Socket)
		}
		return "passthrough:///localhost", append(settings,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(connect)), nil
	}
	settings = append(settings, grpc.WithKeepaliveParams(keepalive.ClientParameters{
		Time:                30 * time.Second,
		Timeout:             10 * time.Second,
		PermitWithoutStream: true,
	}))
	if tls == nil {
		return address.Host, append(settings,
			grpc.WithTransportCredentials(insecure.NewCredentials())), nil
	}
	config, err := tls.config()
	if err != nil {
		return "", nil, err
	}
	return address.Host, append(settings,
		grpc.WithTransportCredentials(credentials.NewTLS(config))), nil
}

// bearer is a token as per-RPC credentials.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity is false for the sake of sockets; channel refuses a token in the clear.
func (b bearer) RequireTransportSecurity() bool { return false }
