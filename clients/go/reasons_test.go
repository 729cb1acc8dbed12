package pinfold_test

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"testing"
)

var (
	inTable = regexp.MustCompile(`(?m)^    ([A-Z_]+) = "`)
	inGo    = regexp.MustCompile(`Reason = "([A-Z_]+)"`)
)

// Every reason of the supervisor's table has a sentinel here, and every sentinel is in the table.
func TestReasonsAreThoseOfTheTable(t *testing.T) {
	table, err := os.ReadFile("../../supervisor/pinfoldd/core/reasons.py")
	if err != nil {
		t.Skip("not in a checkout of the whole project")
	}
	source, err := os.ReadFile("reasons.go")
	if err != nil {
		t.Fatal(err)
	}
	// Those of the client itself come last, under their own heading.
	ofSupervisor, _, _ := bytes.Cut(source, []byte("// Of this client."))
	want, got := words(inTable, table), words(inGo, ofSupervisor)
	if !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

func words(pattern *regexp.Regexp, text []byte) []string {
	var found []string
	for _, match := range pattern.FindAllSubmatch(text, -1) {
		found = append(found, string(match[1]))
	}
	slices.Sort(found)
	return found
}
