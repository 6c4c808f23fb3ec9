package provision_test

import (
	"log/slog"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	kitjobs "github.com/mainstay-infra/mainstay/kit/jobs"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/directory"
	"github.com/mainstay-infra/mainstay/service/storage/record"
	"github.com/mainstay-infra/mainstay/service/storage/state"
)

func TestAFailureIsToldAndTheNextAttemptMakesTheVolume(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		why := error(fault.New(fault.StorageFailed, "the storage is full"))
		g.broken.Store(&why)
		req := record.VolumeRequest{Name: "data", Size: 8 * mib}
		v, j, err := g.volumes.Create(g.admin, req)
		if err != nil {
			t.Fatal(err)
		}
		if j = g.ended(j); j.Job.State != kitjobs.Failed || j.Job.Error != "the storage is full" || j.Job.ErrorCode != "storage_failed" {
			t.Errorf("%+v", j.Job)
		}
		if v = g.volume(v.ID); v.State != state.Failed || v.LastError != "the storage is full" {
			t.Errorf("%+v", v)
		}
		g.broken.Store(nil)
		// The same name takes another size now: there is no such volume yet.
		req.Size = 16 * mib
		again, j, err := g.volumes.Create(g.admin, req)
		if err != nil || again.ID == v.ID {
			t.Fatalf("%+v, %v", again, err)
		}
		g.done(j)
		if _, err := g.store.Volume(g.admin, v.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("the failed one: %v", err)
		}
		g.broken.Store(&why)
		if _, j, err = g.volumes.Expand(g.admin, again.ID, record.JobExpandVolume, 32*mib); err != nil {
			t.Fatal(err)
		}
		g.ended(j)
		if v = g.volume(again.ID); v.State != state.GrowthFailed || v.Size != 16*mib {
			t.Errorf("%+v", v)
		}
		if _, j, err = g.volumes.Delete(g.admin, again.ID, record.Deletion{Kind: record.JobDeleteVolume}); err != nil {
			t.Fatal(err)
		}
		g.ended(j)
		if v = g.volume(again.ID); v.State != state.DeletionFailed {
			t.Errorf("%+v", v)
		}
		// What is refused has changed nothing.
		g.broken.Store(nil)
		other := g.made("other")
		refusal := error(fault.New(fault.Conflict, "clients have it open"))
		g.broken.Store(&refusal)
		if _, j, err = g.volumes.Delete(g.admin, other.ID, record.Deletion{Kind: record.JobDeleteVolume}); err != nil {
			t.Fatal(err)
		}
		g.ended(j)
		if other = g.volume(other.ID); other.State != state.Available || other.LastError != "clients have it open" {
			t.Errorf("%+v", other)
		}
		g.broken.Store(nil)
		if _, j, err = g.volumes.Delete(g.admin, again.ID, record.Deletion{Kind: record.JobDeleteVolume}); err != nil {
			t.Fatal(err)
		}
		g.done(j)
	})
}

func TestACancelledJobLeavesNothing(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		at := g.closed()
		v, j, err := g.volumes.Create(g.admin, record.VolumeRequest{Name: "data", Size: 8 * mib})
		if err != nil {
			t.Fatal(err)
		}
		<-at.entered
		g.hold.Store(nil) // for the calls that come after this one
		if _, err := g.jobs.Cancel(g.admin, j.ID); err != nil {
			t.Fatal(err)
		}
		if j = g.ended(j); j.Job.State != kitjobs.Cancelled {
			t.Errorf("%+v", j.Job)
		}
		if v = g.volume(v.ID); v.State != state.Failed || v.LastError != "the job was cancelled" {
			t.Errorf("%+v", v)
		}
		if found := g.discover(); found.Volumes != 0 {
			t.Errorf("%+v", found)
		}
	})
}

// A job that the end of the process interrupts does not fail: it continues afterwards.
func TestAJobThatTheEndOfTheProcessInterruptsGoesOn(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		v := g.made("data")
		g.write(v, "content")
		log := slog.New(slog.DiscardHandler)
		at := g.closed()
		// The gateway's own runner takes the job; it waits in the driver until it is stopped.
		sn, j, err := g.volumes.Snapshot(g.admin, record.SnapshotRequest{Volume: v.ID, Kind: record.JobSnapshot, Name: "one"})
		if err != nil {
			t.Fatal(err)
		}
		<-at.entered
		g.stop()
		if sn, err = g.store.Snapshot(g.admin, sn.ID); err != nil || sn.State != state.SnapshotCreating {
			t.Errorf("%+v, %v", sn, err)
		}
		g.hold.Store(nil)
		g.begin(log)
		g.done(j)
		if sn, err = g.store.Snapshot(g.admin, sn.ID); err != nil || sn.State != state.SnapshotReady {
			t.Errorf("%+v, %v", sn, err)
		}
	})
}

// A run that was paused, and overtaken by another one, comes to its end after that one.
func TestARunThatWasOvertakenChangesNothing(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		v := g.made("data")
		why := fault.New(fault.Unavailable, "the storage has not answered")
		own := caller.ByItself(t.Context())
		if err := g.store.EndVolume(own, record.VolumeArgs{ID: v.ID}, state.Create, nil, why); err != nil {
			t.Fatal(err)
		}
		if now := g.volume(v.ID); now.State != state.Available || now.LastError != "" || now.UpdatedAt != v.UpdatedAt {
			t.Errorf("%+v", now)
		}
		g.write(v, "kept")
		_, j, err := g.volumes.Delete(g.admin, v.ID, record.Deletion{Kind: record.JobDeleteVolume})
		if err != nil {
			t.Fatal(err)
		}
		g.done(j)
		if err := g.store.EndVolume(own, record.VolumeArgs{ID: v.ID}, state.Delete, nil, why); err != nil {
			t.Error(err)
		}
		if _, err := g.store.Volume(g.admin, v.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("a deleted volume is back: %v", err)
		}
	})
}

// What has failed in one replica may have been made by another one meanwhile.
func TestAJobThatFailsRemovesNothing(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		at := g.closed()
		v, j, err := g.volumes.Create(g.admin, record.VolumeRequest{Name: "data", Size: 8 * mib})
		if err != nil {
			t.Fatal(err)
		}
		<-at.entered
		other, err := directory.Open(g.folder, "")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = other.Close() }()
		name := driver.Name{Pool: directory.PoolName, Native: v.Native}
		if _, err := other.CreateVolume(t.Context(), driver.VolumeSpec{Name: name, Kind: driver.Block, Size: 8 * mib}); err != nil {
			t.Fatal(err)
		}
		g.write(v, "precious")
		g.hold.Store(nil)
		at.fail = fault.New(fault.Unavailable, "the storage has not answered")
		close(at.open)
		if j = g.ended(j); j.Job.State != kitjobs.Failed {
			t.Errorf("%+v", j.Job)
		}
		g.holds(v, "precious")
	})
}

func TestARequestThatIsRepeatedLongAfterGetsAJobThatSucceeds(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		v := g.made("data")
		g.write(v, "kept")
		if err := g.db.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "DELETE FROM operations")
			return err
		}); err != nil {
			t.Fatal(err)
		}
		again, j, err := g.volumes.Create(g.admin, record.VolumeRequest{Name: "data", Size: 8 * mib})
		if err != nil || again.ID != v.ID || j.ID == "" {
			t.Fatalf("%+v, %+v, %v", again, j, err)
		}
		g.done(j)
		g.holds(v, "kept")
	})
}

func TestWhatALostJobHasLeftIsEnded(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		v := g.made("data")
		if err := g.db.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "UPDATE volumes SET state = ? WHERE id = ?", state.Expanding, v.ID)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if err := g.volumes.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if v = g.volume(v.ID); v.State != state.GrowthFailed || v.LastError == "" {
			t.Errorf("%+v", v)
		}
	})
}
