package main

import (
	"strings"
)

// directive is one line of a script: a word, and what follows it.
type directive struct{ name, rest string }

var directives = map[string]bool{
	"shell":      true,
	"wait":       true,
	"message":    true,
	"on_message": true,
	"status":     true,
	"sleep":      true,
	"final":      true,
}

// parse finds the directives in a prompt.
func parse(text string) []directive {
	var script []directive
	for line := range strings.Lines(text) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if directives[name] {
			script = append(script, directive{name, strings.TrimSpace(rest)})
		}
	}
	return script
}

// firstWord splits `<word> <rest>`.
func firstWord(text string) (word, rest string) {
	word, rest, _ = strings.Cut(text, " ")
	return word, strings.TrimSpace(rest)
}
