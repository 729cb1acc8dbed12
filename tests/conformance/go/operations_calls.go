package main

import (
	"context"
	"encoding/base64"

	"github.com/pinfold/pinfold/clients/go"
	pb "github.com/pinfold/pinfold/clients/go/gen/pinfold/v1"
)

func init() {
	register(map[string]operation{
		"run_shell":   runShell,
		"start_shell": startShell,
		"get_call":    getCall,
		"list_calls":  listCalls,
		"ended":       ended,
		"cancel":      cancelCall,
		"write_input": writeInput,
		"close_input": closeInput,
		"resize":      resize,
		"read_output": readOutput,
		"wait_exact":  waitExact,
		"wait_all":    waitAll,
		"wait_any":    waitAny,
		"wait_bare":   waitBare,
		"wait_input":  waitInput,
	})
}

func command(a *arguments) pinfold.Command {
	if a.has("argv") {
		return pinfold.Exec(a.list("argv")...)
	}
	return pinfold.Script(a.bytes("script"))
}

func callOptions(a *arguments) []pinfold.CallOption {
	options := []pinfold.CallOption{
		pinfold.WithCallID(a.text("call")),
		pinfold.WithLabel(a.text("label")),
		pinfold.WithInput(a.bytes("input")),
		pinfold.WithDir(string(a.bytes("cwd"))),
		pinfold.WithShell(a.text("shell")),
		pinfold.WithEnv(a.table("env")),
	}
	if a.has("timeout") {
		options = append(options, pinfold.WithTimeout(a.duration("timeout")))
	}
	if a.has("grace") {
		options = append(options, pinfold.WithGrace(a.duration("grace")))
	}
	if a.has("foreground_budget") {
		options = append(options, pinfold.WithForegroundBudget(a.duration("foreground_budget")))
	}
	if a.has("output_bytes") {
		options = append(options, pinfold.WithLimits(&pb.CallLimits{OutputBytes: int64(a.number("output_bytes"))}))
	}
	if a.has("rows") {
		options = append(options, pinfold.WithTerminal(a.number("rows"), a.number("columns")))
	}
	for key, option := range map[string]pinfold.CallOption{
		"background":     pinfold.InBackground(),
		"exclusive":      pinfold.Exclusive(),
		"stdin":          pinfold.WithStdin(),
		"kill_leftovers": pinfold.KillLeftovers(),
	} {
		if a.flag(key) {
			options = append(options, option)
		}
	}
	return options
}

func runShell(ctx context.Context, a *arguments) (any, error) {
	answer, err := a.agent().Run(ctx, command(a), callOptions(a)...)
	if err != nil {
		return nil, err
	}
	object := map[string]any{
		"call_id": answer.CallID, "task_id": answer.TaskID, "placeholder": answer.Placeholder,
	}
	if answer.Result != nil {
		object["result"] = answer.Result.CallResult
	}
	return object, nil
}

func startShell(ctx context.Context, a *arguments) (any, error) {
	return a.agent().Start(ctx, command(a), callOptions(a)...)
}

func getCall(ctx context.Context, a *arguments) (any, error) {
	return a.agent().Get(ctx, a.text("call"))
}

func listCalls(ctx context.Context, a *arguments) (any, error) {
	var options []pinfold.ListOption
	if a.flag("live_only") {
		options = append(options, pinfold.LiveOnly())
	}
	calls, err := a.agent().List(ctx, options...)
	return map[string]any{"calls": listOf(calls)}, err
}

func ended(ctx context.Context, a *arguments) (any, error) {
	result, err := a.agent().Ended(ctx, a.text("call"))
	if err != nil {
		return nil, err
	}
	return result.CallResult, nil
}

func cancelCall(ctx context.Context, a *arguments) (any, error) {
	options := []pinfold.CancelOption{pinfold.WithReason(a.text("reason"))}
	if a.has("grace") {
		options = append(options, pinfold.WithGrace(a.duration("grace")))
	}
	return a.agent().Cancel(ctx, a.text("call"), options...)
}

func writeInput(ctx context.Context, a *arguments) (any, error) {
	return nil, a.agent().WriteInput(ctx, a.text("call"), a.bytes("data"))
}

func closeInput(ctx context.Context, a *arguments) (any, error) {
	return nil, a.agent().CloseInput(ctx, a.text("call"))
}

func resize(ctx context.Context, a *arguments) (any, error) {
	return nil, a.agent().Resize(ctx, a.text("call"), a.number("rows"), a.number("columns"))
}

var streams = map[string]pb.OutputStream{
	"out": pb.OutputStream_OUTPUT_STREAM_OUT,
	"err": pb.OutputStream_OUTPUT_STREAM_ERR,
}

var streamNames = map[pb.OutputStream]string{
	pb.OutputStream_OUTPUT_STREAM_UNSPECIFIED: "gap",
	pb.OutputStream_OUTPUT_STREAM_OUT:         "out",
	pb.OutputStream_OUTPUT_STREAM_ERR:         "err",
}

// readOutput joins chunks that follow each other: how many there are is open.
func readOutput(ctx context.Context, a *arguments) (any, error) {
	options := []pinfold.OutputOption{
		pinfold.FromOffset(int64(a.number("offset"))),
		pinfold.AtMost(int64(a.number("limit"))),
		pinfold.OnlyStream(streams[a.text("stream")]),
	}
	if a.has("follow") && !a.flag("follow") {
		options = append(options, pinfold.NoFollow())
	}
	if a.has("until_end") && !a.flag("until_end") {
		options = append(options, pinfold.UntilClosed())
	}
	output := a.agent().Output(ctx, a.text("call"), options...)
	defer output.Close()
	var joined []pinfold.Chunk
	for chunk, err := range output.Chunks() {
		if err != nil {
			return nil, err
		}
		last := len(joined) - 1
		if last >= 0 && joined[last].Stream == chunk.Stream && joined[last].End() == chunk.Offset &&
			(joined[last].Dropped > 0) == (chunk.Dropped > 0) {
			joined[last].Data = append(joined[last].Data, chunk.Data...)
			joined[last].Dropped += chunk.Dropped
			continue
		}
		chunk.Data = append([]byte(nil), chunk.Data...)
		joined = append(joined, chunk)
	}
	chunks := make([]any, len(joined))
	for i, chunk := range joined {
		object := map[string]any{
			"stream":  streamNames[chunk.Stream],
			"offset":  chunk.Offset,
			"dropped": chunk.Dropped,
			"base64":  base64.StdEncoding.EncodeToString(chunk.Data),
		}
		if chunk.Dropped > 0 {
			object["stream"] = "gap"
		}
		chunks[i] = object
	}
	return map[string]any{"chunks": chunks}, nil
}

func waitOptions(a *arguments) []pinfold.WaitOption {
	options := []pinfold.WaitOption{pinfold.WithWaitID(a.text("wait_id"))}
	if a.has("timeout") {
		options = append(options, pinfold.WithTimeout(a.duration("timeout")))
	}
	return options
}

func waited(answer *pinfold.WaitAnswer, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return answer.WaitResponse, nil
}

func waitExact(ctx context.Context, a *arguments) (any, error) {
	return waited(a.agent().WaitExact(ctx, a.text("call"), waitOptions(a)...))
}

func waitAll(ctx context.Context, a *arguments) (any, error) {
	return waited(a.agent().WaitAll(ctx, a.list("calls"), waitOptions(a)...))
}

func waitAny(ctx context.Context, a *arguments) (any, error) {
	return waited(a.agent().WaitAny(ctx, a.list("calls"), waitOptions(a)...))
}

func waitBare(ctx context.Context, a *arguments) (any, error) {
	return waited(a.agent().WaitAnyBackground(ctx, waitOptions(a)...))
}

func waitInput(ctx context.Context, a *arguments) (any, error) {
	return waited(a.agent().WaitForInput(ctx, waitOptions(a)...))
}
