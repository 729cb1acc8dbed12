package pinfold

import (
	"context"

	"google.golang.org/grpc"

	pb "github.com/pinfold/pinfold/clients/go/gen/pinfold/v1"
)

const pageSize = 1000

type listSettings struct {
	liveOnly bool
	agentID  string
	parentID string
}

// ListOption is a setting of the lists.
type ListOption func(*listSettings)

// LiveOnly leaves out what has ended.
func LiveOnly() ListOption { return func(s *listSettings) { s.liveOnly = true } }

// OfAgent keeps to one agent's calls or tasks.
func OfAgent(id string) ListOption { return func(s *listSettings) { s.agentID = id } }

// ChildrenOf keeps to the children of one agent. For ListAgents.
func ChildrenOf(id string) ListOption { return func(s *listSettings) { s.parentID = id } }

func listing(options []ListOption) listSettings {
	var chosen listSettings
	for _, option := range options {
		option(&chosen)
	}
	return chosen
}

// pages collects the items of all pages of a list.
func pages[Request, Response, Item any](
	ctx context.Context,
	c *Client,
	method func(context.Context, *Request, ...grpc.CallOption) (*Response, error),
	request func(token string) *Request,
	items func(*Response) []Item,
	next func(*Response) string,
) ([]Item, error) {
	var all []Item
	for token := ""; ; {
		page, err := unary(ctx, c, quick, method, request(token))
		if err != nil {
			return nil, err
		}
		all = append(all, items(page)...)
		if token = next(page); token == "" {
			return all, nil
		}
	}
}

// ListAgents is all agents that the token reaches.
func (c *Client) ListAgents(ctx context.Context, options ...ListOption) ([]*pb.Agent, error) {
	chosen := listing(options)
	return pages(ctx, c, c.agents.ListAgents, func(token string) *pb.ListAgentsRequest {
		return &pb.ListAgentsRequest{
			LiveOnly:  chosen.liveOnly,
			ParentId:  chosen.parentID,
			PageSize:  pageSize,
			PageToken: token,
		}
	}, (*pb.ListAgentsResponse).GetAgents, (*pb.ListAgentsResponse).GetNextPageToken)
}

// ListCalls is calls in start order, of all agents that the token reaches or OfAgent.
func (c *Client) ListCalls(ctx context.Context, options ...ListOption) ([]*pb.Call, error) {
	chosen := listing(options)
	return pages(ctx, c, c.calls.ListCalls, func(token string) *pb.ListCallsRequest {
		return &pb.ListCallsRequest{
			AgentId:   chosen.agentID,
			LiveOnly:  chosen.liveOnly,
			PageSize:  pageSize,
			PageToken: token,
		}
	}, (*pb.ListCallsResponse).GetCalls, (*pb.ListCallsResponse).GetNextPageToken)
}

// ListTasks is tasks in start order, of all agents that the token reaches or OfAgent.
func (c *Client) ListTasks(ctx context.Context, options ...ListOption) ([]*pb.Task, error) {
	chosen := listing(options)
	return pages(ctx, c, c.tasks.ListTasks, func(token string) *pb.ListTasksRequest {
		return &pb.ListTasksRequest{
			AgentId:   chosen.agentID,
			LiveOnly:  chosen.liveOnly,
			PageSize:  pageSize,
			PageToken: token,
		}
	}, (*pb.ListTasksResponse).GetTasks, (*pb.ListTasksResponse).GetNextPageToken)
}

// List is the agent's calls in start order.
func (a *Agent) List(ctx context.Context, options ...ListOption) ([]*pb.Call, error) {
	return a.client.ListCalls(ctx, append(options[:len(options):len(options)], OfAgent(a.ID))...)
}

// TaskList is the agent's tasks in start order.
func (a *Agent) TaskList(ctx context.Context, options ...ListOption) ([]*pb.Task, error) {
	return a.client.ListTasks(ctx, append(options[:len(options):len(options)], OfAgent(a.ID))...)
}
