package record

import (
	"context"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/series"
)

// KeepUsage is how long the usage of VMs is kept.
const KeepUsage = 7 * 24 * time.Hour

// UsageSample is what a VM used between two readings of its counters.
type UsageSample struct {
	VM               string
	At               time.Time     // of the later reading
	Measured         time.Duration // between the readings; more than zero
	CPU              time.Duration // of all processors together
	MemoryBytes      int64         // resident at the later reading
	DiskReadBytes    int64
	DiskWrittenBytes int64
	NetReceivedBytes int64
	NetSentBytes     int64
}

// UsageStep is what a VM used in one step of a history: sums over its samples.
type UsageStep struct {
	At               db.Time `db:"minute"` // when the step begins
	Samples          int64   `db:"samples"`
	MeasuredUS       int64   `db:"measured_us"`
	CPUUS            int64   `db:"cpu_us"`
	MemoryBytes      int64   `db:"memory_bytes"` // the sum of what the samples found
	DiskReadBytes    int64   `db:"disk_read_bytes"`
	DiskWrittenBytes int64   `db:"disk_written_bytes"`
	NetReceivedBytes int64   `db:"net_received_bytes"`
	NetSentBytes     int64   `db:"net_sent_bytes"`
}

var usageMinutes = series.NewTable(series.Table{
	Name: "vm_minutes", Key: []string{"vm_id"},
	Sums: []string{
		"samples", "measured_us", "cpu_us", "memory_bytes", "disk_read_bytes", "disk_written_bytes",
		"net_received_bytes", "net_sent_bytes",
	},
})

// AddUsage adds samples to the minutes of their VMs, in one transaction. It leaves out those of VMs
// that are gone.
func (s *Store) AddUsage(ctx context.Context, samples []UsageSample) error {
	if len(samples) == 0 {
		return nil
	}
	return s.db.Update(ctx, func(tx *db.Tx) error {
		var ids []string
		if err := tx.Select(ctx, &ids, "SELECT id FROM vms"); err != nil {
			return err
		}
		there := make(map[string]bool, len(ids))
		for _, id := range ids {
			there[id] = true
		}
		for _, u := range samples {
			if !there[u.VM] {
				continue
			}
			if err := usageMinutes.Add(
				ctx, tx, u.At, u.VM, 1, u.Measured.Microseconds(), u.CPU.Microseconds(), u.MemoryBytes,
				u.DiskReadBytes, u.DiskWrittenBytes, u.NetReceivedBytes, u.NetSentBytes,
			); err != nil {
				return err
			}
		}
		return nil
	})
}

// UsageHistory returns the steps of a window in which a VM's usage was measured, in order of time.
// The VM must be in the caller's scope.
func (s *Store) UsageHistory(ctx context.Context, id string, w series.Window) ([]UsageStep, error) {
	if _, err := s.VM(ctx, id); err != nil {
		return nil, err
	}
	var steps []UsageStep
	err := usageMinutes.Read(
		ctx, s.db, &steps, w, "vm_id = ? AND minute >= ?", id, db.At(s.now().Add(-KeepUsage)),
	)
	return steps, err
}

// forgetUsage removes what was measured of a VM, page by page: of a week there are ten thousand rows,
// and others wait while they are deleted.
func (s *Store) forgetUsage(ctx context.Context, id string) error {
	const page = 1000
	_, err := s.db.DeletePages(
		ctx, page,
		"DELETE FROM vm_minutes WHERE (vm_id, minute) IN (SELECT vm_id, minute FROM vm_minutes WHERE vm_id = ? LIMIT ?)", id,
	)
	return err
}

// ExpireUsage removes what was measured longer than KeepUsage ago.
func (s *Store) ExpireUsage(ctx context.Context) error {
	return usageMinutes.DeleteBefore(ctx, s.db, s.now().Add(-KeepUsage))
}
