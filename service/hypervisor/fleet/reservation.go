package fleet

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/placement"
)

// bookkeeping is the timeout for database changes that no caller waits for.
const bookkeeping = 10 * time.Second

// ledger is the registry's in-memory state of a node.
type ledger struct {
	heard    bool  // since the registry started
	sequence int64 // that the last heartbeat taken in was answered with
	reserved map[*reservation]struct{}
}

// reservation is capacity on a node for a VM that its heartbeats may not count yet.
type reservation struct {
	node string
	size placement.Resources
	vm   string // its id, once known
	// Once its create has ended, a reservation is counted by heartbeats that answer a later
	// sequence than this one and, if the outcome is unknown, arrive at keep or later.
	ended    bool
	sequence int64
	keep     time.Time
}

// split returns the reservations that a heartbeat is certain to count, and the sum of the others.
func (l *ledger) split(after int64, now time.Time) (counted []*reservation, left placement.Resources) {
	for one := range l.reserved {
		if l.heard && one.ended && after > one.sequence && !now.Before(one.keep) {
			counted = append(counted, one)
			continue
		}
		left.VCPUs += one.size.VCPUs
		left.MemoryMiB += one.size.MemoryMiB
	}
	return counted, left
}

// request is a VM to find a node for.
type request struct {
	placement.Request
	node    string   // empty: any
	avoided []string // nodes that were tried
}

// reserve finds a node and subtracts the VM's resources from its capacity. If there is not enough
// only because of VMs that are being created or perhaps counted twice, it waits, up to
// Config.Patience.
func (r *Registry) reserve(ctx context.Context, req *request) (*reservation, nodeRow, error) {
	timer := time.NewTimer(r.cfg.Patience)
	defer timer.Stop()
	for {
		one, node, changed, err := r.tryReserve(ctx, req)
		if err == nil || changed == nil {
			return one, node, err
		}
		select {
		case <-changed:
		case <-timer.C:
			return nil, nodeRow{}, fault.From(err).WithRetryAfter(r.cfg.Interval)
		case <-ctx.Done():
			return nil, nodeRow{}, ctx.Err()
		}
	}
}

// tryReserve is reserve without waiting. With an error it may return a channel that is closed when
// capacity may have become free.
func (r *Registry) tryReserve(ctx context.Context, req *request) (*reservation, nodeRow, <-chan struct{}, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var chosen nodeRow
	hope := false
	err := r.cfg.DB.Update(ctx, func(tx *db.Tx) error {
		rows, err := nodeRows(ctx, tx, tx.ForUpdate())
		if err != nil {
			return err
		}
		if chosen, err = r.choose(rows, req); err != nil {
			hope = r.hope(rows, req)
			return err
		}
		return addRoom(ctx, tx, chosen.Name, -1, req.Resources)
	})
	switch {
	case err != nil && hope:
		return nil, nodeRow{}, r.changed, err
	case err != nil:
		return nil, nodeRow{}, nil, err
	}
	l := r.ledgers[chosen.Name]
	if l == nil { // not heard since the registry started
		l = &ledger{sequence: r.cfg.Now().UnixMicro(), reserved: map[*reservation]struct{}{}}
		r.ledgers[chosen.Name] = l
	}
	one := &reservation{node: chosen.Name, size: req.Resources}
	l.reserved[one] = struct{}{}
	return one, chosen, nil, nil
}

// choose returns the node for a VM: the requested one, or the best.
func (r *Registry) choose(rows []nodeRow, req *request) (nodeRow, error) {
	name := req.node
	if name == "" {
		var err error
		if name, err = placement.Choose(r.candidates(rows, req, false), req.Request); err != nil {
			return nodeRow{}, err
		}
	}
	i := slices.IndexFunc(rows, func(n nodeRow) bool { return n.Name == name })
	if i < 0 {
		return nodeRow{}, noSuchNode(name)
	}
	if !r.healthy(&rows[i]) {
		return nodeRow{}, unreachable(name, r.silent(&rows[i]), nil)
	}
	return rows[i], nil
}

// hope reports whether there would be enough capacity without the reservations.
func (r *Registry) hope(rows []nodeRow, req *request) bool {
	if req.node != "" {
		return false
	}
	_, err := placement.Choose(r.candidates(rows, req, true), req.Request)
	return err == nil
}

// candidates returns the nodes that were not tried yet. With unreserved, reservations are added
// back to their free capacity.
func (r *Registry) candidates(rows []nodeRow, req *request, unreserved bool) []placement.Node {
	var nodes []placement.Node
	for i := range rows {
		n := &rows[i]
		if slices.Contains(req.avoided, n.Name) {
			continue
		}
		c := placement.Node{
			Name: n.Name, Healthy: r.healthy(n), Cordoned: n.Cordoned, Labels: n.Labels.V,
			Total: placement.Resources{VCPUs: n.VCPUs, MemoryMiB: n.MemoryMiB},
			Free:  placement.Resources{VCPUs: n.FreeVCPUs, MemoryMiB: n.FreeMemoryMiB},
		}
		for _, b := range n.Backends.V {
			c.Backends = append(c.Backends, string(b))
		}
		if l := r.ledgers[n.Name]; unreserved && l != nil {
			for one := range l.reserved {
				c.Free.VCPUs += one.size.VCPUs
				c.Free.MemoryMiB += one.size.MemoryMiB
			}
		}
		nodes = append(nodes, c)
	}
	return nodes
}

// settle records that a create has ended: with a VM or, if vm is empty, with an unknown outcome.
func (r *Registry) settle(one *reservation, vm string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.ledgers[one.node]; l != nil {
		one.ended, one.sequence, one.vm = true, l.sequence, vm
	}
	if vm == "" {
		one.keep = r.cfg.Now().Add(doubt)
	}
}

// release returns the capacity of a VM that was not created or no longer exists.
func (r *Registry) release(ctx context.Context, one *reservation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.releaseLocked(ctx, one)
}

// releaseVM returns the capacity that is reserved for a VM, if any.
func (r *Registry) releaseVM(ctx context.Context, node, vm string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.ledgers[node]
	if l == nil {
		return
	}
	for one := range l.reserved {
		if one.vm == vm {
			r.releaseLocked(ctx, one)
		}
	}
}

func (r *Registry) releaseLocked(ctx context.Context, one *reservation) {
	l := r.ledgers[one.node]
	if l == nil {
		return
	}
	if _, there := l.reserved[one]; !there {
		return // the node was deregistered since
	}
	delete(l.reserved, one)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	err := r.cfg.DB.Update(ctx, func(tx *db.Tx) error { return addRoom(ctx, tx, one.node, 1, one.size) })
	if err != nil {
		// The next heartbeat corrects it.
		r.cfg.Log.Error("room on a node was not given back", "node", one.node, "error", err)
	}
	r.wakeLocked()
}

// wake makes creates that wait for capacity try again.
func (r *Registry) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wakeLocked()
}

func (r *Registry) wakeLocked() {
	close(r.changed)
	r.changed = make(chan struct{})
}

func noSuchNode(name string) error {
	return fault.InvalidField("node", "there is no node %.64q", name)
}

// unknownNode turns a missing node that a request names into a fault for the field node.
func unknownNode(err error, name string) error {
	if errors.Is(err, db.ErrNoRows) {
		return noSuchNode(name)
	}
	return err
}
