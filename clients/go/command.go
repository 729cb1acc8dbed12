package pinfold

import (
	"time"

	pb "github.com/pinfold/pinfold/clients/go/gen/pinfold/v1"
)

// Command is what a call runs: made by Shell, Script or Exec.
type Command struct{ set func(*pb.RunShellRequest) }

// Shell is a script for the shell.
func Shell(script string) Command { return Script([]byte(script)) }

// Script is the same, byte for byte.
func Script(script []byte) Command {
	return Command{func(r *pb.RunShellRequest) {
		r.Program = &pb.RunShellRequest_Script{Script: script}
	}}
}

// Exec is a program and its arguments, without a shell.
func Exec(args ...string) Command {
	raw := make([][]byte, len(args))
	for i, arg := range args {
		raw[i] = []byte(arg)
	}
	return Command{func(r *pb.RunShellRequest) {
		r.Program = &pb.RunShellRequest_Argv{Argv: &pb.Argv{Args: raw}}
	}}
}

// WithCallID names the call (a model's tool_call_id); one is generated. The same id with the
// same settings is the same call.
func WithCallID(id string) CallOption {
	return callFunc(func(r *pb.RunShellRequest) { r.CallId = id })
}

// WithDir is where it runs: absolute, or relative to the agent's directory.
func WithDir(path string) CallOption {
	return callFunc(func(r *pb.RunShellRequest) { r.Cwd = []byte(path) })
}

// WithEnv is added to the agent's environment.
func WithEnv(env map[string]string) CallOption {
	return callFunc(func(r *pb.RunShellRequest) { r.Env = toBytes(env) })
}

// InBackground puts the call into the background at once.
func InBackground() CallOption {
	return callFunc(func(r *pb.RunShellRequest) { r.Background = true })
}

// Exclusive: it overlaps with no other call of its agent.
func Exclusive() CallOption {
	return callFunc(func(r *pb.RunShellRequest) { r.Exclusive = true })
}

// WithInput is written to the standard input, which then ends, unless there is WithStdin too.
func WithInput(data []byte) CallOption {
	return callFunc(func(r *pb.RunShellRequest) { r.Input = data })
}

// WithStdin keeps the standard input open for WriteInput, until CloseInput.
func WithStdin() CallOption {
	return callFunc(func(r *pb.RunShellRequest) { r.Stdin = pb.Stdin_STDIN_PIPE })
}

// WithTerminal gives the call a terminal of its own; its output is one stream.
func WithTerminal(rows, columns int) CallOption {
	return callFunc(func(r *pb.RunShellRequest) {
		r.Terminal = &pb.TerminalSize{Rows: int32(rows), Columns: int32(columns)}
	})
}

// WithLimits bounds what the call may use.
func WithLimits(limits *pb.CallLimits) CallOption {
	return callFunc(func(r *pb.RunShellRequest) { r.Limits = limits })
}

// KillLeftovers ends what outlives the command.
func KillLeftovers() CallOption {
	return callFunc(func(r *pb.RunShellRequest) {
		r.Leftovers = pb.LeftoverPolicy_LEFTOVER_POLICY_KILL
	})
}

// WithLabel is one line for lists. Default: the beginning of the command.
func WithLabel(label string) CallOption {
	return callFunc(func(r *pb.RunShellRequest) { r.Label = label })
}

// WithShell is the path of the shell that runs a script.
func WithShell(path string) CallOption {
	return callFunc(func(r *pb.RunShellRequest) { r.Shell = []byte(path) })
}

// WithForegroundBudget is how long the call may stay in the foreground. Default: 2 s.
func WithForegroundBudget(budget time.Duration) CallOption {
	return callFunc(func(r *pb.RunShellRequest) { r.ForegroundBudget = duration(budget) })
}
