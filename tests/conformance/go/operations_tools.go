package main

import (
	"context"

	"github.com/pinfold/pinfold/clients/go"
	pb "github.com/pinfold/pinfold/clients/go/gen/pinfold/v1"
)

func init() {
	register(map[string]operation{
		"list_tools":   listTools,
		"call_tool":    callTool,
		"read_task":    readTask,
		"list_tasks":   listTasks,
		"kill_task":    killTask,
		"info":         info,
		"drain":        drain,
		"create_token": createToken,
		"list_tokens":  listTokens,
		"revoke_token": revokeToken,
		"connect":      connect,
	})
}

var toolSurfaces = map[string]pb.ToolSurface{
	"":      pb.ToolSurface_TOOL_SURFACE_UNSPECIFIED,
	"tau":   pb.ToolSurface_TOOL_SURFACE_TAU,
	"tasks": pb.ToolSurface_TOOL_SURFACE_TASKS,
	"both":  pb.ToolSurface_TOOL_SURFACE_BOTH,
}

func listTools(ctx context.Context, a *arguments) (any, error) {
	if a.has("agent") {
		return a.agent().ListTools(ctx)
	}
	return a.client().ListTools(ctx, toolSurfaces[a.text("surface")], "")
}

func callTool(ctx context.Context, a *arguments) (any, error) {
	return a.agent().CallTool(ctx, a.text("call"), a.text("name"), a.text("arguments"))
}

func readTask(ctx context.Context, a *arguments) (any, error) {
	options := []pinfold.ReadOption{pinfold.WithReadID(a.text("read_id"))}
	if a.flag("wait") {
		options = append(options, pinfold.AwaitEnd())
	}
	if a.has("timeout") {
		options = append(options, pinfold.WithTimeout(a.duration("timeout")))
	}
	return a.agent().TaskOutput(ctx, a.text("task"), options...)
}

func listTasks(ctx context.Context, a *arguments) (any, error) {
	var options []pinfold.ListOption
	if a.flag("live_only") {
		options = append(options, pinfold.LiveOnly())
	}
	tasks, err := a.agent().TaskList(ctx, options...)
	return map[string]any{"tasks": listOf(tasks)}, err
}

func killTask(ctx context.Context, a *arguments) (any, error) {
	return a.agent().TaskKill(ctx, a.text("task"), a.text("reason"))
}

func info(ctx context.Context, a *arguments) (any, error) { return a.client().Info(ctx) }

func drain(ctx context.Context, a *arguments) (any, error) {
	live, err := a.client().Drain(ctx)
	return map[string]any{"live_calls": live}, err
}

// createToken keeps the secret out of the transcript.
func createToken(ctx context.Context, a *arguments) (any, error) {
	agentID := ""
	if a.has("agent") {
		agentID = a.agent().ID
	}
	created, err := a.client().CreateToken(ctx, agentID, a.text("label"), a.duration("valid_for"))
	if err != nil {
		return nil, err
	}
	a.run.mu.Lock()
	a.run.saved[a.text("as")] = created.GetToken()
	a.run.mu.Unlock()
	return map[string]any{"token_id": created.GetTokenId()}, nil
}

func listTokens(ctx context.Context, a *arguments) (any, error) {
	tokens, err := a.client().ListTokens(ctx)
	return map[string]any{"tokens": listOf(tokens)}, err
}

func revokeToken(ctx context.Context, a *arguments) (any, error) {
	return nil, a.client().RevokeToken(ctx, a.text("token_id"))
}

// connect makes another client of the same supervisor, with a token of its own.
func connect(_ context.Context, a *arguments) (any, error) {
	client, err := pinfold.New(pinfold.WithToken(a.text("token")))
	if err != nil {
		return nil, err
	}
	a.run.mu.Lock()
	a.run.clients[a.text("as")] = client
	a.run.mu.Unlock()
	return nil, nil
}
