package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// heartbeatSection measures the cost of a large fleet of idle sites. Each has its own connection,
// as agents do, and sends one heartbeat per interval.
func heartbeatSection(ctx context.Context, o options, r *report) (err error) {
	sites, interval, rounds := 10_000, 30*time.Second, 2
	if o.quick {
		sites, interval = 500, 3*time.Second
	}
	if limit := int(fileLimit()) - 200; sites > limit {
		sites = limit
	}
	dir := filepath.Join(o.dir, "heartbeat")
	progress("heartbeats: %d sites", sites)
	all, err := seedSites(ctx, dir, sites)
	if err != nil {
		return err
	}
	p, err := startProduct(ctx, o, dir, "--max-in-flight=4096", "--max-connections-per-address=100000")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	before := p.memory("VmRSS")
	conns := make([]*conn, sites)
	defer func() {
		for _, c := range conns {
			if c != nil {
				c.close()
			}
		}
	}()
	var rows [][]string
	for round := range rounds {
		progress("heartbeats: round %d", round+1)
		cpu := p.cpu()
		res := beat(ctx, p, all, conns, interval)
		if res.requests == 0 {
			return fmt.Errorf("no heartbeat succeeded: %s", res.firstErr)
		}
		what := "every site's next heartbeat"
		if round == 0 {
			what = "connect and first heartbeat of every site"
		}
		cpu = p.cpu() - cpu
		rows = append(rows, []string{
			what,
			fmt.Sprintf("%.0f", res.rate()),
			ms(res.quantile(.5)),
			ms(res.quantile(.99)),
			fmt.Sprint(res.errors),
			fmt.Sprintf("%.2f s (%.1f %% of a core)", cpu.Seconds(), 100*cpu.Seconds()/res.elapsed.Seconds()),
			mib(before),
			mib(p.memory("VmRSS")),
		})
		before = p.memory("VmRSS")
	}
	r.section("5. Heartbeats")
	r.say("%d sites, each with its own kept-alive connection, each beating every %s.\n", sites, interval)
	r.table(
		[]string{"What", "heartbeats/s", "p50", "p99", "errors", "CPU of the server", "RSS before", "RSS after"}, rows,
	)
	return ctx.Err()
}

// beat sends one heartbeat for every site, evenly spread over the interval.
func beat(ctx context.Context, p *process, sites []site, conns []*conn, interval time.Duration) result {
	var (
		mu  sync.Mutex
		res result
		wg  sync.WaitGroup
	)
	begin := time.Now()
	for i, s := range sites {
		time.Sleep(time.Until(begin.Add(interval * time.Duration(i) / time.Duration(len(sites)))))
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			took, status, err := beatOnce(p, s, &conns[i])
			mu.Lock()
			defer mu.Unlock()
			if err == nil && status == 200 {
				res.requests++
				res.latencies = append(res.latencies, took)
				return
			}
			res.errors++
			res.firstErr = fmt.Sprintf("status %d, error %v", status, err)
		})
	}
	wg.Wait()
	res.elapsed = time.Since(begin)
	slices.Sort(res.latencies)
	if res.errors > 0 {
		progress("  %d errors, one of them: %s", res.errors, res.firstErr)
	}
	return res
}

func beatOnce(p *process, s site, c **conn) (time.Duration, int, error) {
	begin := time.Now()
	if *c == nil {
		fresh, err := dial(p.addr)
		if err != nil {
			return 0, 0, err
		}
		*c = fresh
	}
	req := post(p.addr, "/api/v1/heartbeat", s.token, "{}")
	status, err := (*c).roundTrip(req.bytes)
	return time.Since(begin), status, err
}
