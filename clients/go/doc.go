// Package pinfold is the client of the Pinfold supervisor, which owns the processes of
// agents: shells in process groups of their own, background calls, waits, cancels, and
// sub-agents.
//
//	client, err := pinfold.Dial(ctx)
//	if err != nil { ... }
//	defer client.Close()
//
//	agent, err := client.OpenAgent(ctx, "")
//	answer, err := agent.Run(ctx, pinfold.Shell("make test"))
//	if answer.InBackground() {
//		waited, err := agent.WaitExact(ctx, answer.CallID)
//		...
//	}
//
// # Repeats
//
// Every request that changes something carries an id, generated where none is given. While
// the supervisor cannot be reached it is sent again with that id, with growing pauses, until
// the context ends or the client's patience does (see [WithPatience]); so a lost reply
// costs nothing and nothing happens twice. Streams ([Agent.Output], [Client.Watch]) go on behind
// what was received.
//
// # Contexts
//
// A context ends a request, not a call: a command runs on until it ends, is cancelled with
// [Agent.Cancel], or its own time is used up. A wait whose context ends is a cancelled wait: it
// consumes nothing.
//
// # Errors
//
// What the supervisor refuses is an [*Error] with the reason as data:
//
//	if errors.Is(err, pinfold.ErrResultConsumed) { ... }
//
// A program's failure is a result, and running out of a wait's time is an answer; neither is
// an error.
//
// The generated messages and stubs are in the package gen/pinfold/v1.
package pinfold
