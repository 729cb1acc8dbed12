package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

type scenario struct {
	name    string
	profile string
	steps   []*step
	// given is every string that the file has: what is not in it was generated.
	given map[string]bool
}

type step struct {
	number int
	op     string
	args   any

	async  string
	client string
	save   map[string]string
	// record is nil for all of the answer; not nil and empty for nothing.
	record []string
}

func load(file string) (*scenario, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var parsed struct {
		Profile string
		Steps   []map[string]any
	}
	if err := yaml.Unmarshal(data, &parsed); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	result := &scenario{
		name:    strings.TrimSuffix(filepath.Base(file), ".yaml"),
		profile: parsed.Profile,
		given:   map[string]bool{},
	}
	if result.profile == "" {
		result.profile = "default"
	}
	for i, raw := range parsed.Steps {
		one, err := newStep(i+1, raw)
		if err != nil {
			return nil, fmt.Errorf("%s: step %d: %w", file, i+1, err)
		}
		result.steps = append(result.steps, one)
		collect(raw, result.given)
	}
	return result, nil
}

func newStep(number int, raw map[string]any) (*step, error) {
	result := &step{number: number}
	for key, value := range raw {
		switch key {
		case "async":
			result.async = fmt.Sprint(value)
		case "client":
			result.client = fmt.Sprint(value)
		case "save":
			result.save = map[string]string{}
			for name, path := range value.(map[string]any) {
				result.save[name] = fmt.Sprint(path)
			}
		case "record":
			result.record = recorded(value)
		case "error", "about":
			// For readers, and for the check of the expected transcripts.
		default:
			if result.op != "" {
				return nil, fmt.Errorf("two operations: %s and %s", result.op, key)
			}
			result.op, result.args = key, value
		}
	}
	if result.op == "" {
		return nil, fmt.Errorf("no operation")
	}
	return result, nil
}

func recorded(value any) []string {
	paths := []string{}
	list, _ := value.([]any)
	for _, path := range list {
		paths = append(paths, fmt.Sprint(path))
	}
	return paths
}

func collect(value any, into map[string]bool) {
	switch value := value.(type) {
	case string:
		into[value] = true
	case map[string]any:
		for _, inner := range value {
			collect(inner, into)
		}
	case []any:
		for _, inner := range value {
			collect(inner, into)
		}
	}
}
