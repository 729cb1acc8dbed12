package main

import (
	"context"
)

// operation does one thing through the client. Its answer is what objectOf takes.
type operation func(context.Context, *arguments) (any, error)

// operations are all that a scenario can name; README.md has the same table.
var operations = map[string]operation{}

// silent operations are recorded only where a step has `record`, or when they fail.
var silent = map[string]bool{
	"attach_agent": true,
	"connect":      true,
	"sleep":        true,
	"until_event":  true,
}

func register(table map[string]operation) {
	for name, one := range table {
		operations[name] = one
	}
}
