package kubetest

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/kit/kube"
)

// Provisioner is the name of the driver that CSI plays, unless a test chooses another one.
const Provisioner = "csi.mainstay.test"

// CSI plays the external provisioner, resizer and snapshotter of a CSI driver: what they do is real for the API server,
// the controllers of the cluster and its users. The content of a volume or snapshot is a file.
//
//   - A claim of one of its storage classes gets a volume at once (Immediate), with the content of its data source.
//   - A claim that asks for more gets it: first its volume, then itself.
//   - A VolumeSnapshot gets a VolumeSnapshotContent, and is ready then.
//   - What is deleted goes with its content if the policy of its class is Delete. Finalizers keep it until then.
//
// It acts on what is there, not on what has changed, so that it can stop and go on at any moment.
type CSI struct {
	cluster  *Cluster
	driver   string
	dir      string
	clients  struct{ provisioner, resizer, snapshotter, finalizers *kube.Client }
	changed  chan struct{}
	mu       sync.Mutex // of what follows
	behavior Behavior
	seen     seen
}

// Behavior is how CSI deviates from what it should do.
type Behavior struct {
	Stopped bool          // it does nothing
	Failure string        // what it says of everything that it does not do
	Slow    time.Duration // it does everything only after this time
	Waits   bool          // volumes for files grow for good when a pod uses them (FileSystemResizePending)
}

// seen are the objects of the cluster, as the API server told them last.
type seen struct {
	claims    map[string]*Claim // by namespace/name, as all of them
	volumes   map[string]*Volume
	classes   map[string]*Class
	ofSnaps   map[string]*SnapshotClass
	snapshots map[string]*Snapshot
	contents  map[string]*SnapshotContent
}

// StartCSI starts the controllers of a driver, which end with the test.
func StartCSI(t testing.TB, c *Cluster, driver string) *CSI {
	t.Helper()
	s := &CSI{cluster: c, driver: driver, dir: t.TempDir(), changed: make(chan struct{}, 1)}
	s.seen = seen{
		map[string]*Claim{}, map[string]*Volume{}, map[string]*Class{}, map[string]*SnapshotClass{},
		map[string]*Snapshot{}, map[string]*SnapshotContent{},
	}
	// Each is a program of its own in a real cluster, and manages fields of its own.
	for name, client := range map[string]**kube.Client{
		"provisioner": &s.clients.provisioner, "resizer": &s.clients.resizer, "snapshotter": &s.clients.snapshotter,
		"finalizers": &s.clients.finalizers,
	} {
		var err error
		if *client, err = kube.Open(kube.Config{Kubeconfig: c.Kubeconfig, UserAgent: "csi-" + name, QPS: 400}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	running.Go(func() { follow(ctx, s, kube.PersistentVolumeClaims, s.seen.claims) })
	running.Go(func() { follow(ctx, s, kube.PersistentVolumes, s.seen.volumes) })
	running.Go(func() { follow(ctx, s, kube.StorageClasses, s.seen.classes) })
	running.Go(func() { follow(ctx, s, kube.VolumeSnapshotClasses, s.seen.ofSnaps) })
	running.Go(func() { follow(ctx, s, kube.VolumeSnapshots, s.seen.snapshots) })
	running.Go(func() { follow(ctx, s, kube.VolumeSnapshotContents, s.seen.contents) })
	running.Go(func() { s.work(ctx) })
	return s
}

// Behave changes how it behaves from now on.
func (s *CSI) Behave(b Behavior) {
	s.mu.Lock()
	s.behavior = b
	s.mu.Unlock()
	s.nudge()
}

// AddClass makes a storage class of the driver, after change, with room for 1 TiB, and one for snapshots of the same
// name. Classes belong to no namespace, so each has a name of its own.
func (s *CSI) AddClass(t testing.TB, change func(*Class)) string {
	t.Helper()
	c := &Class{
		Meta: kube.Meta{Name: "class-" + uuid.NewString()[:8]}, Provisioner: s.driver, ReclaimPolicy: "Delete",
		VolumeBindingMode: "Immediate", AllowVolumeExpansion: true,
	}
	if change != nil {
		change(c)
	}
	Create(t, s.cluster, kube.StorageClasses, "", c)
	Create(t, s.cluster, kube.VolumeSnapshotClasses, "", &SnapshotClass{
		Meta: kube.Meta{Name: c.Meta.Name}, Driver: s.driver, DeletionPolicy: "Delete",
	})
	Create(t, s.cluster, kube.CSIStorageCapacities, "kube-system", &Capacity{
		Meta: kube.Meta{Name: c.Meta.Name}, StorageClassName: c.Meta.Name, Capacity: "1Ti",
	})
	return c.Meta.Name
}

// Content returns the path of the file that holds the content of a claim.
func (s *CSI) Content(t testing.TB, namespace, claim string) string {
	t.Helper()
	c := Get[Claim](t, s.cluster, kube.PersistentVolumeClaims, namespace, claim)
	return s.path(Get[Volume](t, s.cluster, kube.PersistentVolumes, "", c.Spec.VolumeName).Spec.CSI.VolumeHandle)
}

// Handles returns the names of the files of all volumes and snapshots.
func (s *CSI) Handles(t testing.TB) []string {
	t.Helper()
	paths, err := filepath.Glob(s.path("*"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range paths {
		paths[i] = filepath.Base(paths[i])
	}
	return paths
}

func (s *CSI) path(handle string) string { return filepath.Join(s.dir, handle) }

func (s *CSI) nudge() {
	select {
	case s.changed <- struct{}{}:
	default: // it knows already
	}
}

// object is what all kinds have.
type object interface{ meta() *kube.Meta }

func (o *Claim) meta() *kube.Meta           { return &o.Meta }
func (o *Volume) meta() *kube.Meta          { return &o.Meta }
func (o *Class) meta() *kube.Meta           { return &o.Meta }
func (o *SnapshotClass) meta() *kube.Meta   { return &o.Meta }
func (o *Snapshot) meta() *kube.Meta        { return &o.Meta }
func (o *SnapshotContent) meta() *kube.Meta { return &o.Meta }

// follow keeps what is seen of a kind like what there is, until ctx ends.
func follow[T any, P interface {
	*T
	object
}](ctx context.Context, s *CSI, r kube.Resource, into map[string]P) {
	for ctx.Err() == nil {
		_ = kube.Watch(ctx, s.cluster.Client, r, "", kube.Query{}, func(now *T, gone bool) error { // again, if it fails
			m := P(now).meta()
			s.mu.Lock()
			if gone {
				delete(into, m.Namespace+"/"+m.Name)
			} else {
				into[m.Namespace+"/"+m.Name] = now
			}
			s.mu.Unlock()
			s.nudge()
			return nil
		})
	}
}

// again is when something is tried again that did not work.
const again = 100 * time.Millisecond

// work does what is to be done, until ctx ends.
func (s *CSI) work(ctx context.Context) {
	for ctx.Err() == nil {
		s.mu.Lock()
		b := s.behavior
		now := seen{
			maps.Clone(s.seen.claims), maps.Clone(s.seen.volumes), maps.Clone(s.seen.classes), maps.Clone(s.seen.ofSnaps),
			maps.Clone(s.seen.snapshots), maps.Clone(s.seen.contents),
		}
		s.mu.Unlock()
		var err error
		if !b.Stopped {
			p := pass{CSI: s, Behavior: b, seen: now}
			err = p.all(ctx)
		}
		retry := (<-chan time.Time)(nil)
		if err != nil {
			retry = time.After(again)
		}
		select {
		case <-ctx.Done():
		case <-s.changed:
		case <-retry:
		}
	}
}

// pass goes once through all that there is.
type pass struct {
	*CSI
	Behavior
	seen
}

func (p *pass) all(ctx context.Context) (err error) {
	for _, c := range sorted(p.claims) {
		err = errors.Join(err, p.claim(ctx, c))
	}
	for _, v := range sorted(p.volumes) {
		err = errors.Join(err, p.released(ctx, v))
	}
	for _, s := range sorted(p.snapshots) {
		err = errors.Join(err, p.snapshot(ctx, s))
	}
	for _, c := range sorted(p.contents) {
		err = errors.Join(err, p.content(ctx, c))
	}
	return err
}

func sorted[T any](all map[string]T) []T {
	out := make([]T, 0, len(all))
	for _, key := range slices.Sorted(maps.Keys(all)) {
		out = append(out, all[key])
	}
	return out
}
