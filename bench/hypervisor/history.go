//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// histories measures how long it takes to store the usage of VMs as the daemon does while they run,
// and to read it.
func histories(ctx context.Context, b *bench) error {
	const vms = 100
	d, err := b.start(ctx, "history")
	if err != nil {
		return err
	}
	kill := func() { _ = d.cmd.Process.Kill(); _ = d.cmd.Wait() }
	var ids []string
	for i := range vms {
		var made struct{ ID string }
		vm := object{"name": fmt.Sprintf("vm-%d", i), "memory_mib": 64, "kernel": "/proc/version", "network": object{"mode": "none"}}
		if err := d.call("POST", "/v1/vms", vm, &made); err != nil {
			kill()
			return err
		}
		ids = append(ids, made.ID)
	}
	kill()
	file := filepath.Join(d.data, "state", "hypervisor.db")
	writes, err := writeUsage(ctx, file, ids)
	if err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	fmt.Printf(
		"%-44s %.2f ms, at most %.2f ms; %d MiB with %d minutes\n", fmt.Sprintf("store a sample of %d VMs", vms),
		middle(writes).Seconds()*1000, slices.Max(writes).Seconds()*1000, info.Size()>>20, len(writes),
	)
	if d, err = b.start(ctx, "history"); err != nil {
		return err
	}
	defer func() { _ = d.cmd.Process.Kill(); _ = d.cmd.Wait() }()
	for _, span := range []time.Duration{time.Hour, 24 * time.Hour, record.KeepUsage} {
		var reads []time.Duration
		for _, id := range ids {
			began := time.Now()
			query := url.Values{"since": {began.Add(-span).UTC().Format(time.RFC3339)}, "points": {"200"}}
			if err := d.call("GET", "/v1/vms/"+id+"/history?"+query.Encode(), nil, nil); err != nil {
				return err
			}
			reads = append(reads, time.Since(began))
		}
		fmt.Printf(
			"%-44s %.2f ms, at most %.2f ms\n", fmt.Sprintf("history of a VM over %s, %d points", span, 200),
			middle(reads).Seconds()*1000, slices.Max(reads).Seconds()*1000,
		)
	}
	return nil
}

// writeUsage stores samples of every minute of a week into the database of a stopped daemon, and
// returns how long each minute took.
func writeUsage(ctx context.Context, file string, ids []string) (took []time.Duration, err error) {
	database, err := db.Open(ctx, db.Config{Path: file, CacheKiB: 16 << 10})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, database.Close()) }()
	now := time.Now()
	store := record.New(record.Config{DB: database, Now: func() time.Time { return now }})
	samples := make([]record.UsageSample, len(ids))
	for at := now.Add(-record.KeepUsage); at.Before(now); at = at.Add(time.Minute) {
		for i, id := range ids {
			samples[i] = record.UsageSample{
				VM: id, At: at, Measured: 10 * time.Second, CPU: time.Second, MemoryBytes: 1 << 30, DiskReadBytes: 1e6,
			}
		}
		began := time.Now()
		if err := store.AddUsage(ctx, samples); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}
