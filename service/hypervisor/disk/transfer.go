package disk

import (
	"context"
	"errors"
	"sort"
	"sync"
	"syscall"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/admission"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/life"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/nbd"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// A transfer lets a caller read a disk as of one moment, or write a new one:
//
//	OpenTransfer ──► open ──► FinishTransfer ──► over: the checkpoint, or the new disk, counts
//	                   │
//	                   └────► over: AbortTransfer, other work on the VM, or silence. Nothing changed.
//
// While it is open, a goroutine holds the VM's work lock, and gives way to everybody who waits for
// it. The process of the VM, or one that has the disk open, serves the data by NBD.

// Limits of transfers.
const (
	// MaxTransferPiece is the largest read or write, in bytes.
	MaxTransferPiece = 8 << 20
	// transferSilence is how long a transfer stays open without a request.
	transferSilence = 2 * time.Minute
	// transferMemory is how long a transfer that is over is remembered, to say why.
	transferMemory = 10 * time.Minute
	// transferConnections is how many requests of a transfer are served at once.
	transferConnections = 4
	// maxRanges is how many ranges a transfer reports. With more, neighbours become one.
	maxRanges = 1 << 18
	// maxConsumers is how many consumers have a checkpoint of a disk: each costs the guest memory and
	// time. One more takes the place of the one that was not renewed for the longest time.
	maxConsumers = 8
	// minScratch is the least room for what a guest overwrites while its disk is read; otherwise, it
	// is a quarter of the disk's size. In bytes.
	minScratch = 1 << 30
)

// Consistency of what a transfer reads.
const (
	ConsistencyCrash      = "crash"      // as a power failure would leave it
	ConsistencyFilesystem = "filesystem" // the guest's file systems were frozen
	ConsistencyStopped    = "stopped"    // the VM was stopped
)

// Transfer describes an open transfer.
type Transfer struct {
	ID, VM string
	Write  bool
	Size   int64 // of the disk, in bytes
	// Checkpoint names the moment of a read, for the next one; empty: none was asked for.
	Checkpoint string
	// Changed reports that the ranges are those that changed since the checkpoint that was given.
	Changed     bool
	Consistency string
}

// Range is a part of a disk, in bytes.
type Range struct{ Offset, Length int64 }

// TransferRequest describes a transfer to open.
type TransferRequest struct {
	Write    bool
	Consumer string // who reads, and has checkpoints of its own; empty: no checkpoint
	Since    string // a checkpoint of the consumer; empty: read everything
	Size     int64  // of the disk to write; 0: as large as the VM's
}

// transfer is a transfer that is open, or over.
type transfer struct {
	Transfer
	tenant string
	ranges []Range
	conns  chan *nbd.Conn // those that serve no request
	finish chan chan error
	over   chan struct{} // closed when it is over
	now    func() time.Time

	mu    sync.Mutex
	used  time.Time // of the last request
	ended time.Time
	cause error // why it is over
}

// transfers are the transfers of a Manager.
type transfers struct {
	mu   sync.Mutex
	byID map[string]*transfer
}

// Why transfers end that are not finished.
var (
	errAborted = fault.New(fault.Conflict, "it was aborted")
	errEnded   = fault.New(fault.Conflict, "the VM has ended")
	errSilent  = fault.New(fault.Conflict, "nobody has used it for %v", transferSilence)
)

// checkpointPrefix begins the names of the bitmaps of all consumers.
const checkpointPrefix = "read-"

// checkpointBitmap returns how the names of a consumer's bitmaps begin.
func checkpointBitmap(consumer string) string { return checkpointPrefix + consumer + "-" }

// OpenTransfer opens a transfer of a VM's disk.
func (w *Manager) OpenTransfer(ctx context.Context, id string, q TransferRequest) (Transfer, error) {
	r, err := w.store.VM(ctx, id)
	if err != nil {
		return Transfer{}, err
	}
	if _, err := w.diskKeeper(&r); err != nil {
		return Transfer{}, err
	}
	t := &transfer{
		Transfer: Transfer{ID: record.NewID(), VM: id, Write: q.Write},
		tenant:   r.Tenant,
		finish:   make(chan chan error),
		over:     make(chan struct{}),
		conns:    make(chan *nbd.Conn, transferConnections),
		now:      w.now,
		used:     w.now(),
	}
	check, work := machine.Any, w.readable
	if q.Write {
		if q.Consumer != "" || q.Since != "" {
			return Transfer{}, fault.InvalidField("consumer", "a transfer that writes has none, and no since")
		}
		if limit := int64(w.policy.MaxDiskGiB) * record.GiB; limit > 0 && q.Size > limit {
			return Transfer{}, admission.RefuseField("policy.max_disk_gib", "size_bytes",
				"a disk may have %d bytes; the limit is policy.max_disk_gib", limit)
		}
		check, work = w.replaceableDisk, w.writable
	}
	if q.Since != "" && q.Consumer == "" {
		return Transfer{}, fault.InvalidField("since", "a checkpoint belongs to a consumer; give that too")
	}
	entry := audit.Entry{Action: "vm.transfer", Target: id, Tenant: r.Tenant, Message: r.Name}
	if err := w.store.Note(ctx, entry); err != nil {
		return Transfer{}, err
	}
	// The transfer outlives the request, unless that ends before it is open.
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(w.machines.Ending(), cancel)
	early := context.AfterFunc(ctx, cancel)
	ready := make(chan error, 1)
	err = w.machines.WithInBackground(background, id, "disk transfer", check,
		func(ctx context.Context, m *machine.Machine, r record.VM) error {
			ctx, done := m.Yielding(ctx)
			defer done()
			return work(ctx, m, &r, t, q, func() { ready <- nil })
		},
		func(err error) {
			cancel()
			t.end(err)
			select {
			case ready <- err:
			default: // it was ready
			}
		})
	if err == nil {
		err = <-ready
	}
	if err == nil && !early() {
		err = ctx.Err() // the request ended at the last moment, and the transfer with it
	}
	if err != nil {
		cancel()
		return Transfer{}, err
	}
	w.transfers.add(t)
	return t.Transfer, nil
}

func (s *transfers) add(t *transfer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID == nil {
		s.byID = map[string]*transfer{}
	}
	for id, old := range s.byID {
		if old.forgotten() {
			delete(s.byID, id)
		}
	}
	s.byID[t.ID] = t
}

func (t *transfer) forgotten() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.ended.IsZero() && t.now().Sub(t.ended) > transferMemory
}

func (t *transfer) end(cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cause, t.ended, t.ranges = cause, t.now(), nil
	close(t.over)
}

// transfer returns an open transfer that the caller may use, and counts that as a use.
func (w *Manager) transfer(ctx context.Context, id string) (*transfer, error) {
	w.transfers.mu.Lock()
	t := w.transfers.byID[id]
	w.transfers.mu.Unlock()
	if t == nil || !caller.From(ctx).Sees(t.tenant) {
		return nil, fault.New(fault.NotFound, "there is no such transfer")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended.IsZero() {
		return nil, t.isOver(t.cause)
	}
	t.used = t.now()
	return t, nil
}

func (t *transfer) isOver(cause error) error {
	why := "it was finished"
	if cause != nil {
		why = fault.From(cause).Message
	}
	return fault.Wrap(fault.Conflict, cause, "the transfer is over: %s", why).WithCode("transfer_over")
}

// Transfer returns an open transfer.
func (w *Manager) Transfer(ctx context.Context, id string) (Transfer, error) {
	t, err := w.transfer(ctx, id)
	if err != nil {
		return Transfer{}, err
	}
	return t.Transfer, nil
}

// TransferRanges returns at most limit ranges that begin at a byte or later.
func (w *Manager) TransferRanges(ctx context.Context, id string, from int64, limit int) ([]Range, error) {
	t, err := w.transfer(ctx, id)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	first := sort.Search(len(t.ranges), func(i int) bool { return t.ranges[i].Offset >= from })
	return t.ranges[first:min(first+limit, len(t.ranges))], nil
}

// ReadTransfer reads into p what is at an offset.
func (w *Manager) ReadTransfer(ctx context.Context, id string, p []byte, offset int64) error {
	return w.onTransfer(ctx, id, int64(len(p)), offset, func(ctx context.Context, c *nbd.Conn) error {
		return c.ReadAt(ctx, p, offset)
	})
}

// WriteTransfer writes p at an offset.
func (w *Manager) WriteTransfer(ctx context.Context, id string, p []byte, offset int64) error {
	return w.onTransfer(ctx, id, int64(len(p)), offset, func(ctx context.Context, c *nbd.Conn) error {
		return c.WriteAt(ctx, p, offset)
	})
}

func (w *Manager) onTransfer(
	ctx context.Context, id string, length, offset int64, do func(context.Context, *nbd.Conn) error,
) error {
	t, err := w.transfer(ctx, id)
	if err != nil {
		return err
	}
	if offset < 0 || offset > t.Size || length > t.Size-offset {
		return fault.InvalidField("offset", "%d bytes at %d are outside of the disk, which has %d", length, offset, t.Size)
	}
	select {
	case c := <-t.conns:
		defer func() { t.conns <- c }()
		// A request that its caller gives up is carried out, for breaking it would cost the connection.
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), transferSilence)
		defer cancel()
		if err := do(limited, c); err != nil {
			return w.transferFailed(t, err)
		}
		return nil
	case <-t.over:
		return t.isOver(t.cause)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// transferFailed returns the fault of a read or write that QEMU did not carry out.
func (w *Manager) transferFailed(t *transfer, err error) error {
	if t.Write {
		if errors.Is(err, syscall.ENOSPC) {
			return fault.Wrap(fault.StorageFailed, err, "the host's storage is full; free some room")
		}
		return fault.Wrap(fault.Conflict, err, "the disk cannot be written: %s", life.FirstLine(err.Error())).WithCode("transfer_failed")
	}
	return fault.Wrap(fault.Conflict, err, "the disk cannot be read any more: the VM has ended, or has overwritten "+
		"more of its disk meanwhile than there is room to save").WithCode("transfer_failed")
}

// FinishTransfer ends a transfer whose data has arrived.
func (w *Manager) FinishTransfer(ctx context.Context, id string) (Transfer, error) {
	t, err := w.transfer(ctx, id)
	if err != nil {
		return Transfer{}, err
	}
	result := make(chan error, 1)
	select {
	case t.finish <- result:
	case <-t.over:
		return Transfer{}, t.isOver(t.cause)
	case <-ctx.Done():
		return Transfer{}, ctx.Err()
	}
	// What was begun is carried out, whether or not the caller waits for it.
	<-t.over
	return t.Transfer, <-result
}

// AbortTransfer ends a transfer as if it had never been.
func (w *Manager) AbortTransfer(ctx context.Context, id string) error {
	t, err := w.transfer(ctx, id)
	if fault.Is(err, fault.Conflict) {
		return nil // it is over
	}
	if err != nil {
		return err
	}
	entry := audit.Entry{Action: "vm.transfer.abort", Target: t.VM, Tenant: t.tenant}
	if err := w.store.Note(ctx, entry); err != nil {
		return err
	}
	select {
	case t.finish <- nil:
	case <-t.over:
	case <-ctx.Done():
		return ctx.Err()
	}
	<-t.over
	return nil
}

// wait serves a transfer until it is over. It calls finish if it was finished, and returns why it
// is over otherwise.
func (t *transfer) wait(ctx context.Context, finish func(context.Context) error) error {
	ticker := time.NewTicker(transferSilence / 8)
	defer ticker.Stop()
	for {
		select {
		case result := <-t.finish:
			if result == nil {
				return errAborted
			}
			err := finish(context.WithoutCancel(ctx))
			result <- err
			return err
		case <-ctx.Done():
			if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
				return err
			}
			return machine.ErrEnding
		case <-ticker.C:
			t.mu.Lock()
			silent := t.now().Sub(t.used) > transferSilence
			t.mu.Unlock()
			if silent {
				return errSilent
			}
		}
	}
}

// hangUp closes the connections. Requests that are under way end with errors.
func (t *transfer) hangUp(all []*nbd.Conn) {
	for _, c := range all {
		_ = c.Close() // what was written was flushed
	}
}

// dial connects to an export.
func (t *transfer) dial(ctx context.Context, e backend.Export) (all []*nbd.Conn, err error) {
	for range transferConnections {
		c, err := openNBD(ctx, e, "")
		if err != nil {
			t.hangUp(all)
			return nil, err
		}
		all = append(all, c)
		t.conns <- c
	}
	return all, nil
}

func openNBD(ctx context.Context, e backend.Export, metaContext string) (*nbd.Conn, error) {
	conn, err := e.Dial(ctx)
	if err != nil {
		return nil, err
	}
	return nbd.Open(ctx, conn, e.Name, metaContext)
}
