package record

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/service/vm/billing/tariff"
)

// Kinds of tracks, which are what a VM is billed for.
const (
	trackRun  = "run"  // the VM's process runs: processors, memory, and what it sends
	trackDisk = "disk" // the VM exists
)

// track is a row of usage_tracks. At most the newest run of a VM goes on. An earlier one that is not
// final has ended unseen, and the daemon's event may still tell when.
type track struct {
	VM        string  `db:"vm_id"`
	Kind      string  `db:"kind"`
	StartedAt db.Time `db:"started_at"`
	ByEvent   bool    `db:"by_event"`
	Tenant    string  `db:"tenant"`
	To        db.Time `db:"to_at"`
	Final     bool    `db:"final"`
	Lost      bool    `db:"lost"` // final, but it goes on if the same run is seen again
	Counter   int64   `db:"counter"`
	CounterAt db.Time `db:"counter_at"`
}

// Usage is a segment as stored.
type Usage struct {
	VM        string  `db:"vm_id"`
	Kind      string  `db:"kind"`
	StartedAt db.Time `db:"started_at"` // of the track
	From      db.Time `db:"from_at"`
	To        db.Time `db:"to_at"`
	Name      string  `db:"vm_name"`
	Tenant    string  `db:"tenant"`
	CPUs      int64   `db:"cpus"`
	Memory    int64   `db:"memory"` // MiB
	Disk      int64   `db:"disk"`   // GiB
	Egress    int64   `db:"egress"` // bytes
	Price     int64   `db:"price_id"`
}

// Segment returns the segment without whose it is.
func (u *Usage) Segment() tariff.Segment {
	return tariff.Segment{
		From: u.From.UTC(), To: u.To.UTC(), Price: u.Price, CPUs: u.CPUs, Memory: u.Memory, Disk: u.Disk, Egress: u.Egress,
	}
}

func (t *track) usage(name string, s tariff.Segment) Usage {
	return Usage{
		t.VM, t.Kind, t.StartedAt, db.At(s.From), db.At(s.To), name, t.Tenant, s.CPUs, s.Memory, s.Disk, s.Egress, s.Price,
	}
}

// Sighting is what was seen of a VM at a time.
type Sighting struct {
	VM   string // its id
	At   time.Time
	Seen Seen
	// Sent is what the process had sent at SentAt, in bytes; it counts from 0 in each process. A zero
	// SentAt says that this is not known.
	Sent   int64
	SentAt time.Time
}

// HasProcess reports whether a VM in this state has a process, and so uses processors and memory. A
// paused VM keeps its memory.
func (s State) HasProcess() bool { return s == Running || s == Paused || s == Stopping }

// counting is a transaction that counts usage.
type counting struct {
	*db.Tx
	store  *Store
	prices []tariff.Price
}

// stored returns a time as the database has it.
func stored(t time.Time) time.Time { return t.Truncate(time.Microsecond) }

// count runs f in a transaction of its own turn.
func (s *Store) count(ctx context.Context, f func(tx *counting) error) error {
	return s.db.Update(ctx, func(tx *db.Tx) error { return s.countIn(ctx, tx, f) })
}

func (s *Store) countIn(ctx context.Context, tx *db.Tx, f func(tx *counting) error) error {
	if _, err := billingTurn(ctx, tx); err != nil {
		return err
	}
	prices, err := pricesIn(ctx, tx)
	if err != nil {
		return err
	}
	return f(&counting{tx, s, prices})
}

// Sighted counts the usage of VMs until they were seen. It leaves out VMs that are not this service's,
// and is idempotent: an earlier sighting adds nothing.
func (s *Store) Sighted(ctx context.Context, all []Sighting) error {
	return s.count(ctx, func(tx *counting) error {
		for i := range all {
			if err := tx.sighted(ctx, &all[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (tx *counting) sighted(ctx context.Context, seen *Sighting) error {
	var r VM
	err := tx.Get(ctx, &r, "SELECT * FROM vms WHERE id = ? AND deleted_at IS NULL", seen.VM)
	switch {
	case errors.Is(err, db.ErrNoRows):
		return nil
	case err != nil:
		return err
	case r.DriverID != seen.Seen.DriverID || r.Node != seen.Seen.Node:
		return nil
	}
	disk, err := tx.newest(ctx, r.ID, trackDisk, time.Time{})
	if err != nil {
		return err
	}
	if disk == nil {
		if disk, err = tx.begin(ctx, &r, trackDisk, seen.At, false); err != nil {
			return err
		}
	}
	size := tariff.Size{Disk: int64(cmp.Or(seen.Seen.Disk, r.Disk) + sizeOf(seen.Seen.Disks))}
	if err := tx.extend(ctx, &r, disk, seen.At, &size); err != nil {
		return err
	}
	run, err := tx.run(ctx, &r, seen)
	if err != nil || run == nil {
		return err
	}
	if err := tx.extend(ctx, &r, run, seen.At, processSize(seen.Seen)); err != nil {
		return err
	}
	return tx.sent(ctx, &r, run, seen)
}

// processSize returns the size of a VM's process, or nil if it is not known because a change waits for
// the next start.
func processSize(seen Seen) *tariff.Size {
	if seen.CPUs == 0 || seen.Memory == 0 {
		return nil
	}
	for _, field := range seen.Pending {
		if field == "cpus" || field == "memory" {
			return nil
		}
	}
	return &tariff.Size{CPUs: int64(seen.CPUs), Memory: int64(seen.Memory)}
}

// run returns the run in which a VM was seen, which it begins if it is new. It is nil if the VM does not
// run, or if what was seen is older than what is known.
func (tx *counting) run(ctx context.Context, r *VM, seen *Sighting) (*track, error) {
	if !seen.Seen.State.HasProcess() || seen.Seen.StartedAt.IsZero() {
		return nil, nil
	}
	started := stored(seen.Seen.StartedAt.Time)
	last, err := tx.newest(ctx, r.ID, trackRun, time.Time{})
	switch {
	case err != nil:
		return nil, err
	case last == nil || last.StartedAt.Before(started):
		return tx.begin(ctx, r, trackRun, started, false)
	case last.Lost && last.StartedAt.Equal(started):
		last.Final, last.Lost = false, false
	case last.Final || last.StartedAt.After(started) && !last.ByEvent:
		return nil, nil
	}
	return last, nil
}

// newest returns the newest track of a kind that began until a time, or nil. A zero time is no limit.
func (tx *counting) newest(ctx context.Context, vm, kind string, until time.Time) (*track, error) {
	condition, args := "vm_id = ? AND kind = ?", []any{vm, kind}
	if !until.IsZero() {
		condition, args = condition+" AND started_at <= ?", append(args, db.At(until))
	}
	var t track
	err := tx.Get(ctx, &t, "SELECT * FROM usage_tracks WHERE "+condition+" ORDER BY started_at DESC LIMIT 1", args...)
	if errors.Is(err, db.ErrNoRows) {
		return nil, nil
	}
	return &t, err
}

// begin begins a track, whose first segment has no length. It counts from its start, but neither from
// before the VM was made nor from before the end of the track before it: of two hosts' clocks, one may be
// wrong.
func (tx *counting) begin(ctx context.Context, r *VM, kind string, started time.Time, byEvent bool) (*track, error) {
	from := started
	if r.CreatedAt.After(from) {
		from = r.CreatedAt.Time
	}
	before, err := tx.newest(ctx, r.ID, kind, started)
	if err != nil {
		return nil, err
	}
	if before != nil && before.To.After(from) {
		from = before.To.Time
	}
	t := &track{
		VM: r.ID, Kind: kind, StartedAt: db.At(started), ByEvent: byEvent, Tenant: r.Tenant, To: db.At(from),
	}
	if err := tx.Insert(ctx, "usage_tracks", *t); err != nil {
		return nil, err
	}
	size := tariff.Size{CPUs: int64(r.CPUs), Memory: int64(r.Memory)}
	if kind == trackDisk {
		size = tariff.Size{Disk: int64(r.Disk + r.dataSize())}
	}
	first := tariff.Cut(t.To.Time, t.To.Time, size, tx.prices)[0]
	return t, tx.Insert(ctx, "usage_segments", t.usage(r.Name, first))
}

// last returns the last segment of a track. If it was removed for its age, that is one without length.
func (tx *counting) last(ctx context.Context, r *VM, t *track) (Usage, error) {
	var last Usage
	err := tx.Get(ctx, &last, `SELECT * FROM usage_segments WHERE vm_id = ? AND kind = ? AND started_at = ?
		ORDER BY from_at DESC LIMIT 1`, t.VM, t.Kind, t.StartedAt)
	if !errors.Is(err, db.ErrNoRows) {
		return last, err
	}
	size := tariff.Size{CPUs: int64(r.CPUs), Memory: int64(r.Memory)}
	if t.Kind == trackDisk {
		size = tariff.Size{Disk: int64(r.Disk + r.dataSize())}
	}
	last = t.usage(r.Name, tariff.Cut(t.To.Time, t.To.Time, size, tx.prices)[0])
	return last, tx.Insert(ctx, "usage_segments", last)
}

// extend counts a track until a time, at which it has a size; nil: the size is as before. A track that is
// counted until later, or final, stays as it is.
func (tx *counting) extend(ctx context.Context, r *VM, t *track, to time.Time, size *tariff.Size) error {
	to = stored(to)
	if t.Final || to.Before(t.To.Time) {
		return nil
	}
	last, err := tx.last(ctx, r, t)
	if err != nil {
		return err
	}
	before := last.Segment()
	if size == nil {
		same := before.Size()
		size = &same
	}
	grown, more := tariff.Extend(before, to, *size, tx.prices)
	if _, err := tx.Exec(ctx, `UPDATE usage_segments SET to_at = ?, cpus = ?, memory = ?, disk = ?, vm_name = ?
		WHERE vm_id = ? AND kind = ? AND started_at = ? AND from_at = ?`,
		db.At(grown.To), grown.CPUs, grown.Memory, grown.Disk, r.Name, t.VM, t.Kind, t.StartedAt, last.From); err != nil {
		return err
	}
	for _, s := range more {
		if err := tx.Insert(ctx, "usage_segments", t.usage(r.Name, s)); err != nil {
			return err
		}
	}
	t.To = db.At(to)
	return tx.save(ctx, t)
}

func (tx *counting) save(ctx context.Context, t *track) error {
	_, err := tx.Exec(ctx, `UPDATE usage_tracks SET to_at = ?, final = ?, lost = ?, counter = ?, counter_at = ?
		WHERE vm_id = ? AND kind = ? AND started_at = ?`,
		t.To, t.Final, t.Lost, t.Counter, t.CounterAt, t.VM, t.Kind, t.StartedAt)
	return err
}

// sent counts what the process of a run has sent since its counter was last read. A counter that is
// lower than before began anew.
func (tx *counting) sent(ctx context.Context, r *VM, t *track, seen *Sighting) error {
	if t.Final || seen.SentAt.IsZero() || !seen.SentAt.After(t.CounterAt.Time) {
		return nil
	}
	more := seen.Sent - t.Counter
	if more < 0 {
		more = seen.Sent
	}
	t.Counter, t.CounterAt = seen.Sent, db.At(seen.SentAt)
	if more > 0 {
		last, err := tx.last(ctx, r, t)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `UPDATE usage_segments SET egress = egress + ? WHERE vm_id = ? AND kind = ?
			AND started_at = ? AND from_at = ?`, more, t.VM, t.Kind, t.StartedAt, last.From); err != nil {
			return err
		}
	}
	return tx.save(ctx, t)
}

// countMade begins to count the disk of a VM that the daemon has made.
func (s *Store) countMade(ctx context.Context, tx *db.Tx, r *VM) error {
	return s.countIn(ctx, tx, func(tx *counting) error {
		disk, err := tx.newest(ctx, r.ID, trackDisk, time.Time{})
		if err != nil || disk != nil {
			return err
		}
		_, err = tx.begin(ctx, r, trackDisk, s.now(), false)
		return err
	})
}

// countDeleted ends all that is counted of a VM that is deleted.
func (s *Store) countDeleted(ctx context.Context, tx *db.Tx, r *VM) error {
	return s.countIn(ctx, tx, func(tx *counting) error {
		now := s.now()
		run, err := tx.run(ctx, r, &Sighting{VM: r.ID, At: now, Seen: Seen{State: r.State, StartedAt: r.StartedAt}})
		if err != nil {
			return err
		}
		var open []track
		if err := tx.Select(ctx, &open, `SELECT * FROM usage_tracks WHERE vm_id = ? AND NOT final
			ORDER BY started_at DESC`, r.ID); err != nil {
			return err
		}
		for i := range open {
			t := &open[i]
			goesOn := t.Kind == trackDisk && r.State != Missing
			if t.Kind == trackRun {
				goesOn = run != nil && run.StartedAt.Equal(t.StartedAt.Time)
			}
			if goesOn && !r.Unreachable {
				if err := tx.extend(ctx, r, t, now, nil); err != nil {
					return err
				}
			}
			t.Final = true
			if err := tx.save(ctx, t); err != nil {
				return err
			}
		}
		return nil
	})
}
