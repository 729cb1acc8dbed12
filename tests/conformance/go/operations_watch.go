package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/pinfold/pinfold/clients/go"
	pb "github.com/pinfold/pinfold/clients/go/gen/pinfold/v1"
)

func init() {
	register(map[string]operation{
		"watch_from":  watchFrom,
		"until_event": untilEvent,
		"sleep":       pause,
	})
}

func watchOptions(a *arguments) []pinfold.WatchOption {
	options := []pinfold.WatchOption{
		pinfold.OfAgents(a.agentIDs("agents")...),
		pinfold.Named(a.list("names")...),
		pinfold.OfCall(a.text("call")),
	}
	for key, option := range map[string]pinfold.WatchOption{
		"descendants":   pinfold.AndDescendants(),
		"stop_at_end":   pinfold.StopAtEnd(),
		"show_internal": pinfold.ShowInternal(),
	} {
		if a.flag(key) {
			options = append(options, option)
		}
	}
	return options
}

// watchFrom collects a snapshot if it starts at 0, and events until `count` of them are there or
// the log's end is reached.
func watchFrom(ctx context.Context, a *arguments) (any, error) {
	wanted := a.number("count")
	var agents, calls, events []any
	var bookmark, next int64
	for response, err := range a.client().Watch(ctx, int64(a.seconds("start")), watchOptions(a)...) {
		if err != nil {
			return nil, err
		}
		agents = append(agents, listOf(response.GetSnapshot().GetAgents())...)
		calls = append(calls, listOf(response.GetSnapshot().GetCalls())...)
		if mark := response.GetBookmark(); mark != nil {
			bookmark = mark.GetRevision()
			next = bookmark + 1
		}
		for _, event := range response.GetEvents() {
			if wanted > 0 && len(events) == wanted {
				break
			}
			events = append(events, event)
			next = event.GetRevision() + 1
		}
		if wanted > 0 && len(events) == wanted {
			break
		}
	}
	return map[string]any{
		"agents": agents, "calls": calls, "events": events, "bookmark": bookmark, "next": next,
	}, nil
}

// untilEvent waits until an event has been seen `count` times since the scenario began.
func untilEvent(ctx context.Context, a *arguments) (any, error) {
	where, _ := a.values["where"].(map[string]any)
	left := max(a.number("count"), 1)
	events := a.client().Events(ctx, a.run.begin,
		pinfold.OfAgents(a.agent().ID), pinfold.Named(a.text("name")), pinfold.OfCall(a.text("call")))
	for event, err := range events {
		if err != nil {
			return nil, err
		}
		if !matches(event, where) {
			continue
		}
		if left--; left == 0 {
			return event, nil
		}
	}
	return nil, errors.New("the log ended")
}

func matches(event *pb.Event, where map[string]any) bool {
	object, err := objectOf(event)
	if err != nil {
		return false
	}
	for path, value := range where {
		if fmt.Sprint(find(object, path)) != fmt.Sprint(value) {
			return false
		}
	}
	return true
}

func pause(ctx context.Context, a *arguments) (any, error) {
	sleep(ctx, a.seconds("seconds"))
	return nil, nil
}
