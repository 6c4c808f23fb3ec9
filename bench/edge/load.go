package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// result is the result of a load.
type result struct {
	requests  int
	errors    int
	firstErr  string
	elapsed   time.Duration
	latencies []time.Duration // sorted
}

func (r *result) rate() float64 { return float64(r.requests) / r.elapsed.Seconds() }

func (r *result) quantile(q float64) time.Duration { return quantile(r.latencies, q) }

// quantile returns a quantile of sorted values.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// load describes requests over many connections.
type load struct {
	addr        string
	connections int
	want        int                 // expected status; anything else is an error
	request     func(i int) request // called once for each connection i, which then owns the bytes
	pace        time.Duration       // interval of a connection's requests; 0 sends the next one after each response
	total       int                 // requests of all connections; 0 continues until the end of duration
	warmup      time.Duration       // not counted
	duration    time.Duration       // ends the load when total is 0
	started     func()              // called when the measurement starts
}

// run sends the load.
func (l load) run(ctx context.Context) (result, error) {
	conns := make([]*conn, l.connections)
	for i := range conns {
		c, err := dial(l.addr)
		if err != nil {
			return result{}, err
		}
		defer c.close()
		conns[i] = c
	}
	begin := time.Now().Add(l.warmup)
	end := begin.Add(l.duration)
	parts := make([]result, l.connections)
	var wg sync.WaitGroup
	for i, c := range conns {
		quota := -1
		if l.total > 0 {
			quota = l.total / l.connections
			if i < l.total%l.connections {
				quota++
			}
		}
		wg.Go(func() { l.drive(ctx, i, c, begin, end, quota, &parts[i]) })
	}
	if l.started != nil {
		time.Sleep(time.Until(begin))
		l.started()
	}
	wg.Wait()
	all := result{elapsed: l.duration}
	if l.total > 0 {
		all.elapsed = time.Since(begin)
	}
	for _, p := range parts {
		all.requests += p.requests
		all.errors += p.errors
		all.latencies = append(all.latencies, p.latencies...)
		if all.firstErr == "" {
			all.firstErr = p.firstErr
		}
	}
	slices.Sort(all.latencies)
	if all.errors > 0 {
		progress("  %d errors, the first: %s", all.errors, all.firstErr)
	}
	if all.requests == 0 {
		return all, fmt.Errorf("no request to %s succeeded: %s", l.addr, all.firstErr)
	}
	return all, ctx.Err()
}

func (l load) drive(ctx context.Context, i int, c *conn, begin, end time.Time, quota int, out *result) {
	req := l.request(i)
	next := time.Now().Add(l.pace * time.Duration(i) / time.Duration(l.connections)) // spread evenly
	for n := 0; n != quota && ctx.Err() == nil; n++ {
		sent := time.Now()
		if l.pace > 0 {
			time.Sleep(next.Sub(sent))
			// The latency of a late request counts from when it was due. Otherwise a stall would
			// hide the requests that it delayed.
			sent = next
			next = next.Add(l.pace)
		}
		if quota < 0 && sent.After(end) {
			return
		}
		status, err := c.roundTrip(req.at(sent))
		if done := time.Now(); quota < 0 && (done.Before(begin) || done.After(end)) {
			continue
		} else if err == nil && status == l.want {
			out.requests++
			out.latencies = append(out.latencies, done.Sub(sent))
			continue
		}
		out.errors++
		if out.firstErr == "" {
			out.firstErr = fmt.Sprintf("status %d, error %v", status, err)
		}
		if err != nil {
			return
		}
	}
}
