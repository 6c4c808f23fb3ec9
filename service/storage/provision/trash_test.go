package provision_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	kitjobs "github.com/mainstay-infra/mainstay/kit/jobs"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/directory"
	"github.com/mainstay-infra/mainstay/service/storage/record"
	"github.com/mainstay-infra/mainstay/service/storage/state"
)

// discarded moves a volume to the trash for an hour.
func (g *gateway) discarded(v record.Volume) record.Discarded {
	g.Helper()
	_, j, err := g.volumes.Delete(g.admin, v.ID, record.Deletion{Kind: record.JobDeleteVolume, Keep: time.Hour})
	if err != nil {
		g.Fatal(err)
	}
	g.done(j)
	all, err := g.store.Trash(g.admin, record.TrashFilter{}, "", 10)
	if err != nil || len(all) == 0 || all[0].ID != v.ID {
		g.Fatalf("%+v, %v", all, err)
	}
	return all[0]
}

// kept reports whether the folder of deleted volumes has one.
func (g *gateway) kept(v record.Volume) bool {
	_, err := os.Stat(filepath.Join(g.folder, "deleted", v.Native))
	return !errors.Is(err, os.ErrNotExist)
}

func (g *gateway) trash() []record.Discarded {
	g.Helper()
	all, err := g.store.Trash(g.admin, record.TrashFilter{}, "", 10)
	if err != nil {
		g.Fatal(err)
	}
	return all
}

func TestAVolumeComesBackFromTheTrashWithItsContentAndId(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		v := g.made("data")
		g.write(v, "kept")
		d := g.discarded(v)
		if d.State != state.Trashed || d.Name != "data" || d.DeletedBy != "ann" || d.Pool != directory.PoolName ||
			d.PurgeAt.Sub(d.DeletedAt.Time) != time.Hour || !g.kept(v) {
			t.Errorf("%+v", d)
		}
		if _, err := g.store.Volume(g.admin, v.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("in the trash: %v", err)
		}
		// Its name is free meanwhile, and then it needs another one.
		other := g.made("data")
		if _, _, err := g.volumes.Undelete(g.admin, v.ID, ""); !fault.Is(err, fault.Conflict) || fault.From(err).Field != "name" {
			t.Errorf("its name is taken: %v", err)
		}
		if _, _, err := g.volumes.Undelete(g.admin, v.ID, "Not a name"); !fault.Is(err, fault.Invalid) {
			t.Errorf("not a name: %v", err)
		}
		_, j, err := g.volumes.Undelete(g.admin, v.ID, "data-2")
		if err != nil {
			t.Fatal(err)
		}
		g.done(j)
		back := g.volume(v.ID)
		if back.State != state.Available || back.Name != "data-2" || back.Size != v.Size || !back.PurgeAt.IsZero() ||
			back.DeletedBy != "" || g.kept(v) {
			t.Errorf("%+v", back)
		}
		g.holds(back, "kept")
		if all := g.trash(); len(all) > 0 {
			t.Errorf("the trash has %+v", all)
		}
		if g.volume(other.ID).State != state.Available {
			t.Errorf("the other one: %+v", g.volume(other.ID))
		}
		if _, _, err := g.volumes.Undelete(g.admin, v.ID, ""); !fault.Is(err, fault.NotFound) {
			t.Errorf("a second time: %v", err)
		}
	})
}

func TestWhatWasInTheTrashForLongEnoughIsRemoved(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		old, young := g.made("old"), g.made("young")
		g.discarded(old)
		g.discarded(young)
		if err := g.volumes.EmptyTrash(t.Context()); err != nil {
			t.Fatal(err)
		}
		if all := g.trash(); len(all) != 2 || all[0].ID != young.ID {
			t.Fatalf("before their time: %+v", all)
		}
		if err := g.db.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "UPDATE volumes SET purge_at = ? WHERE id = ?", db.At(time.Now()), old.ID)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		// One that cannot be removed stays, says why, and is left alone for a while.
		broken := error(fault.New(fault.Unavailable, "the storage is away"))
		g.broken.Store(&broken)
		g.emptied(old)
		if all := g.trash(); len(all) != 2 || all[1].State != state.Trashed || all[1].LastError == "" || !g.kept(old) {
			t.Fatalf("%+v", all)
		}
		g.broken.Store(nil)
		if due, err := g.store.DueTrash(caller.ByItself(t.Context()), time.Minute); err != nil || len(due) > 0 {
			t.Errorf("due again at once: %+v, %v", due, err)
		}
		_, j, err := g.volumes.Purge(g.admin, old.ID)
		if err != nil {
			t.Fatal(err)
		}
		g.done(j)
		if all := g.trash(); len(all) != 1 || all[0].ID != young.ID || g.kept(old) || !g.kept(young) {
			t.Errorf("%+v", all)
		}
	})
}

// emptied empties the trash, and waits for the end of the job about a volume.
func (g *gateway) emptied(v record.Volume) {
	g.Helper()
	if err := g.volumes.EmptyTrash(g.Context()); err != nil {
		g.Fatal(err)
	}
	all, err := g.store.Jobs(g.admin, record.JobFilter{Kind: record.JobPurge, ResourceID: v.ID}, 1)
	if err != nil || len(all) != 1 {
		g.Fatalf("%+v, %v", all, err)
	}
	if j := g.ended(all[0]); j.Job.State != kitjobs.Failed {
		g.Fatalf("%+v", j)
	}
}

func TestTheTrashCountsForTheQuotaAndIsItsTenants(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		limit := int64(12 * mib)
		if _, err := g.store.PutTenant(g.admin, record.Tenant{Name: "acme", MaxBytes: &limit}); err != nil {
			t.Fatal(err)
		}
		acme, beta := as(t.Context(), caller.Admin, "acme"), as(t.Context(), caller.Admin, "beta")
		v, j, err := g.volumes.Create(acme, record.VolumeRequest{Tenant: "acme", Name: "data", Size: 8 * mib})
		if err != nil {
			t.Fatal(err)
		}
		g.done(j)
		g.discarded(v)
		again := record.VolumeRequest{Tenant: "acme", Name: "data", Size: 8 * mib}
		if _, _, err := g.volumes.Create(acme, again); !fault.Is(err, fault.Denied) {
			t.Errorf("beyond the quota: %v", err)
		}
		if err := g.store.DeleteTenant(g.admin, "acme"); !fault.Is(err, fault.Conflict) {
			t.Errorf("the tenant was deleted with its trash: %v", err)
		}
		for what, err := range map[string]error{
			"undelete": third(g.volumes.Undelete(beta, v.ID, "")), "purge": third(g.volumes.Purge(beta, v.ID)),
			"read": second(g.store.InTrash(beta, v.ID)),
		} {
			if !fault.Is(err, fault.NotFound) {
				t.Errorf("%s by another tenant: %v", what, err)
			}
		}
		if all, err := g.store.Trash(beta, record.TrashFilter{}, "", 10); err != nil || len(all) > 0 {
			t.Errorf("another tenant sees %+v, %v", all, err)
		}
		if _, j, err = g.volumes.Purge(acme, v.ID); err != nil {
			t.Fatal(err)
		}
		g.done(j)
		if _, j, err = g.volumes.Create(acme, again); err != nil {
			t.Fatal(err)
		}
		g.done(j)
	})
}

func TestOneActionAtATimeConcernsAVolumeInTheTrash(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		v := g.made("data")
		g.write(v, "kept")
		g.discarded(v)
		at := g.closed()
		_, j, err := g.volumes.Purge(g.admin, v.ID)
		if err != nil {
			t.Fatal(err)
		}
		<-at.entered
		if _, _, err := g.volumes.Undelete(g.admin, v.ID, ""); !fault.Is(err, fault.Conflict) {
			t.Errorf("while it is being removed: %v", err)
		}
		if _, err := g.jobs.Cancel(g.admin, j.ID); err != nil {
			t.Fatal(err)
		}
		g.ended(j)
		g.hold.Store(nil)
		if all := g.trash(); len(all) != 1 || all[0].State != state.Trashed || all[0].LastError == "" {
			t.Fatalf("%+v", all)
		}
		if _, j, err = g.volumes.Undelete(g.admin, v.ID, ""); err != nil {
			t.Fatal(err)
		}
		g.done(j)
		g.holds(g.volume(v.ID), "kept")
	})
}

func TestWhatALostJobHasLeftInTheTrashIsEnded(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		v := g.made("data")
		d := g.discarded(v)
		// As if the process had ended in the middle of bringing it back, too often.
		if err := g.db.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "UPDATE volumes SET state = ?, deleted_at = NULL WHERE id = ?", state.Restoring, v.ID)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if err := g.volumes.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		all := g.trash()
		if len(all) != 1 || all[0].State != state.Trashed || all[0].LastError == "" || all[0].PurgeAt != d.PurgeAt {
			t.Errorf("%+v", all)
		}
	})
}

func TestAVolumeThatWasNeverMadeDoesNotGoToTheTrash(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		broken := error(fault.New(fault.Unavailable, "the storage is away"))
		g.broken.Store(&broken)
		v, j, err := g.volumes.Create(g.admin, record.VolumeRequest{Name: "data", Size: mib, Kind: driver.Block})
		if err != nil {
			t.Fatal(err)
		}
		g.ended(j)
		g.broken.Store(nil)
		_, _, err = g.volumes.Delete(g.admin, v.ID, record.Deletion{Kind: record.JobDeleteVolume, Keep: time.Hour})
		if !fault.Is(err, fault.Conflict) {
			t.Errorf("%v", err)
		}
		if _, j, err = g.volumes.Delete(g.admin, v.ID, record.Deletion{Kind: record.JobDeleteVolume}); err != nil {
			t.Fatal(err)
		}
		g.done(j)
	})
}
