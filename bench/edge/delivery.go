package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// deliverySection measures throughput and latency of deliveries to a target.
func deliverySection(ctx context.Context, o options, r *report) (err error) {
	const sites, burstConnections, directConnections = 32, 64, 16
	events, lightRate := 20_000, 200
	if o.quick {
		events = 1000
	}
	tg, err := newTarget()
	if err != nil {
		return err
	}
	defer tg.close()
	p, err := startProduct(ctx, o, filepath.Join(o.dir, "delivery"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	var from [sites]site
	for i := range from {
		if from[i], err = p.enroll(ctx, fmt.Sprintf("site-%d", i)); err != nil {
			return err
		}
	}
	if err := p.call(
		ctx,
		"POST",
		"/routes",
		object{"name": "bench", "topic": "*", "target_url": "http://" + tg.addr + "/hook", "timeout_seconds": 60},
		nil,
	); err != nil {
		return err
	}
	byConnection := func(i int) request {
		s := from[i%sites]
		return post(p.addr, eventsPath, s.token, eventBody(s.id))
	}

	progress("delivery: light load")
	light, err := load{addr: p.addr, connections: sites, want: 202, request: byConnection, duration: o.duration,
		pace: time.Second * sites / time.Duration(lightRate)}.run(ctx)
	if err != nil {
		return err
	}
	if err := tg.await(ctx, light.requests); err != nil {
		return err
	}
	lightDelay, _ := tg.take()

	progress("delivery: %d events at once", events)
	cpu, begin := p.cpu(), time.Now()
	burst, err := load{
		addr:        p.addr,
		connections: burstConnections,
		want:        202,
		request:     byConnection,
		total:       events,
	}.run(ctx)
	if err != nil {
		return err
	}
	if err := tg.await(ctx, burst.requests); err != nil {
		return err
	}
	cpu = p.cpu() - cpu
	burstDelay, last := tg.take()
	drained := float64(burst.requests) / last.Sub(begin).Seconds()

	progress("delivery: a backlog of %d events", events)
	open := tg.hold()
	backlog, err := load{
		addr:        p.addr,
		connections: burstConnections,
		want:        202,
		request:     byConnection,
		total:       events,
	}.run(ctx)
	if err != nil {
		return err
	}
	progress("delivery: the target goes on")
	backlogCPU, begin := p.cpu(), time.Now()
	open()
	if err := tg.await(ctx, backlog.requests); err != nil {
		return err
	}
	backlogCPU = p.cpu() - backlogCPU
	_, last = tg.take()
	drainedAlone := float64(backlog.requests) / last.Sub(begin).Seconds()

	progress("delivery: the target directly")
	body := string(tg.body)
	direct, err := load{
		addr:        tg.addr,
		connections: directConnections,
		want:        200,
		warmup:      o.warmup,
		duration:    o.duration,
		request:     func(int) request { return post(tg.addr, "/hook", "", body) },
	}.run(ctx)
	if err != nil {
		return err
	}

	r.section("2. Delivery")
	r.say("One route, %d sites, a target in the load generator's process.\n", sites)
	r.table([]string{"What", "per second", "p50", "p99", "Mainstay is x times"}, [][]string{
		{
			fmt.Sprintf("accepted in the burst (%d events, %d connections)", events, burstConnections),
			fmt.Sprintf("%.0f", burst.rate()),
			ms(burst.quantile(.5)),
			ms(burst.quantile(.99)),
			"-",
		},
		{
			"delivered until drained, end to end",
			fmt.Sprintf("%.0f", drained),
			ms(quantile(burstDelay, .5)),
			ms(quantile(burstDelay, .99)),
			"-",
		},
		{
			fmt.Sprintf("delivered from a backlog (%d events), nothing accepted meanwhile", events),
			fmt.Sprintf("%.0f", drainedAlone),
			"-",
			"-",
			ratio(drainedAlone, direct.rate()),
		},
		{
			fmt.Sprintf("delivered at %d events/s, end to end", lightRate),
			fmt.Sprintf("%.0f", light.rate()),
			ms(quantile(lightDelay, .5)),
			ms(quantile(lightDelay, .99)),
			"-",
		},
		{
			fmt.Sprintf("reference: the target directly, %d connections", directConnections),
			fmt.Sprintf("%.0f", direct.rate()),
			ms(direct.quantile(.5)),
			ms(direct.quantile(.99)),
			ratio(drained, direct.rate()),
		},
	})
	r.say(
		"Ingest and delivery of the burst took %.2f s of the server's processor time, %.0f us an event. %d deliveries arrived for %d events. Ingest errors: %d. "+
			"A delivery from the backlog took %.0f us of it. Aim: at least 0.3 of the target asked directly.\n",
		cpu.Seconds(),
		float64(cpu.Microseconds())/float64(burst.requests),
		len(burstDelay),
		burst.requests,
		burst.errors,
		float64(backlogCPU.Microseconds())/float64(backlog.requests),
	)
	return nil
}

// await waits until n deliveries have arrived.
func (t *target) await(ctx context.Context, n int) error {
	patience := time.NewTimer(2 * time.Minute)
	defer patience.Stop()
	for t.count() < n {
		select {
		case <-t.arrived:
		case <-ctx.Done():
			return ctx.Err()
		case <-patience.C:
			return fmt.Errorf("only %d of %d deliveries arrived", t.count(), n)
		}
	}
	return nil
}
