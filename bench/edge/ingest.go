package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// measurement is the result of a load, with the processor time of the measured process.
type measurement struct {
	result
	cpu time.Duration
}

// perRequest returns the processor time of the measured process per request.
func (m *measurement) perRequest() time.Duration {
	if m.requests == 0 {
		return 0
	}
	return m.cpu / time.Duration(m.requests)
}

// contender is one of the servers that are compared.
type contender struct {
	name  string
	start func(dir string) (*process, error)
	load  func(p *process, connections int) (measurement, error)
}

// ingestSection compares durable ingest with the same handler without storage, with JetStream, and
// with the disk.
func ingestSection(ctx context.Context, o options, r *report) error {
	contenders := []contender{
		{"Mainstay edge, durable", func(dir string) (*process, error) { return startProduct(ctx, o, dir) },
			func(p *process, n int) (measurement, error) {
				s, err := p.enroll(ctx, "bench")
				if err != nil {
					return measurement{}, err
				}
				return eventLoad(ctx, o, p, n, s)
			}},
		{
			"(a) same handler, nothing stored",
			func(dir string) (*process, error) { return startReference(ctx, referenceStack, dir) },
			func(p *process, n int) (measurement, error) {
				return eventLoad(ctx, o, p, n, site{referenceSite, referenceToken})
			},
		},
		{
			"bare net/http, nothing stored",
			func(dir string) (*process, error) { return startReference(ctx, referenceBare, dir) },
			func(p *process, n int) (measurement, error) {
				return eventLoad(ctx, o, p, n, site{referenceSite, referenceToken})
			},
		},
		{
			"(b) NATS JetStream, SyncAlways",
			func(dir string) (*process, error) { return startReference(ctx, referenceNATS, dir) },
			func(p *process, n int) (measurement, error) { return natsLoad(ctx, o, p, n) },
		},
	}
	r.section("1. Durable ingest")
	r.say(
		"Events with 200 bytes of payload, one a request, over kept-alive connections; for JetStream one synchronous publish at a time and client. "+
			"Warm-up %s, then %s; median of %d interleaved rounds. CPU/req is that of the measured process.\n",
		o.warmup,
		o.duration,
		o.rounds,
	)
	for _, connections := range []int{64, 256} {
		medians := make([]measurement, len(contenders))
		var disk []float64
		rounds := make([][]measurement, len(contenders))
		for round := range o.rounds {
			for i, c := range contenders {
				progress("ingest: %d connections, round %d of %d, %s", connections, round+1, o.rounds, c.name)
				m, err := c.measure(o, connections)
				if err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
				rounds[i] = append(rounds[i], m)
			}
			rate, err := diskRate(o)
			if err != nil {
				return err
			}
			disk = append(disk, rate)
		}
		for i, ms := range rounds {
			slices.SortFunc(ms, func(a, b measurement) int { return int(a.rate() - b.rate()) })
			medians[i] = ms[len(ms)/2]
		}
		slices.Sort(disk)
		r.ingest(connections, contenders, medians, rounds, disk)
	}
	return nil
}

// measure runs one contender on a new folder.
func (c contender) measure(o options, connections int) (_ measurement, err error) {
	dir, err := os.MkdirTemp(o.dir, "ingest-")
	if err != nil {
		return measurement{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	p, err := c.start(dir)
	if err != nil {
		return measurement{}, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	return c.load(p, connections)
}

func eventLoad(ctx context.Context, o options, p *process, connections int, s site) (measurement, error) {
	var before time.Duration
	l := load{addr: p.addr, connections: connections, want: 202, warmup: o.warmup, duration: o.duration,
		started: func() { before = p.cpu() },
		request: func(int) request { return post(p.addr, eventsPath, s.token, eventBody(s.id)) }}
	res, err := l.run(ctx)
	return measurement{res, p.cpu() - before}, err
}

// diskRate returns how often per second 4 KiB can be appended and synced.
func diskRate(o options) (float64, error) {
	f, err := os.Create(filepath.Join(o.dir, "disk"))
	if err != nil {
		return 0, err
	}
	defer func() { _, _ = f.Close(), os.Remove(f.Name()) }()
	block := make([]byte, 4<<10)
	n, begin := 0, time.Now()
	for ; time.Since(begin) < o.duration/4; n++ {
		if _, err := f.Write(block); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
	}
	return float64(n) / time.Since(begin).Seconds(), nil
}

func (r *report) ingest(
	connections int, contenders []contender, medians []measurement, rounds [][]measurement, disk []float64,
) {
	r.say("### %d connections\n", connections)
	var rows [][]string
	for i, m := range medians {
		low, high := rounds[i][0], rounds[i][len(rounds[i])-1]
		rows = append(rows, []string{
			contenders[i].name, fmt.Sprintf("%.0f", m.rate()), fmt.Sprintf("%.0f-%.0f", low.rate(), high.rate()),
			ms(m.quantile(.5)), ms(m.quantile(.99)), fmt.Sprintf("%.1f us", float64(m.perRequest())/1e3),
			fmt.Sprint(m.errors), ratio(medians[0].rate(), m.rate()),
		})
	}
	fsync := disk[len(disk)/2]
	rows = append(rows, []string{
		"(c) append 4 KiB + fsync, one writer", fmt.Sprintf("%.0f", fsync),
		fmt.Sprintf("%.0f-%.0f", disk[0], disk[len(disk)-1]), ms(time.Duration(float64(time.Second) / fsync)), "-",
		"-", "0", ratio(medians[0].rate(), fsync),
	})
	r.table([]string{"What", "events/s", "range", "p50", "p99", "CPU/req", "errors", "Mainstay is x times"}, rows)
	if connections == 256 {
		r.say(
			"Aims: at least 0.6 of (a): **%s**; at least 10 times (b): **%s**.\n",
			ratio(medians[0].rate(), medians[1].rate()), ratio(medians[0].rate(), medians[3].rate()),
		)
	}
}
