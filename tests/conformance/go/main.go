// Command go runs the conformance scenarios through the Go client and writes one transcript for
// each. What scenarios and transcripts are is said in tests/conformance/README.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/pinfold/pinfold/clients/go"
)

// A scenario that hangs is a failure, not a hang.
const scenarioLimit = 60 * time.Second

func main() {
	scenarios := flag.String("scenarios", "../scenarios", "directory of the scenarios")
	out := flag.String("out", "", "directory for the transcripts (default: standard output)")
	profile := flag.String("profile", "default", "only the scenarios of this profile")
	flag.Parse()
	if err := runAll(*scenarios, *out, *profile, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runAll(directory, out, profile string, names []string) error {
	files, err := filepath.Glob(filepath.Join(directory, "*.yaml"))
	if err != nil {
		return err
	}
	slices.Sort(files)
	for _, file := range files {
		scenario, err := load(file)
		if err != nil {
			return err
		}
		chosen := len(names) == 0 || slices.Contains(names, scenario.name)
		if !chosen || scenario.profile != profile {
			continue
		}
		text, err := runOne(scenario)
		if err != nil {
			return fmt.Errorf("%s: %w", scenario.name, err)
		}
		if out == "" {
			fmt.Print(text)
			continue
		}
		path := filepath.Join(out, scenario.name+".json")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func runOne(scenario *scenario) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), scenarioLimit)
	defer cancel()
	client, err := pinfold.Dial(ctx)
	if err != nil {
		return "", err
	}
	defer client.Close()
	directory := filepath.Join("/tmp", fmt.Sprintf("conformance-%08x", rand.Uint32()))
	if err := os.Mkdir(directory, 0o700); err != nil {
		return "", err
	}
	defer os.RemoveAll(directory)
	r, err := newRun(ctx, scenario, client, directory)
	if err != nil {
		return "", err
	}
	defer r.close()
	entries, err := r.steps()
	if err != nil {
		return "", err
	}
	return transcript(scenario, directory, entries)
}
