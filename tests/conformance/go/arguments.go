package main

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"time"

	"github.com/pinfold/pinfold/clients/go"
)

var placeholder = regexp.MustCompile(`\$\{([a-zA-Z0-9_.]+)\}`)

// expand puts saved values in the place of `${name}`.
func (r *run) expand(value any) (any, error) {
	switch value := value.(type) {
	case string:
		return r.expandText(value)
	case map[string]any:
		result := make(map[string]any, len(value))
		for key, inner := range value {
			expanded, err := r.expand(inner)
			if err != nil {
				return nil, err
			}
			result[key] = expanded
		}
		return result, nil
	case []any:
		result := make([]any, len(value))
		for i, inner := range value {
			expanded, err := r.expand(inner)
			if err != nil {
				return nil, err
			}
			result[i] = expanded
		}
		return result, nil
	default:
		return value, nil
	}
}

func (r *run) expandText(text string) (any, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var missing error
	expanded := placeholder.ReplaceAllStringFunc(text, func(found string) string {
		name := placeholder.FindStringSubmatch(found)[1]
		value, ok := r.saved[name]
		if !ok {
			missing = fmt.Errorf("nothing was saved as %s", found)
		}
		return fmt.Sprint(value)
	})
	return expanded, missing
}

// arguments are the arguments of one operation. The first that is wrong is kept as a fault.
type arguments struct {
	run    *run
	step   *step
	values map[string]any
	fault  error
}

func (a *arguments) wrong(format string, values ...any) {
	if a.fault == nil {
		a.fault = fmt.Errorf("%s: %s", a.step.op, fmt.Sprintf(format, values...))
	}
}

func (a *arguments) has(key string) bool {
	_, ok := a.values[key]
	return ok
}

func (a *arguments) text(key string) string {
	value, ok := a.values[key]
	if !ok || value == nil {
		return ""
	}
	return fmt.Sprint(value)
}

func (a *arguments) flag(key string) bool {
	value, ok := a.values[key].(bool)
	if a.has(key) && !ok {
		a.wrong("%s is not a bool", key)
	}
	return value
}

func (a *arguments) number(key string) int {
	return int(a.seconds(key))
}

func (a *arguments) seconds(key string) float64 {
	switch value := a.values[key].(type) {
	case nil:
		return 0
	case int:
		return float64(value)
	case float64:
		return value
	case string:
		var number float64
		if _, err := fmt.Sscanf(value, "%g", &number); err != nil {
			a.wrong("%s is not a number", key)
		}
		return number
	default:
		a.wrong("%s is not a number", key)
		return 0
	}
}

func (a *arguments) duration(key string) time.Duration {
	return time.Duration(a.seconds(key) * float64(time.Second))
}

// bytes is a string, or {base64: ...}.
func (a *arguments) bytes(key string) []byte { return a.rawBytes(key, a.values[key]) }

func (a *arguments) rawBytes(key string, value any) []byte {
	switch value := value.(type) {
	case nil:
		return nil
	case map[string]any:
		data, err := base64.StdEncoding.DecodeString(fmt.Sprint(value["base64"]))
		if err != nil {
			a.wrong("%s: %v", key, err)
		}
		return data
	default:
		return []byte(fmt.Sprint(value))
	}
}

func (a *arguments) list(key string) []string {
	values, ok := a.values[key].([]any)
	if a.has(key) && !ok {
		a.wrong("%s is not a list", key)
	}
	result := make([]string, len(values))
	for i, value := range values {
		result[i] = string(a.rawBytes(key, value))
	}
	return result
}

func (a *arguments) table(key string) map[string]string {
	values, _ := a.values[key].(map[string]any)
	result := make(map[string]string, len(values))
	for name, value := range values {
		result[name] = string(a.rawBytes(key, value))
	}
	return result
}

// client is the step's own, or the scenario's.
func (a *arguments) client() *pinfold.Client {
	found := a.run.clients[a.step.client]
	if found == nil {
		a.wrong("no client %q", a.step.client)
		found = a.run.clients[""]
	}
	return found
}

// agent is the handle that the argument names.
func (a *arguments) agent() *pinfold.Agent {
	name := a.text("agent")
	a.run.mu.Lock()
	found := a.run.agents[name]
	a.run.mu.Unlock()
	if found == nil {
		a.wrong("no agent %q", name)
		found = a.client().Agent(name)
	}
	if a.step.client != "" {
		return a.client().Agent(found.ID)
	}
	return found
}

// agentIDs are ids of the handles that a list names.
func (a *arguments) agentIDs(key string) []string {
	names := a.list(key)
	ids := make([]string, len(names))
	for i, name := range names {
		a.run.mu.Lock()
		found := a.run.agents[name]
		a.run.mu.Unlock()
		if found == nil {
			a.wrong("no agent %q", name)
			continue
		}
		ids[i] = found.ID
	}
	return ids
}
