//go:build linux && ceph

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// hang measures the calls about one cluster while another one hangs: its processes are stopped, and it is asked for
// something all the time.
func hang(ctx context.Context, b *bench) error {
	sick, err := b.cluster(ctx, "two")
	if err != nil {
		return err
	}
	defer sick.Kill()
	g, err := b.start(ctx, "hang", b.lab, sick)
	if err != nil {
		return err
	}
	defer g.stop()
	for _, name := range []string{b.lab.Name, sick.Name} {
		image := object{"name": "hang", "pool": "rbd", "size_bytes": 1 << 30}
		if _, err := g.job("POST", "/rbd-images?cluster="+name, image); err != nil {
			return err
		}
	}
	ask := func(cluster string) error {
		return g.call("GET", "/rbd-images/rbd/hang/snapshots?cluster="+cluster, nil, nil)
	}
	measure := func() (times, error) {
		t, err := each(400*b.rounds, func(int) error { return ask(b.lab.Name) })
		if err != nil {
			return nil, err
		}
		return t[0], nil
	}
	before, err := measure()
	if err != nil {
		return err
	}
	for _, d := range sick.Daemons() {
		if !strings.HasPrefix(d.Name, "osd") && !strings.HasPrefix(d.Name, "mon") {
			continue
		}
		for _, pid := range sick.PIDs(d) {
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				return err
			}
			defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }()
		}
	}
	asking, stop := context.WithCancel(ctx)
	defer stop()
	var work sync.WaitGroup
	var refused atomic.Int64
	for range 8 {
		work.Go(func() {
			for asking.Err() == nil {
				if ask(sick.Name) != nil {
					refused.Add(1)
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	slowest, err := took(func() error { _ = ask(sick.Name); return nil })
	if err != nil {
		return err
	}
	during, err := measure()
	stop()
	work.Wait()
	if err != nil {
		return err
	}
	if refused.Load() == 0 {
		return fmt.Errorf("the cluster that hangs has answered")
	}
	fmt.Printf("%-46s %10s, p99 %s; while another cluster hangs %s, p99 %s: %.2f times\n", "calls about a healthy cluster",
		ms(before.at(.5)), ms(before.at(.99)), ms(during.at(.5)), ms(during.at(.99)),
		float64(during.at(.99))/float64(before.at(.99)))
	fmt.Printf("%-46s %10s, longest of the healthy one %s\n", "a call about the one that hangs ends after", ms(slowest), ms(slices.Max(during)))
	return nil
}
