package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pinfold/pinfold/clients/go"
)

// entry is one recorded answer.
type entry struct {
	number int
	op     string
	// body has the key "answer" or "error".
	body map[string]any
}

// run is one scenario on its way.
type run struct {
	ctx       context.Context
	scenario  *scenario
	directory string
	// begin is the log's revision when the scenario began.
	begin   int64
	clients map[string]*pinfold.Client

	mu      sync.Mutex
	agents  map[string]*pinfold.Agent
	opened  []*pinfold.Agent
	saved   map[string]any
	waiting map[string]*background
}

// background is a step that runs beside the others.
type background struct {
	step   *step
	cancel context.CancelFunc
	done   chan map[string]any
}

func newRun(
	ctx context.Context, scenario *scenario, client *pinfold.Client, directory string,
) (*run, error) {
	info, err := client.Info(ctx)
	if err != nil {
		return nil, err
	}
	return &run{
		ctx:       ctx,
		scenario:  scenario,
		directory: directory,
		begin:     info.GetRevision() + 1,
		clients:   map[string]*pinfold.Client{"": client},
		agents:    map[string]*pinfold.Agent{},
		saved:     map[string]any{"dir": directory, "begin": info.GetRevision() + 1},
		waiting:   map[string]*background{},
	}, nil
}

// close stops what the scenario opened; nothing of it is left for the next.
func (r *run) close() {
	ctx, cancel := context.WithTimeout(context.Background(), scenarioLimit)
	defer cancel()
	for _, one := range r.waiting {
		one.cancel()
	}
	for _, agent := range r.opened {
		// It may have been stopped, or be out of this token's reach.
		_, _ = agent.Stop(ctx, pinfold.WithGrace(0))
	}
	for name, client := range r.clients {
		if name != "" {
			_ = client.Close()
		}
	}
}

func (r *run) steps() ([]entry, error) {
	var entries []entry
	for _, step := range r.scenario.steps {
		if r.ctx.Err() != nil {
			return nil, fmt.Errorf("step %d: it took over %v", step.number, scenarioLimit)
		}
		if step.async != "" {
			r.start(step)
			continue
		}
		subject, body, err := r.finish(step)
		if err != nil {
			return nil, fmt.Errorf("step %d: %w", step.number, err)
		}
		entries = appendEntry(entries, subject, body)
	}
	return entries, nil
}

func appendEntry(entries []entry, step *step, body map[string]any) []entry {
	if silent[step.op] && step.record == nil && body["error"] == nil {
		return entries
	}
	if step.record != nil {
		if answer, ok := body["answer"]; ok {
			if len(step.record) == 0 {
				return entries
			}
			body = map[string]any{"answer": pick(answer, step.record)}
		}
	}
	return append(entries, entry{step.number, step.op, body})
}

// finish runs a step to its end. The entry belongs to subject: for a join, the step that ran
// beside.
func (r *run) finish(step *step) (subject *step, body map[string]any, err error) {
	switch step.op {
	case "join", "abandon":
		name := fmt.Sprint(step.args)
		beside := r.waiting[name]
		if beside == nil {
			return nil, nil, fmt.Errorf("nothing runs as %q", name)
		}
		delete(r.waiting, name)
		if step.op == "abandon" {
			beside.cancel()
			<-beside.done
			return beside.step, map[string]any{"answer": map[string]any{"abandoned": true}}, nil
		}
		select {
		case body = <-beside.done:
		case <-r.ctx.Done():
			return nil, nil, fmt.Errorf("%q does not end", name)
		}
		r.save(beside.step, body)
		return beside.step, body, nil
	case "race":
		body, err = r.race(step)
		return step, body, err
	default:
		body, err = r.perform(r.ctx, step)
		if err == nil {
			r.save(step, body)
		}
		return step, body, err
	}
}

func (r *run) start(step *step) {
	ctx, cancel := context.WithCancel(r.ctx)
	beside := &background{step, cancel, make(chan map[string]any, 1)}
	r.waiting[step.async] = beside
	go func() {
		body, err := r.perform(ctx, step)
		if err != nil {
			body = map[string]any{"error": map[string]any{"message": err.Error()}}
		}
		beside.done <- body
	}()
}

// race runs steps at the same time. Who wins is open, so the answers are put into an order.
func (r *run) race(whole *step) (map[string]any, error) {
	raw, _ := whole.args.([]any)
	bodies := make([]map[string]any, len(raw))
	failures := make([]error, len(raw))
	var group sync.WaitGroup
	for i, one := range raw {
		inner, err := newStep(whole.number, one.(map[string]any))
		if err != nil {
			return nil, err
		}
		group.Go(func() { bodies[i], failures[i] = r.perform(r.ctx, inner) })
	}
	group.Wait()
	for _, err := range failures {
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(bodies, func(a, b map[string]any) int {
		return compareJSON(plain(a), plain(b))
	})
	answers := make([]any, len(bodies))
	for i, body := range bodies {
		answers[i] = body
	}
	return map[string]any{"answer": map[string]any{"answers": answers}}, nil
}

// perform runs one operation. err is a fault of the scenario; an error of the client is an answer.
func (r *run) perform(ctx context.Context, step *step) (map[string]any, error) {
	operation := operations[step.op]
	if operation == nil {
		return nil, fmt.Errorf("no such operation: %s", step.op)
	}
	raw, err := r.expand(step.args)
	if err != nil {
		return nil, err
	}
	values, _ := raw.(map[string]any)
	args := &arguments{run: r, step: step, values: values}
	answer, failure := operation(ctx, args)
	if args.fault != nil {
		return nil, args.fault
	}
	if failure != nil {
		return map[string]any{"error": errorOf(failure)}, nil
	}
	object, err := objectOf(answer)
	if err != nil {
		return nil, err
	}
	return map[string]any{"answer": object}, nil
}

func (r *run) save(step *step, body map[string]any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(step.save)) {
		r.saved[name] = find(body["answer"], step.save[name])
	}
}

func (r *run) keep(name string, agent *pinfold.Agent, opened bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.agents[name] = agent
	r.saved[name] = agent.ID
	r.saved[name+".token"] = agent.Token
	if opened {
		r.opened = append(r.opened, agent)
	}
}

func sleep(ctx context.Context, seconds float64) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(seconds * float64(time.Second))):
	}
}
