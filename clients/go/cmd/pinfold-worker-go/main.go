// Command pinfold-worker-go is a sub-agent's worker in Go that needs no model: it follows the
// script in its prompt, as the role `scripted` does (see docs/workers.md for the directives). Use
// it for a role with `command` in the supervisor's settings, and as a model of a worker of your
// own.
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
	// The script and what it has seen are kept over turns.
	var following *script
	err := pinfold.Worker(ctx, func(ctx context.Context, agent *pinfold.Agent, turn *pinfold.Turn) (string, error) {
		if following == nil {
			following = newScript(agent, turn)
		}
		return following.turn(ctx, turn)
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
