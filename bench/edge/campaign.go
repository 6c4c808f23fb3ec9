package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// campaignSection measures a rollout to a large fleet, and its effect on ingest.
func campaignSection(ctx context.Context, o options, r *report) (err error) {
	// Use a connection for each site, as in the field. With fewer, a slow response would delay
	// later events and count several times.
	const sites, connections, lightRate = 200, 200, 200
	devices := 100_000
	if o.quick {
		devices = 2_000
	}
	dir := filepath.Join(o.dir, "campaign")
	progress("campaign: %d devices", devices)
	all, err := seedSites(ctx, dir, sites)
	if err != nil {
		return err
	}
	if err := seedDevices(ctx, dir, all, 0, devices); err != nil {
		return err
	}
	p, err := startProduct(ctx, o, dir, patient)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	light := load{addr: p.addr, connections: connections, want: 202, pace: time.Second * connections / lightRate,
		request: func(i int) request { return post(p.addr, eventsPath, all[i].token, eventBody(all[i].id)) }}
	alone := light
	alone.warmup, alone.duration = o.warmup, o.duration
	quiet, err := alone.run(ctx)
	if err != nil {
		return err
	}
	var c campaignState
	if err := p.call(
		ctx,
		"POST",
		"/ota/campaigns",
		object{
			"name":    "bench",
			"version": "2.0.0",
			"url":     "https://artifacts.example/2.0.0.bin",
			"sha256":  strings.Repeat("a", 64),
			"targets": object{"labels": object{"line": "a"}},
			"stages":  []int{5, 100},
		},
		&c,
	); err != nil {
		return err
	}
	rows := [][]string{
		{"before", "-", "-", "-", ms(quiet.quantile(.5)), ms(quiet.quantile(.99)), "1.00", mib(p.memory("VmRSS"))},
	}
	for _, action := range []string{"start", "promote"} {
		progress("campaign: %s", action)
		cpu := p.cpu()
		step, answered, during, err := p.rollout(ctx, c.ID, action, light)
		if err != nil {
			return err
		}
		rows = append(rows, []string{
			action,
			fmt.Sprintf("%.1f s", step.Seconds()),
			ms(answered),
			fmt.Sprintf("%.1f s", (p.cpu() - cpu).Seconds()),
			ms(during.quantile(.5)),
			ms(during.quantile(.99)),
			ratio(float64(during.quantile(.99)), float64(quiet.quantile(.99))),
			mib(p.memory("VmRSS")),
		})
	}
	if err := p.call(ctx, "GET", "/ota/campaigns/"+c.ID, nil, &c); err != nil {
		return err
	}
	r.section("4. Campaign")
	r.say(
		"%d devices, stages of 5 and 100 %%, while %d events a second are ingested over %d connections.\n", devices,
		lightRate, connections,
	)
	r.table(
		[]string{
			"Step", "until all devices were asked", "answered after", "CPU of the server", "ingest p50",
			"ingest p99", "x times p99 before", "RSS after",
		},
		rows,
	)
	r.say(
		"Peak RSS of the server: %s. At the end %d devices were pending, of %d.\n", mib(p.memory("VmHWM")),
		c.Counts.Pending, c.Counts.Total,
	)
	return nil
}

type campaignState struct {
	ID      string
	Rollout struct{ Phase string }
	Counts  struct{ Pending, Total int }
}

// rollout does one step of a campaign under load. It returns the time until all devices of the step
// had been asked, and the time until the request was answered.
func (p *process) rollout(
	ctx context.Context, id, action string, light load,
) (took, answered time.Duration, during result, err error) {
	loading, stop := context.WithCancel(ctx)
	defer stop()
	light.duration = time.Hour // until the step is done
	done := make(chan result, 1)
	begin := time.Now()
	go func() {
		res, _ := light.run(loading) // it is stopped, so an error is expected
		done <- res
	}()
	var c campaignState
	err = p.call(ctx, "POST", "/ota/campaigns/"+id+"/"+action, nil, &c)
	answered = time.Since(begin)
	for err == nil && c.Rollout.Phase != "idle" {
		select {
		case <-time.After(250 * time.Millisecond): // not more often, since each read counts the campaign's devices
		case <-ctx.Done():
		}
		err = p.call(ctx, "GET", "/ota/campaigns/"+id, nil, &c)
	}
	took = time.Since(begin)
	stop()
	during = <-done
	return took, answered, during, err
}
