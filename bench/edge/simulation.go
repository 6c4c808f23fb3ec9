package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// simulationSection measures the product under a whole fleet, simulated by `mainstay edge simulate`
// in its own process on the same machine: enrollments with certificates, heartbeats, events, and a
// campaign over all devices until the last one has ended. During all phases, a probe sends
// heartbeats and reads the overview.
func simulationSection(ctx context.Context, o options, r *report) (err error) {
	sites, devices, steady := 10_000, 100_000, time.Minute
	if o.quick {
		sites, devices, steady = 100, 1_000, 3*time.Second
	}
	dir := filepath.Join(o.dir, "simulation")
	p, err := startProduct(ctx, o, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	self, err := p.enroll(ctx, "probe")
	if err != nil {
		return err
	}
	fleet := exec.CommandContext(
		ctx, o.product, "edge", "simulate", "--sites", fmt.Sprint(sites), "--devices", fmt.Sprint(devices),
		"--event-interval", "30s", "--fail-rate", "0.02",
	)
	fleet.Env = append(os.Environ(), "EDGE_SERVER=http://"+p.addr, "EDGE_ENROLLMENT_TOKEN="+enrollmentToken)
	if err := fleet.Start(); err != nil {
		return err
	}
	simulator := &process{cmd: fleet}
	defer func() {
		_ = fleet.Process.Signal(os.Interrupt)
		_ = fleet.Wait() // we ended it
	}()

	m := &phases{p: p, simulator: simulator, probe: self}
	progress("simulation: %d sites enroll, %d devices register", sites, devices)
	if err := m.measure(ctx, "enroll and register all", func(ctx context.Context) (bool, error) {
		var overview struct{ Devices int }
		err := p.call(ctx, "GET", "/overview", nil, &overview)
		return overview.Devices >= devices, err
	}); err != nil {
		return err
	}
	progress("simulation: steady for %s", steady)
	end := time.Now().Add(steady)
	if err := m.measure(
		ctx, "steady: heartbeats and events every 30 s",
		func(context.Context) (bool, error) { return time.Now().After(end), nil },
	); err != nil {
		return err
	}
	progress("simulation: campaign over all devices")
	var c struct {
		ID     string
		Status string
		Counts struct{ Total, Succeeded, Failed int }
	}
	if err := p.call(
		ctx,
		"POST",
		"/ota/campaigns",
		object{
			"name":    "bench",
			"version": "2.0.0",
			"url":     "https://artifacts.example/2.0.0.bin",
			"sha256":  strings.Repeat("a", 64),
			"targets": object{
				"labels": object{"simulated": "true"},
			},
			"stages":            []int{1, 10, 100},
			"auto_promote":      true,
			"success_threshold": 0.9,
			"failure_threshold": 0.2,
		},
		&c,
	); err != nil {
		return err
	}
	if err := m.measure(ctx, "campaign, stages of 1, 10 and 100 %", func(ctx context.Context) (bool, error) {
		if c.Status == "draft" || c.Status == "" {
			return false, p.call(ctx, "POST", "/ota/campaigns/"+c.ID+"/start", nil, &c)
		}
		err := p.call(ctx, "GET", "/ota/campaigns/"+c.ID, nil, &c)
		// The last stage is complete before its last device has ended, so count devices.
		return c.Status != "running" && c.Counts.Succeeded+c.Counts.Failed >= c.Counts.Total, err
	}); err != nil {
		return err
	}
	r.section("6. A simulated fleet")
	r.say(
		"%d sites with %d devices from `mainstay edge simulate` on the same machine; an update takes a device about 20 s, and 2 %% of them fail. The latencies are those of one more site and one more viewer, one request at a time each.\n",
		sites,
		devices,
	)
	r.table(
		[]string{
			"Phase", "took", "CPU of the server", "RSS of the server", "CPU of the simulator",
			"RSS of the simulator", "heartbeat p50", "p99", "overview p50", "p99",
		},
		m.rows,
	)
	r.say(
		"The campaign ended as %s: %d of %d devices succeeded, %d failed.\n", c.Status, c.Counts.Succeeded,
		c.Counts.Total, c.Counts.Failed,
	)
	return nil
}

// phases measures the phases of a simulation.
type phases struct {
	p, simulator *process
	probe        site
	rows         [][]string
}

// measure runs the probe until done returns true.
func (m *phases) measure(ctx context.Context, name string, done func(context.Context) (bool, error)) error {
	probing, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	var beats, overviews []time.Duration
	var beatErr, overviewErr error
	wg.Go(func() { beats, beatErr = m.ask(probing, "POST", "/heartbeat", m.probe.token) })
	wg.Go(func() { overviews, overviewErr = m.ask(probing, "GET", "/overview", adminToken) })
	begin, cpu, simulatorCPU := time.Now(), m.p.cpu(), m.simulator.cpu()
	for {
		ended, err := done(ctx)
		if err != nil {
			return err
		}
		if ended {
			break
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	took := time.Since(begin)
	share := func(used time.Duration) string {
		return fmt.Sprintf("%.1f s (%.0f %% of a core)", used.Seconds(), 100*used.Seconds()/took.Seconds())
	}
	m.rows = append(m.rows, []string{
		name, fmt.Sprintf("%.1f s", took.Seconds()), share(m.p.cpu() - cpu), mib(m.p.memory("VmRSS")),
		share(m.simulator.cpu() - simulatorCPU), mib(m.simulator.memory("VmRSS")),
	})
	stop()
	wg.Wait()
	row := &m.rows[len(m.rows)-1]
	*row = append(
		*row, ms(quantile(beats, .5)), ms(quantile(beats, .99)), ms(quantile(overviews, .5)),
		ms(quantile(overviews, .99)),
	)
	return errors.Join(beatErr, overviewErr)
}

// ask sends one request after the other, ten per second, and returns the sorted response times.
func (m *phases) ask(ctx context.Context, method, path, token string) ([]time.Duration, error) {
	var took []time.Duration
	for {
		req, err := http.NewRequestWithContext(ctx, method, "http://"+m.p.addr+"/api/v1"+path, nil)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
		begin := time.Now()
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			_, err = io.Copy(io.Discard, res.Body)
			err = errors.Join(err, res.Body.Close())
		}
		if err == nil && res.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s %s: %s", method, path, res.Status)
		}
		if ctx.Err() != nil {
			slices.Sort(took)
			return took, nil
		}
		if err != nil {
			return nil, err
		}
		took = append(took, time.Since(begin))
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}
