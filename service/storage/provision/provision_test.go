package provision_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	kitjobs "github.com/mainstay-infra/mainstay/kit/jobs"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/record"
	"github.com/mainstay-infra/mainstay/service/storage/state"
)

func TestTheWholeLifeOfAVolume(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		v, j, err := g.volumes.Create(g.admin, record.VolumeRequest{Name: "data", Size: 8 * mib, Owner: record.Owner{Product: "vm"}})
		if err != nil || v.State != state.Creating || j.ResourceID != v.ID || j.Kind != record.JobCreateVolume {
			t.Fatalf("%+v, %+v, %v", v, j, err)
		}
		g.done(j)
		v = g.volume(v.ID)
		if v.State != state.Available || v.Kind != driver.Block || v.Size != 8*mib || v.Health != driver.Healthy ||
			!v.Enforced || v.Owner.V.Product != "vm" {
			t.Errorf("%+v", v)
		}
		g.write(v, "first")
		v, j, err = g.volumes.Expand(g.admin, v.ID, record.JobExpandVolume, 16*mib)
		if err != nil || v.State != state.Expanding || v.Size != 16*mib {
			t.Fatalf("%+v, %v", v, err)
		}
		g.done(j)
		if v = g.volume(v.ID); v.State != state.Available || v.Size != 16*mib {
			t.Errorf("%+v", v)
		}
		sn, j, err := g.volumes.Snapshot(g.admin, record.SnapshotRequest{Volume: v.ID, Kind: record.JobSnapshot, Name: "before"})
		if err != nil {
			t.Fatal(err)
		}
		g.done(j)
		if sn, err = g.store.Snapshot(g.admin, sn.ID); err != nil || sn.State != state.SnapshotReady || sn.Size != 16*mib ||
			sn.Consistency == "" || sn.ReadyAt.IsZero() {
			t.Errorf("%+v, %v", sn, err)
		}
		g.write(v, "second")
		clone, j, err := g.volumes.Clone(g.admin, sn.ID, record.CloneRequest{Kind: record.JobClone, Name: "copy"})
		if err != nil {
			t.Fatal(err)
		}
		g.done(j)
		g.holds(g.volume(clone.ID), "first")
		g.holds(v, "second")
		if _, _, err := g.volumes.Delete(g.admin, v.ID, record.Deletion{Kind: record.JobDeleteVolume}); !fault.Is(err, fault.Conflict) {
			t.Errorf("a volume with snapshots: %v", err)
		}
		if _, _, err := g.volumes.DeleteSnapshot(g.admin, sn.ID, record.JobDeleteSnapshot, false); !fault.Is(err, fault.Conflict) {
			t.Errorf("a snapshot with clones: %v", err)
		}
		if _, j, err = g.volumes.DeleteSnapshot(g.admin, sn.ID, record.JobDeleteSnapshot, true); err != nil {
			t.Fatal(err)
		}
		g.done(j)
		g.holds(g.volume(clone.ID), "first")
		if _, j, err = g.volumes.Delete(g.admin, v.ID, record.Deletion{Kind: record.JobDeleteVolume}); err != nil {
			t.Fatal(err)
		}
		g.done(j)
		if _, err := g.store.Volume(g.admin, v.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("after its deletion: %v", err)
		}
		if _, err := os.Stat(g.data(v)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("its data: %v", err)
		}
	})
}

func TestARepeatedRequestMakesOneVolume(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		req := record.VolumeRequest{Name: "data", Size: 8 * mib}
		v, first, err := g.volumes.Create(g.admin, req)
		if err != nil {
			t.Fatal(err)
		}
		again, j, err := g.volumes.Create(g.admin, req)
		if err != nil || again.ID != v.ID || j.ID != first.ID {
			t.Errorf("%+v, %+v, %v", again, j, err)
		}
		g.done(first)
		// It is the size first asked for that counts.
		if _, j, err = g.volumes.Expand(g.admin, v.ID, record.JobExpandVolume, 16*mib); err != nil {
			t.Fatal(err)
		}
		g.done(j)
		if again, _, err = g.volumes.Create(g.admin, req); err != nil || again.ID != v.ID {
			t.Errorf("%+v, %v", again, err)
		}
		for _, other := range []record.VolumeRequest{
			{Name: "data", Size: 16 * mib}, {Name: "data", Size: 8 * mib, Policy: record.SharedPolicy},
		} {
			if _, _, err := g.volumes.Create(g.admin, other); !fault.Is(err, fault.Conflict) {
				t.Errorf("%+v: %v", other, err)
			}
		}
		// Its name is free once it is deleted.
		if _, j, err = g.volumes.Delete(g.admin, v.ID, record.Deletion{Kind: record.JobDeleteVolume}); err != nil {
			t.Fatal(err)
		}
		g.done(j)
		if again, _, err = g.volumes.Create(g.admin, record.VolumeRequest{Name: "data", Size: mib}); err != nil || again.ID == v.ID {
			t.Errorf("%+v, %v", again, err)
		}
	})
}

// Two replicas look at the same moment, and both find the name free.
func TestTheSameRequestAtOnceMakesOneVolume(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		const atOnce = 8
		ids, jobs, problems := make([]string, atOnce), make([]string, atOnce), make([]error, atOnce)
		var requests sync.WaitGroup
		start := make(chan struct{})
		for i := range atOnce {
			requests.Go(func() {
				<-start
				v, j, err := g.volumes.Create(g.admin, record.VolumeRequest{Name: "data", Size: mib, Kind: driver.Filesystem})
				ids[i], jobs[i], problems[i] = v.ID, j.ID, err
				if v.Kind != driver.Filesystem {
					t.Errorf("%+v", v)
				}
			})
		}
		close(start)
		requests.Wait()
		for i := range atOnce {
			if problems[i] != nil || ids[i] != ids[0] || jobs[i] != jobs[0] || ids[i] == "" {
				t.Errorf("%s by %s, not %s by %s: %v", ids[i], jobs[i], ids[0], jobs[0], problems[i])
			}
		}
	})
}

func TestWhatCannotBeMadeIsRefusedAndChangesNothing(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		v := g.made("data")
		for name, c := range map[string]struct {
			do   func() error
			kind fault.Kind
		}{
			"policy": {func() error {
				_, _, err := g.volumes.Create(g.admin, record.VolumeRequest{Name: "x", Size: mib, Policy: "none"})
				return err
			}, fault.Invalid},
			"tenant": {func() error {
				_, _, err := g.volumes.Create(g.admin, record.VolumeRequest{Name: "x", Size: mib, Tenant: "none"})
				return err
			}, fault.Invalid},
			"smaller": {func() error { _, _, err := g.volumes.Expand(g.admin, v.ID, record.JobExpandVolume, mib); return err }, fault.Invalid},
			"same":    {func() error { _, _, err := g.volumes.Expand(g.admin, v.ID, record.JobExpandVolume, 8*mib); return err }, fault.Invalid},
			"unknown": {func() error {
				_, _, err := g.volumes.Expand(g.admin, "none", record.JobExpandVolume, 16*mib)
				return err
			}, fault.NotFound},
			"cordoned": {func() error {
				if _, err := g.store.Cordon(g.admin, g.backend.ID, true); err != nil {
					return err
				}
				_, _, err := g.volumes.Create(g.admin, record.VolumeRequest{Name: "x", Size: mib})
				_, uncordon := g.store.Cordon(g.admin, g.backend.ID, false)
				return errors.Join(err, uncordon)
			}, fault.Unavailable},
		} {
			if err := c.do(); !fault.Is(err, c.kind) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if all, err := g.store.Volumes(g.admin, record.VolumeFilter{}, 10); err != nil || len(all) != 1 {
			t.Errorf("%+v, %v", all, err)
		}
		if found := g.discover(); found.Volumes != 1 {
			t.Errorf("%+v", found)
		}
	})
}

func TestQuotasHoldForRequestsAtOnce(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		limit, bytes, snapshots := int64(5), int64(24*mib), int64(1)
		if _, err := g.store.PutTenant(g.admin, record.Tenant{
			Name: "acme", MaxVolumes: &limit, MaxBytes: &bytes, MaxSnapshots: &snapshots,
		}); err != nil {
			t.Fatal(err)
		}
		var created atomic.Int64
		var asking sync.WaitGroup
		for i := range 8 {
			asking.Go(func() {
				_, j, err := g.volumes.Create(g.admin, record.VolumeRequest{
					Tenant: "acme", Name: "v" + strings.Repeat("i", i+1), Size: 8 * mib,
				})
				switch {
				case err == nil:
					created.Add(1)
					g.done(j)
				case !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "quota bytes of tenant acme"):
					t.Error(err)
				}
			})
		}
		asking.Wait()
		of, err := g.store.Tenant(g.admin, "acme")
		if err != nil || created.Load() != 3 || of.Used != (record.Use{Volumes: 3, Bytes: 24 * mib}) {
			t.Errorf("%d volumes, %+v, %v", created.Load(), of, err)
		}
		all, err := g.store.Volumes(as(t.Context(), caller.Viewer, "acme"), record.VolumeFilter{}, 10)
		if err != nil || len(all) != 3 || all[0].ID < all[2].ID {
			t.Fatalf("%d, %v", len(all), err)
		}
		if _, _, err := g.volumes.Expand(g.admin, all[0].ID, record.JobExpandVolume, 9*mib); !fault.Is(err, fault.Denied) {
			t.Errorf("an expansion: %v", err)
		}
		if _, j, err := g.volumes.Snapshot(g.admin, record.SnapshotRequest{Volume: all[0].ID, Kind: record.JobSnapshot, Name: "one"}); err != nil {
			t.Error(err)
		} else {
			g.done(j)
		}
		if _, _, err := g.volumes.Snapshot(g.admin, record.SnapshotRequest{Volume: all[0].ID, Kind: record.JobSnapshot, Name: "two"}); !fault.Is(err, fault.Denied) {
			t.Errorf("a second snapshot: %v", err)
		}
		if err := g.store.DeleteTenant(g.admin, "acme"); !fault.Is(err, fault.Conflict) {
			t.Errorf("a tenant with volumes was deleted: %v", err)
		}
	})
}

func TestTenantsSeeOnlyTheirOwn(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		for _, tenant := range []string{"acme", "beta"} {
			if _, err := g.store.PutTenant(g.admin, record.Tenant{Name: tenant}); err != nil {
				t.Fatal(err)
			}
		}
		acme, beta := as(t.Context(), caller.Admin, "acme"), as(t.Context(), caller.Admin, "beta")
		v, j, err := g.volumes.Create(acme, record.VolumeRequest{Tenant: "acme", Name: "data", Size: mib})
		if err != nil {
			t.Fatal(err)
		}
		g.done(j)
		sn, j2, err := g.volumes.Snapshot(acme, record.SnapshotRequest{Volume: v.ID, Kind: record.JobSnapshot, Name: "one"})
		if err != nil {
			t.Fatal(err)
		}
		g.done(j2)
		for name, err := range map[string]error{
			"volume":   second(g.store.Volume(beta, v.ID)),
			"snapshot": second(g.store.Snapshot(beta, sn.ID)),
			"job":      second(g.store.Job(beta, j.ID)),
			"tenant":   second(g.store.Tenant(beta, "acme")),
			"expand":   third(g.volumes.Expand(beta, v.ID, record.JobExpandVolume, 2*mib)),
			"delete":   third(g.volumes.Delete(beta, v.ID, record.Deletion{Kind: record.JobDeleteVolume})),
			"clone":    third(g.volumes.Clone(beta, sn.ID, record.CloneRequest{Kind: record.JobClone, Name: "stolen"})),
			"nobody":   second(g.store.Volume(t.Context(), v.ID)),
		} {
			if !fault.Is(err, fault.NotFound) {
				t.Errorf("%s: %v", name, err)
			}
		}
		volumes, err1 := g.store.Volumes(beta, record.VolumeFilter{}, 10)
		snapshots, err2 := g.store.Snapshots(beta, record.SnapshotFilter{}, 10)
		jobs, err3 := g.store.Jobs(beta, record.JobFilter{}, 10)
		tenants, err4 := g.store.Tenants(beta, "", 10)
		if errors.Join(err1, err2, err3, err4) != nil || len(volumes)+len(snapshots)+len(jobs) != 0 || len(tenants) != 1 {
			t.Errorf("%+v, %+v, %+v, %+v", volumes, snapshots, jobs, tenants)
		}
	})
}

func TestDiscoveryTakesInWhatIsThereAndMarksWhatVanished(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		v, other := g.made("data"), g.made("other")
		if err := errors.Join(
			os.Mkdir(filepath.Join(g.folder, "photos"), 0o700),
			os.Rename(filepath.Dir(g.data(v)), filepath.Join(g.folder, "aside")),
		); err != nil {
			t.Fatal(err)
		}
		found := g.discover()
		if found.Volumes != 3 || found.Missing != 1 || found.Pools != 1 || found.ClusterID == "" {
			t.Errorf("%+v", found)
		}
		all, err := g.store.Volumes(g.admin, record.VolumeFilter{State: string(state.Available)}, 10)
		if err != nil || len(all) != 3 {
			t.Fatalf("%+v, %v", all, err)
		}
		foreign := 0
		for _, v := range all {
			if !v.Foreign {
				continue
			}
			foreign++
			for _, err := range []error{
				third(g.volumes.Delete(g.admin, v.ID, record.Deletion{Kind: record.JobDeleteVolume})), third(g.volumes.Expand(g.admin, v.ID, record.JobExpandVolume, 1<<40)),
				third(g.volumes.Snapshot(g.admin, record.SnapshotRequest{Volume: v.ID, Kind: record.JobSnapshot, Name: "x"})),
			} {
				if !fault.Is(err, fault.Conflict) {
					t.Errorf("%s: %v", v.Name, err)
				}
			}
		}
		if foreign != 2 || g.volume(v.ID).State != state.Missing || g.volume(other.ID).State != state.Available {
			t.Errorf("%d foreign; %s, %s", foreign, g.volume(v.ID).State, g.volume(other.ID).State)
		}
		// It comes back.
		if err := os.Rename(filepath.Join(g.folder, "aside"), filepath.Dir(g.data(v))); err != nil {
			t.Fatal(err)
		}
		if g.discover(); g.volume(v.ID).State != state.Available {
			t.Errorf("%+v", g.volume(v.ID))
		}
	})
}

func TestAnotherStorageSystemInTheSamePlaceIsRefused(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		v := g.made("data")
		g.stop()
		if err := errors.Join(os.Rename(g.folder, g.folder+".old"), os.Mkdir(g.folder, 0o700)); err != nil {
			t.Fatal(err)
		}
		g.begin(slog.New(slog.DiscardHandler))
		if _, err := g.backends.Discover(g.admin, g.backend.ID); !fault.Is(err, fault.Conflict) {
			t.Errorf("%v", err)
		}
		_, j, err := g.volumes.Delete(g.admin, v.ID, record.Deletion{Kind: record.JobDeleteVolume})
		if err != nil {
			t.Fatal(err)
		}
		if j = g.ended(j); j.Job.State != kitjobs.Failed || !strings.Contains(j.Job.Error, "another storage system") {
			t.Errorf("%+v", j.Job)
		}
		if v = g.volume(v.ID); v.State != state.DeletionFailed {
			t.Errorf("%+v", v)
		}
	})
}

func TestTheKindIsThatOfTheRequestUnlessAPolicyIsNamed(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		for name, c := range map[string]struct {
			policy     string
			kind, want driver.Kind
		}{
			"a": {"", "", driver.Block},
			"b": {"", driver.Filesystem, driver.Filesystem},
			"c": {record.SharedPolicy, driver.Block, driver.Filesystem},
			"d": {record.DefaultPolicy, driver.Filesystem, driver.Block},
		} {
			v, j, err := g.volumes.Create(g.admin, record.VolumeRequest{Name: name, Size: mib, Policy: c.policy, Kind: c.kind})
			if err != nil {
				t.Fatal(err)
			}
			g.done(j)
			if v = g.volume(v.ID); v.Kind != c.want {
				t.Errorf("%s: %s, want %s", name, v.Kind, c.want)
			}
		}
		if _, _, err := g.volumes.Create(g.admin, record.VolumeRequest{Name: "e", Size: mib, Kind: driver.Object}); !fault.Is(
			err, fault.Invalid,
		) {
			t.Error(err)
		}
	})
}

func TestNothingIsChangedInAReadOnlyBackend(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		v := g.made("data")
		sn, j, err := g.volumes.Snapshot(g.admin, record.SnapshotRequest{Volume: v.ID, Kind: record.JobSnapshot, Name: "one"})
		if err != nil {
			t.Fatal(err)
		}
		g.done(j)
		if err := g.db.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "UPDATE backends SET mode = ?", record.ReadOnly)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		for name, err := range map[string]error{
			"create":          third(g.volumes.Create(g.admin, record.VolumeRequest{Name: "more", Size: mib})),
			"expand":          third(g.volumes.Expand(g.admin, v.ID, record.JobExpandVolume, 16*mib)),
			"delete":          third(g.volumes.Delete(g.admin, v.ID, record.Deletion{Kind: record.JobDeleteVolume})),
			"snapshot":        third(g.volumes.Snapshot(g.admin, record.SnapshotRequest{Volume: v.ID, Kind: record.JobSnapshot, Name: "two"})),
			"delete snapshot": third(g.volumes.DeleteSnapshot(g.admin, sn.ID, record.JobDeleteSnapshot, true)),
			"clone":           third(g.volumes.Clone(g.admin, sn.ID, record.CloneRequest{Kind: record.JobClone, Name: "copy"})),
		} {
			if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "read-only") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if g.volume(v.ID).State != state.Available {
			t.Errorf("%+v", g.volume(v.ID))
		}
	})
}
