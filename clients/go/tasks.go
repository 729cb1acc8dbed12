package pinfold

import (
	"context"
	"encoding/json"

	pb "github.com/pinfold/pinfold/clients/go/gen/pinfold/v1"
)

// WithReadID names a read; one is generated. The same id again gets the same bytes.
func WithReadID(id string) ReadOption {
	return readFunc(func(r *pb.ReadTaskRequest) { r.ReadId = id })
}

// AwaitEnd waits for the end of the task first, for 30 s or WithTimeout.
func AwaitEnd() ReadOption {
	return readFunc(func(r *pb.ReadTaskRequest) { r.Wait = true })
}

// TaskOutput is the output since the last read, and the status.
func (a *Agent) TaskOutput(
	ctx context.Context, taskID string, options ...ReadOption,
) (*pb.ReadTaskResponse, error) {
	request := &pb.ReadTaskRequest{AgentId: a.ID, TaskId: taskID}
	for _, option := range options {
		option.applyRead(request)
	}
	request.ReadId = orNewID(request.ReadId, "read")
	kind := quick
	if request.Wait {
		kind = parks
	}
	return unary(ctx, a.client, kind, a.client.tasks.ReadTask, request)
}

// TaskKill asks for the end of a task; its answer says whether it had finished already.
func (a *Agent) TaskKill(ctx context.Context, taskID, reason string) (*pb.KillTaskResponse, error) {
	return unary(ctx, a.client, quick, a.client.tasks.KillTask,
		&pb.KillTaskRequest{AgentId: a.ID, TaskId: taskID, Reason: reason})
}

// ListTools is the tools of the agent's surface, and a guidance section for a system prompt.
func (a *Agent) ListTools(ctx context.Context) (*pb.ListToolsResponse, error) {
	return a.client.ListTools(ctx, pb.ToolSurface_TOOL_SURFACE_UNSPECIFIED, a.ID)
}

// ListTools is the tools of a surface, without those that are hidden from agentID if it is given.
func (c *Client) ListTools(
	ctx context.Context, surface pb.ToolSurface, agentID string,
) (*pb.ListToolsResponse, error) {
	return unary(ctx, c, quick, c.tools.ListTools,
		&pb.ListToolsRequest{AgentId: agentID, Surface: surface})
}

// CallTool takes a model's call as it is. arguments is JSON text (string, []byte or
// json.RawMessage) or anything that encodes to a JSON object. toolCallID is the model's own id;
// empty: one is generated.
//
// What is wrong with the model's arguments is an answer of kind ERROR for the model to read.
func (a *Agent) CallTool(
	ctx context.Context, toolCallID, name string, arguments any,
) (*pb.CallToolResponse, error) {
	text, err := jsonText(arguments)
	if err != nil {
		return nil, invalid("arguments: " + err.Error())
	}
	return unary(ctx, a.client, parks, a.client.tools.CallTool, &pb.CallToolRequest{
		AgentId:       a.ID,
		ToolCallId:    orNewID(toolCallID, "call"),
		Name:          name,
		ArgumentsJson: text,
	})
}

func jsonText(value any) (string, error) {
	switch value := value.(type) {
	case nil:
		return "", nil
	case string:
		return value, nil
	case []byte:
		return string(value), nil
	case json.RawMessage:
		return string(value), nil
	default:
		text, err := json.Marshal(value)
		return string(text), err
	}
}
