package pinfold

import (
	"context"
	"time"

	pb "github.com/pinfold/pinfold/clients/go/gen/pinfold/v1"
)

// Info is the supervisor's version, limits and capabilities, and how much there is of everything.
func (c *Client) Info(ctx context.Context) (*pb.GetInfoResponse, error) {
	return unary(ctx, c, quick, c.supervisor.GetInfo, &pb.GetInfoRequest{})
}

// Drain lets no new call start from now on. It returns how many are live.
func (c *Client) Drain(ctx context.Context) (int, error) {
	response, err := unary(ctx, c, quick, c.supervisor.Drain, &pb.DrainRequest{})
	return int(response.GetLiveCalls()), err
}

// Stop ends all calls and the supervisor, and returns when no process is left; with KeepGroups
// set only the daemon exits, and calls run on for the next one. It is never repeated.
func (c *Client) Stop(ctx context.Context, request *pb.StopRequest) (*pb.StopResponse, error) {
	if request == nil {
		request = &pb.StopRequest{}
	}
	return unary(ctx, c, parksOnce, c.supervisor.Stop, request)
}

// CreateToken makes a token for agentID and what is below it, or for operators when it is empty.
// validFor 0: it does not expire. The token is shown once.
func (c *Client) CreateToken(
	ctx context.Context, agentID, label string, validFor time.Duration,
) (*pb.CreateTokenResponse, error) {
	request := &pb.CreateTokenRequest{AgentId: agentID, Label: label}
	if validFor != 0 {
		request.ValidFor = duration(validFor)
	}
	return unary(ctx, c, once, c.supervisor.CreateToken, request)
}

// ListTokens is all tokens, without the secrets.
func (c *Client) ListTokens(ctx context.Context) ([]*pb.ListTokensResponse_Token, error) {
	response, err := unary(ctx, c, quick, c.supervisor.ListTokens, &pb.ListTokensRequest{})
	return response.GetTokens(), err
}

// RevokeToken makes a token invalid.
func (c *Client) RevokeToken(ctx context.Context, tokenID string) error {
	_, err := unary(ctx, c, quick, c.supervisor.RevokeToken, &pb.RevokeTokenRequest{TokenId: tokenID})
	return err
}
