package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"
)

// patient keeps sites that send no heartbeats from going offline during a measurement.
const patient = "--heartbeat-interval=1h"

var fleetPaths = []string{"/overview", "/sites?limit=100", "/devices?limit=100"}

// fleetSection measures how the size of the fleet affects reads.
func fleetSection(ctx context.Context, o options, r *report) error {
	const sites = 200
	small, large, requests := 1_000, 100_000, 300
	if o.quick {
		large, requests = 5_000, 50
	}
	dir := filepath.Join(o.dir, "fleet")
	all, err := seedSites(ctx, dir, sites)
	if err != nil {
		return err
	}
	var latencies [2][][]time.Duration
	for i, step := range [][2]int{{0, small}, {small, large}} {
		progress("fleet: %d devices", step[1])
		if err := seedDevices(ctx, dir, all, step[0], step[1]); err != nil {
			return err
		}
		if latencies[i], err = readFleet(ctx, o, dir, step[1], requests); err != nil {
			return err
		}
	}
	r.section("3. Size of the fleet")
	r.say("%d sites; %d requests each, one after the other.\n", sites, requests)
	var rows [][]string
	for i, path := range fleetPaths {
		a, b := latencies[0][i], latencies[1][i]
		rows = append(rows, []string{
			"GET " + path,
			ms(quantile(a, .5)),
			ms(quantile(a, .99)),
			ms(quantile(b, .5)),
			ms(quantile(b, .99)),
			ratio(float64(quantile(b, .5)), float64(quantile(a, .5))),
			ratio(float64(quantile(b, .99)), float64(quantile(a, .99))),
		})
	}
	r.table(
		[]string{
			"What", fmt.Sprintf("p50, %d devices", small), "p99", fmt.Sprintf("p50, %d devices", large), "p99",
			"ratio of p50", "ratio of p99",
		},
		rows,
	)
	r.say("Aim: a ratio of at most 2.\n")
	return nil
}

func readFleet(ctx context.Context, o options, dir string, devices, requests int) (_ [][]time.Duration, err error) {
	p, err := startProduct(ctx, o, dir, patient)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	var overview struct{ Devices int }
	if err := p.call(ctx, "GET", "/overview", nil, &overview); err != nil || overview.Devices != devices {
		return nil, errors.Join(
			err, fmt.Errorf("the overview tells of %d devices instead of %d", overview.Devices, devices),
		)
	}
	latencies := make([][]time.Duration, len(fleetPaths))
	for i, path := range fleetPaths {
		for n := range requests + 20 {
			begin := time.Now()
			if err := p.call(ctx, "GET", path, nil, nil); err != nil {
				return nil, err
			}
			if n >= 20 { // the first ones fill caches
				latencies[i] = append(latencies[i], time.Since(begin))
			}
		}
		slices.Sort(latencies[i])
	}
	return latencies, nil
}
