package pinfold

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	firstPause   = 50 * time.Millisecond
	longestPause = time.Second
	pauseFactor  = 1.7
)

// outage is how long the supervisor has been out of reach, and whether to go on trying.
type outage struct {
	patience time.Duration
	since    time.Time
	pause    time.Duration
}

// repeated: the next attempt is not the first.
func (o *outage) repeated() bool { return !o.since.IsZero() }

// over: something was received.
func (o *outage) over() { *o = outage{patience: o.patience} }

// bear sleeps before the next attempt and returns nil, or returns what the failure means.
func (o *outage) bear(ctx context.Context, err error, started time.Time) error {
	failure := fromRPC(ctx, err)
	if ctx.Err() != nil || !failure.lostConnection() {
		return failure
	}
	now := time.Now()
	// An attempt that was parked for a while had a connection until just now.
	if o.since.IsZero() || now.Sub(started) > 2*longestPause {
		o.since, o.pause = now, firstPause
	}
	left := o.patience - now.Sub(o.since)
	if left <= 0 {
		return failure
	}
	pause := o.pause
	if failure.RetryAfter > 0 {
		pause = failure.RetryAfter
	}
	o.pause = min(time.Duration(float64(o.pause)*pauseFactor), longestPause)
	// Jitter keeps clients that lost the same supervisor from coming back in step.
	pause = min(time.Duration(float64(pause)*(0.5+0.5*rand.Float64())), left)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return fromRPC(ctx, ctx.Err())
	case <-timer.C:
		return nil
	}
}
