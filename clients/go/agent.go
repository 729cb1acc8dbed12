package pinfold

import (
	"context"
	"sync"

	pb "github.com/pinfold/pinfold/clients/go/gen/pinfold/v1"
)

// Agent is a handle of one agent: cheap, and safe for use by many goroutines.
type Agent struct {
	// ID is the agent's id.
	ID string
	// Token is the agent's own when the supervisor made one in OpenAgent.
	Token string

	client *Client

	mu sync.Mutex
	// delivery is the last delivery of prompts; the driver's next step acknowledges it.
	delivery string
}

// Client is the connection that the handle uses.
func (a *Agent) Client() *Client { return a.client }

// OpenOption is a setting of a new agent.
type OpenOption func(*pb.OpenAgentRequest)

// WithSurface chooses the tools that the agent collects background work with. Default: tau.
func WithSurface(surface pb.Surface) OpenOption {
	return func(r *pb.OpenAgentRequest) { r.Surface = surface }
}

// WithAgentLabel names the agent for people.
func WithAgentLabel(label string) OpenOption {
	return func(r *pb.OpenAgentRequest) { r.Label = label }
}

// WithAgentDir is where the agent's calls run: an absolute path.
func WithAgentDir(path string) OpenOption {
	return func(r *pb.OpenAgentRequest) { r.Cwd = []byte(path) }
}

// WithAgentEnv is added to the environment of all calls of the agent.
func WithAgentEnv(env map[string]string) OpenOption {
	return func(r *pb.OpenAgentRequest) { r.Env = toBytes(env) }
}

// WithMaxRunningCalls limits the calls that run at a time; over it they queue in order.
func WithMaxRunningCalls(limit int) OpenOption {
	return func(r *pb.OpenAgentRequest) { r.MaxRunningCalls = int32(limit) }
}

// WithMaxActiveTasks limits the background tasks that are active at a time.
func WithMaxActiveTasks(limit int) OpenOption {
	return func(r *pb.OpenAgentRequest) { r.MaxActiveTasks = int32(limit) }
}

// WithHiddenTools hides tools from the agent.
func WithHiddenTools(names ...string) OpenOption {
	return func(r *pb.OpenAgentRequest) { r.HiddenTools = names }
}

// OpenAgent opens a root agent, or returns the one with this id and these settings. An empty
// id: one is generated. ErrAgentIDReused when the id is taken by an agent with other settings.
func (c *Client) OpenAgent(ctx context.Context, id string, options ...OpenOption) (*Agent, error) {
	request := &pb.OpenAgentRequest{AgentId: orNewID(id, "agent")}
	for _, option := range options {
		option(request)
	}
	response, err := unary(ctx, c, quick, c.agents.OpenAgent, request)
	if err != nil {
		return nil, err
	}
	agent := c.Agent(response.GetAgent().GetAgentId())
	agent.Token = response.GetToken()
	return agent, nil
}

// Agent is a handle of an agent that was opened before. It asks nobody.
func (c *Client) Agent(id string) *Agent { return &Agent{ID: id, client: c} }

// Info is the agent as it stands.
func (a *Agent) Info(ctx context.Context) (*pb.Agent, error) {
	response, err := unary(ctx, a.client, quick, a.client.agents.GetAgent,
		&pb.GetAgentRequest{AgentId: a.ID})
	return response.GetAgent(), err
}

// Stop ends the agent and everything below it, and returns when nothing of it is left.
func (a *Agent) Stop(ctx context.Context, options ...StopOption) (*pb.StopAgentResponse, error) {
	request := &pb.StopAgentRequest{AgentId: a.ID}
	for _, option := range options {
		option.applyStop(request)
	}
	return unary(ctx, a.client, parks, a.client.agents.StopAgent, request)
}

// SubAgentOption is a setting of StartAgent.
type SubAgentOption func(*pb.StartAgentRequest)

// WithRole chooses the worker by a role of the supervisor's settings.
func WithRole(role string) SubAgentOption {
	return func(r *pb.StartAgentRequest) { r.Role = role }
}

// AsCall makes the sub-agent a background call of the starter: cancellable, and its first
// answer is the result.
func AsCall() SubAgentOption {
	return func(r *pb.StartAgentRequest) { r.Mode = pb.StartMode_START_MODE_CALL }
}

// WithStartID names the call; one is generated.
func WithStartID(callID string) SubAgentOption {
	return func(r *pb.StartAgentRequest) { r.CallId = callID }
}

// StartAgent starts a sub-agent and returns at once. The starter watches it, unless it is
// started [AsCall].
func (a *Agent) StartAgent(
	ctx context.Context, prompt string, options ...SubAgentOption,
) (*pb.StartAgentResponse, error) {
	request := &pb.StartAgentRequest{
		AgentId: a.ID,
		Prompt:  prompt,
		Mode:    pb.StartMode_START_MODE_WATCH,
	}
	for _, option := range options {
		option(request)
	}
	request.CallId = orNewID(request.CallId, "call")
	return unary(ctx, a.client, quick, a.client.agents.StartAgent, request)
}
