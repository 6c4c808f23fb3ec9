//go:build linux

package datapath

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/lb/maglev"
)

// newTable is a hash table that has not been written to the kernel yet.
type newTable struct {
	vip    *knownVIP
	shares []share
	table  *ebpf.Map
	err    error
}

// retable replaces the hash tables of VIPs whose healthy backends, or their weights, have changed.
// The table of a VIP without healthy backends has no backend in any slot.
func (d *Datapath) retable(vips []VIP) error {
	var tables []newTable
	for i := range vips {
		known := d.known.vips[vips[i].String()]
		shares := sharesOf(&vips[i], known)
		if !known.tabled || !slices.Equal(shares, known.table) {
			tables = append(tables, newTable{vip: known, shares: shares})
		}
	}
	if len(tables) == 0 {
		return nil
	}
	defer func() {
		for _, t := range tables {
			if t.table != nil {
				_ = t.table.Close() // the kernel keeps the tables in use
			}
		}
	}()
	d.fillAll(tables)
	ids, files := make([]uint32, len(tables)), make([]uint32, len(tables))
	for i, t := range tables {
		if t.err != nil {
			return fmt.Errorf("make a hash table: %w", t.err)
		}
		ids[i], files[i] = t.vip.id, uint32(t.table.FD()) //nolint:gosec // it is not negative
	}
	if _, err := d.objects.Tables.BatchUpdate(ids, files, nil); err != nil {
		return fmt.Errorf("replace %d hash tables: %w", len(ids), err)
	}
	for _, t := range tables {
		t.vip.table, t.vip.tabled = t.shares, true
	}
	return nil
}

// sharesOf returns the backends that take new flows.
func sharesOf(v *VIP, known *knownVIP) []share {
	shares := make([]share, 0, len(v.Backends))
	for _, b := range v.Backends {
		if b.State == Healthy {
			shares = append(shares, share{place: known.members[b.BackendKey], weight: b.Weight, key: b.BackendKey})
		}
	}
	return shares
}

var errNotFilled = errors.New("working it out broke; see the log")

// fillAll builds tables on all CPUs. Each takes a few milliseconds.
func (d *Datapath) fillAll(tables []newTable) {
	var next atomic.Int32
	var work sync.WaitGroup
	for i := range tables {
		tables[i].err = errNotFilled // until it is filled
	}
	for range min(runtime.GOMAXPROCS(0), len(tables)) {
		work.Go(func() {
			_ = routine.Run(d.log, "hash tables", func() { // logged
				for i := int(next.Add(1)) - 1; i < len(tables); i = int(next.Add(1)) - 1 {
					tables[i].table, tables[i].err = d.fill(tables[i].shares)
				}
			})
		})
	}
	work.Wait()
}

func (d *Datapath) fill(shares []share) (*ebpf.Map, error) {
	backends := make([]maglev.Backend, len(shares))
	for i, s := range shares {
		backends[i] = maglev.Backend{Name: s.key.String(), Weight: int(s.weight)}
	}
	content := make([]uint16, maglev.Slots+1)
	for slot, b := range maglev.Table(backends) {
		content[slot] = shares[b].place
	}
	table, err := ebpf.NewMap(d.table)
	if err != nil {
		return nil, err
	}
	if err := table.Put(uint32(0), content); err != nil {
		return nil, errors.Join(err, table.Close())
	}
	return table, nil
}

// dropTables replaces the tables of these VIPs by one empty table that they share. The kernel can
// replace many tables at once, but delete only one at a time.
func (d *Datapath) dropTables(ids []uint32) error {
	if len(ids) == 0 {
		return nil
	}
	empty, err := d.fill(nil)
	if err != nil {
		return err
	}
	defer empty.Close()
	_, err = d.objects.Tables.BatchUpdate(
		ids, slices.Repeat([]uint32{uint32(empty.FD())}, len(ids)), nil,
	) //nolint:gosec // it is not negative
	return err
}
