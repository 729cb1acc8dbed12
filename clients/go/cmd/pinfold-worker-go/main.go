// Command pinfold-worker-go is a sub-agent's worker in Go that needs no model: it follows a
// small script in its prompt. Use it for a role with `command` in the supervisor's settings.
//
// One directive a line; other lines are ignored:
//
//	shell <command>            run it with the shell tool
//	wait [<n>]                 wait for the n-th call of the script, or for any background call
//	message <agent> <text>     send a message; the agent `parent` is the starter
//	on_message <text>          the answer when a message comes; {body} stands for its body
//	status <state> <title>     report a status
//	sleep <seconds>            do nothing
//	final <text>               the answer of the turn
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/pinfold/pinfold/clients/go"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	follower := &follower{}
	if err := pinfold.Worker(ctx, follower.turn); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
