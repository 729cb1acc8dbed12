package main

import (
	"context"

	"github.com/pinfold/pinfold/clients/go"
	pb "github.com/pinfold/pinfold/clients/go/gen/pinfold/v1"
)

func init() {
	register(map[string]operation{
		"open_agent":   openAgent,
		"attach_agent": attachAgent,
		"get_agent":    getAgent,
		"list_agents":  listAgents,
		"stop_agent":   stopAgent,
		"start_agent":  startAgent,
		"next_turn":    nextTurn,
		"take_prompts": takePrompts,
		"end_turn":     endTurn,
		"cancel_turn":  cancelTurn,
		"send_prompt":  sendPrompt,
		"send_message": sendMessage,
		"watch_agent":  watchAgent,
		"status":       reportStatus,
	})
}

var surfaces = map[string]pb.Surface{
	"":      pb.Surface_SURFACE_UNSPECIFIED,
	"tau":   pb.Surface_SURFACE_TAU,
	"tasks": pb.Surface_SURFACE_TASKS,
	"none":  pb.Surface_SURFACE_NONE,
}

func openAgent(ctx context.Context, a *arguments) (any, error) {
	surface, ok := surfaces[a.text("surface")]
	if !ok {
		a.wrong("no surface %q", a.text("surface"))
	}
	agent, err := a.client().OpenAgent(ctx, a.text("id"),
		pinfold.WithSurface(surface),
		pinfold.WithAgentLabel(a.text("label")),
		pinfold.WithAgentDir(a.text("cwd")),
		pinfold.WithAgentEnv(a.table("env")),
		pinfold.WithMaxRunningCalls(a.number("max_running_calls")),
		pinfold.WithMaxActiveTasks(a.number("max_active_tasks")),
		pinfold.WithHiddenTools(a.list("hidden_tools")...))
	if err != nil {
		return nil, err
	}
	a.run.keep(a.text("as"), agent, true)
	return map[string]any{"agent_id": agent.ID}, nil
}

func attachAgent(_ context.Context, a *arguments) (any, error) {
	a.run.keep(a.text("as"), a.client().Agent(a.text("id")), false)
	return nil, nil
}

func getAgent(ctx context.Context, a *arguments) (any, error) { return a.agent().Info(ctx) }

func listAgents(ctx context.Context, a *arguments) (any, error) {
	var options []pinfold.ListOption
	if a.flag("live_only") {
		options = append(options, pinfold.LiveOnly())
	}
	if a.has("parent") {
		options = append(options, pinfold.ChildrenOf(a.text("parent")))
	}
	agents, err := a.client().ListAgents(ctx, options...)
	return map[string]any{"agents": listOf(agents)}, err
}

func stopAgent(ctx context.Context, a *arguments) (any, error) {
	options := []pinfold.StopOption{pinfold.WithReason(a.text("reason"))}
	if a.has("grace") {
		options = append(options, pinfold.WithGrace(a.duration("grace")))
	}
	return a.agent().Stop(ctx, options...)
}

func startAgent(ctx context.Context, a *arguments) (any, error) {
	options := []pinfold.SubAgentOption{
		pinfold.WithRole(a.text("role")), pinfold.WithStartID(a.text("call")),
	}
	if a.text("mode") == "call" {
		options = append(options, pinfold.AsCall())
	}
	return a.agent().StartAgent(ctx, a.text("prompt"), options...)
}

func nextTurn(ctx context.Context, a *arguments) (any, error) {
	var options []pinfold.TurnOption
	if a.has("timeout") {
		options = append(options, pinfold.WithTimeout(a.duration("timeout")))
	}
	turn, err := a.agent().NextTurn(ctx, options...)
	if err != nil || turn == nil {
		return nil, err
	}
	return map[string]any{
		"turn_id":     turn.ID,
		"prompts":     listOf(turn.Prompts),
		"delivery_id": turn.DeliveryID,
		"resumed":     turn.Resumed,
	}, nil
}

func takePrompts(ctx context.Context, a *arguments) (any, error) {
	taken, err := a.agent().TakePrompts(ctx)
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"prompts":        listOf(taken.Prompts),
		"delivery_id":    taken.DeliveryID,
		"turn_cancelled": taken.TurnCancelled,
	}, nil
}

func endTurn(ctx context.Context, a *arguments) (any, error) {
	return nil, a.agent().EndTurn(ctx, a.text("turn"), a.text("answer"))
}

func cancelTurn(ctx context.Context, a *arguments) (any, error) {
	cancelled, err := a.agent().CancelTurn(ctx, a.text("reason"))
	return map[string]any{"cancelled_calls": cancelled}, err
}

func sendOptions(a *arguments) []pinfold.SendOption {
	options := []pinfold.SendOption{pinfold.WithRequestID(a.text("request_id"))}
	if a.flag("passive") {
		options = append(options, pinfold.Passive())
	}
	return options
}

func sendPrompt(ctx context.Context, a *arguments) (any, error) {
	id, err := a.agent().SendPrompt(ctx, a.text("text"), sendOptions(a)...)
	return map[string]any{"prompt_id": id}, err
}

func sendMessage(ctx context.Context, a *arguments) (any, error) {
	return a.agent().Message(ctx, a.text("to"), a.text("message"), sendOptions(a)...)
}

func watchAgent(ctx context.Context, a *arguments) (any, error) {
	enable := !a.has("enable") || a.flag("enable")
	text, err := a.agent().WatchAgent(ctx, a.text("watched"), enable)
	return map[string]any{"text": text}, err
}

var states = map[string]pb.ReportedState{
	"working": pb.ReportedState_REPORTED_STATE_WORKING,
	"waiting": pb.ReportedState_REPORTED_STATE_WAITING,
	"blocked": pb.ReportedState_REPORTED_STATE_BLOCKED,
	"done":    pb.ReportedState_REPORTED_STATE_DONE,
}

func reportStatus(ctx context.Context, a *arguments) (any, error) {
	text, err := a.agent().Status(ctx, states[a.text("state")], a.text("title"))
	return map[string]any{"text": text}, err
}
