package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// natsLoad publishes to JetStream. Each client waits for the acknowledgement before its next
// message, like the connections of the other loads.
func natsLoad(ctx context.Context, o options, p *process, clients int) (measurement, error) {
	streams := make([]nats.JetStreamContext, clients)
	for i := range streams {
		c, err := nats.Connect("nats://" + p.addr)
		if err != nil {
			return measurement{}, err
		}
		defer c.Close()
		if streams[i], err = c.JetStream(nats.MaxWait(60 * time.Second)); err != nil {
			return measurement{}, err
		}
	}
	if _, err := streams[0].AddStream(
		&nats.StreamConfig{Name: "EVENTS", Subjects: []string{"events"}, Storage: nats.FileStorage},
	); err != nil {
		return measurement{}, err
	}
	begin := time.Now().Add(o.warmup)
	end := begin.Add(o.duration)
	message := bytes.Repeat([]byte("x"), 200)
	parts := make([]result, clients)
	var wg sync.WaitGroup
	for i, js := range streams {
		wg.Go(func() {
			for sent := time.Now(); sent.Before(end) && ctx.Err() == nil; sent = time.Now() {
				_, err := js.Publish("events", message)
				done := time.Now()
				switch {
				case done.Before(begin) || done.After(end):
				case err != nil:
					parts[i].errors++
					parts[i].firstErr = err.Error()
				default:
					parts[i].requests++
					parts[i].latencies = append(parts[i].latencies, done.Sub(sent))
				}
			}
		})
	}
	time.Sleep(time.Until(begin))
	before := p.cpu()
	wg.Wait()
	m := measurement{result{elapsed: o.duration}, p.cpu() - before}
	for _, part := range parts {
		m.requests += part.requests
		m.errors += part.errors
		m.latencies = append(m.latencies, part.latencies...)
		m.firstErr = max(m.firstErr, part.firstErr)
	}
	slices.Sort(m.latencies)
	if m.requests == 0 {
		return m, fmt.Errorf("no message was acknowledged: %s", m.firstErr)
	}
	return m, ctx.Err()
}
