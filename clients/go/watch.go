package pinfold

import (
	"context"
	"iter"
	"time"

	pb "github.com/pinfold/pinfold/clients/go/gen/pinfold/v1"
)

// WatchOption is a setting of Watch and Events.
type WatchOption func(*pb.WatchRequest)

func filtered(change func(*pb.EventFilter)) WatchOption {
	return func(r *pb.WatchRequest) {
		if r.Filter == nil {
			r.Filter = &pb.EventFilter{}
		}
		change(r.Filter)
	}
}

// OfAgents keeps to the events of these agents.
func OfAgents(ids ...string) WatchOption {
	return filtered(func(f *pb.EventFilter) { f.AgentIds = append(f.AgentIds, ids...) })
}

// AndDescendants adds the agents below those of OfAgents.
func AndDescendants() WatchOption {
	return filtered(func(f *pb.EventFilter) { f.Descendants = true })
}

// Named keeps to these events: exact names, or prefixes such as "call.*".
func Named(names ...string) WatchOption {
	return filtered(func(f *pb.EventFilter) { f.Names = append(f.Names, names...) })
}

// OfCall keeps to the events of one call.
func OfCall(callID string) WatchOption {
	return filtered(func(f *pb.EventFilter) { f.CallId = callID })
}

// StopAtEnd ends the watch when it has caught up with the log.
func StopAtEnd() WatchOption {
	return func(r *pb.WatchRequest) { r.StopAtEnd = true }
}

// ShowInternal includes the text of internal prompts.
func ShowInternal() WatchOption {
	return func(r *pb.WatchRequest) { r.ShowInternal = true }
}

// WithProgress asks for progress messages while nothing happens; at least every 100 ms.
func WithProgress(interval time.Duration) WatchOption {
	return func(r *pb.WatchRequest) { r.ProgressInterval = duration(interval) }
}

// Watch gives responses as the supervisor sends them; events of one decision are in one of them.
//
// From 0: a snapshot, closed by a bookmark, then what follows. From R: everything since R,
// inclusive; ErrRevisionCompacted for one that is no longer kept. After a lost connection it
// goes on behind what was seen: nothing is missed or repeated; a snapshot that was not complete
// begins anew. An error is the last thing that it gives.
func (c *Client) Watch(
	ctx context.Context, startRevision int64, options ...WatchOption,
) iter.Seq2[*pb.WatchResponse, error] {
	return func(yield func(*pb.WatchResponse, error) bool) {
		resume := startRevision
		request := func() *pb.WatchRequest {
			request := &pb.WatchRequest{StartRevision: resume}
			for _, option := range options {
				option(request)
			}
			return request
		}
		for response, err := range stream(ctx, c, c.watches.Watch, request) {
			if err == nil {
				resume = resumeAfter(resume, response)
			}
			if !yield(response, err) {
				return
			}
		}
	}
}

// resumeAfter is where to go on after response. Until its bookmark a snapshot is not complete.
func resumeAfter(resume int64, response *pb.WatchResponse) int64 {
	if events := response.GetEvents(); len(events) > 0 {
		resume = max(resume, events[len(events)-1].GetRevision()+1)
	}
	if bookmark := response.GetBookmark(); bookmark != nil {
		resume = max(resume, bookmark.GetRevision()+1)
	}
	if progress := response.GetProgress(); progress != nil && resume > 0 {
		resume = max(resume, progress.GetRevision()+1)
	}
	return resume
}

// Events is Watch, one event at a time and without a snapshot.
func (c *Client) Events(
	ctx context.Context, startRevision int64, options ...WatchOption,
) iter.Seq2[*pb.Event, error] {
	return func(yield func(*pb.Event, error) bool) {
		for response, err := range c.Watch(ctx, startRevision, options...) {
			if err != nil {
				yield(nil, err)
				return
			}
			for _, event := range response.GetEvents() {
				if !yield(event, nil) {
					return
				}
			}
		}
	}
}
