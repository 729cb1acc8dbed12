package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// The rules of normalisation; see README.md.
var (
	timeKeys     = keys("after created_at duration ended_at expires_at opened_at queued_at started_at stopped_at system_time time user_time")
	pidKeys      = keys("keeper_pid pid surviving_pids worker_pid")
	revisionKeys = keys("bookmark decision_revision next oldest_revision revision")
	numberKeys   = keys("max_rss_bytes")
	idKeys       = keys("agent_id call_id call_ids consumed_call_ids delivery_id from_agent_id instance_id message_id parent_id prompt_id prompt_ids read_id recipient_id request_id self_agent_id sub_agent_id token_id tool_call_id turn_id wait_id watched_agent_id watching")

	textRules = []struct {
		pattern *regexp.Regexp
		with    string
	}{
		{regexp.MustCompile(`duration_seconds: [0-9]+`), "duration_seconds: <t>"},
		{regexp.MustCompile(`kill_signals: [^\n]*`), "kill_signals: <signals>"},
		{regexp.MustCompile(`revision [0-9]+`), "revision <revision>"},
	}
)

func keys(names string) map[string]bool {
	result := map[string]bool{}
	for name := range strings.FieldsSeq(names) {
		result[name] = true
	}
	return result
}

// plain replaces what differs from run to run, ids aside.
func plain(value any) any {
	switch value := value.(type) {
	case map[string]any:
		result := make(map[string]any, len(value))
		for key, inner := range value {
			switch {
			case timeKeys[key]:
				result[key] = "<t>"
			case pidKeys[key]:
				result[key] = "<pid>"
			case revisionKeys[key]:
				result[key] = "<revision>"
			case numberKeys[key]:
				result[key] = "<n>"
			case key == "signals":
				result[key] = "<signals>"
			default:
				result[key] = plain(inner)
			}
		}
		return result
	case []any:
		result := make([]any, len(value))
		for i, inner := range value {
			result[i] = plain(inner)
		}
		return result
	case string:
		for _, rule := range textRules {
			value = rule.pattern.ReplaceAllString(value, rule.with)
		}
		return value
	default:
		return value
	}
}

// names gives generated ids their numbers, in order of appearance.
type names struct {
	given map[string]bool
	found map[string]string
}

func (n *names) collect(value any) {
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if idKeys[key] {
				n.add(value[key])
			}
			n.collect(value[key])
		}
	case []any:
		for _, inner := range value {
			n.collect(inner)
		}
	}
}

func (n *names) add(value any) {
	switch value := value.(type) {
	case string:
		if value != "" && !n.given[value] && n.found[value] == "" {
			n.found[value] = fmt.Sprintf("<id:%d>", len(n.found)+1)
		}
	case []any:
		for _, inner := range value {
			n.add(inner)
		}
	}
}

// replace puts the numbers in the place of the ids, wherever an id stands by itself in a text.
func (n *names) replace(value any, pattern *regexp.Regexp) any {
	switch value := value.(type) {
	case map[string]any:
		result := make(map[string]any, len(value))
		for key, inner := range value {
			result[key] = n.replace(inner, pattern)
		}
		return result
	case []any:
		result := make([]any, len(value))
		for i, inner := range value {
			result[i] = n.replace(inner, pattern)
		}
		return result
	case string:
		return pattern.ReplaceAllStringFunc(value, func(word string) string {
			if name := n.found[word]; name != "" {
				return name
			}
			return word
		})
	default:
		return value
	}
}

// An id is a word of these characters, as long as it gets.
var word = regexp.MustCompile(`[A-Za-z0-9_-]+`)

func transcript(scenario *scenario, directory string, entries []entry) (string, error) {
	ids := &names{scenario.given, map[string]string{}}
	steps := make([]any, len(entries))
	for i, one := range entries {
		body := inDirectory(plain(one.body), directory).(map[string]any)
		body["step"], body["op"] = one.number, one.op
		ids.collect(body)
		steps[i] = body
	}
	whole := map[string]any{"scenario": scenario.name, "steps": ids.replace(steps, word)}
	return canonical(whole)
}

func inDirectory(value any, directory string) any {
	switch value := value.(type) {
	case map[string]any:
		result := make(map[string]any, len(value))
		for key, inner := range value {
			result[key] = inDirectory(inner, directory)
		}
		return result
	case []any:
		result := make([]any, len(value))
		for i, inner := range value {
			result[i] = inDirectory(inner, directory)
		}
		return result
	case string:
		return strings.ReplaceAll(value, directory, "<dir>")
	default:
		return value
	}
}

// canonical is JSON with sorted keys, two spaces, and every character but those that JSON must
// escape as it is.
func canonical(value any) (string, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return "", err
	}
	return unescape.ReplaceAllStringFunc(text.String(), func(found string) string {
		switch found {
		case `\u2028`:
			return "\u2028"
		case `\u2029`:
			return "\u2029"
		default:
			return found
		}
	}), nil
}

// encoding/json escapes two characters that need no escape. A backslash before one is a pair.
var unescape = regexp.MustCompile(`\\(?:u202[89]|.)`)

func compareJSON(a, b any) int {
	left, _ := canonical(a)
	right, _ := canonical(b)
	return cmp.Compare(left, right)
}
