package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/kube"
	"github.com/mainstay-infra/mainstay/kit/kubetest"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/kubernetes"
)

// spec describes a new block volume of 8 MiB.
func (l *lab) spec() driver.VolumeSpec {
	return driver.VolumeSpec{
		Name: driver.Name{Pool: l.class, Native: driver.VolumeName(uuid.NewString())}, Kind: driver.Block, Size: 8 * mib,
	}
}

func (l *lab) make(d *kubernetes.Driver) driver.Volume {
	l.Helper()
	v, err := d.CreateVolume(l.Context(), l.spec())
	if err != nil {
		l.Fatal(err)
	}
	return v
}

func (l *lab) claim(name string) *kubetest.Claim {
	l.Helper()
	return kubetest.Get[kubetest.Claim](l, l.cluster, kube.PersistentVolumeClaims, l.namespace, name)
}

// delete deletes an object as a person does.
func (l *lab) delete(r kube.Resource, namespace, name string) {
	l.Helper()
	uid := kubetest.Get[kubetest.Object](l, l.cluster, r, namespace, name).Meta.UID
	if err := kube.Delete(l.Context(), l.cluster.Client, r, namespace, name, uid); err != nil {
		l.Fatal(err)
	}
}

func quiet(float64) {}

// why ends calls that are to end without success.
var why = fault.New(fault.Unavailable, "the time is up")

// soon bounds a call that waits for something that does not come.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, why)
	t.Cleanup(cancel)
	return ctx
}

// endedWhen makes a call, and ends it when something has happened.
func endedWhen(t *testing.T, happened func(), call func(ctx context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- call(ctx) }()
	happened()
	cancel(why)
	return <-ended
}

// warned waits until the cluster has warned about a claim.
func (l *lab) warned(claim string) {
	l.Helper()
	found := errors.New("found")
	err := kube.Watch(l.Context(), l.cluster.Client, kube.Events, l.namespace, kube.Query{
		Fields: "involvedObject.name=" + claim + ",reason=ProvisioningFailed",
	}, func(*kubetest.Event, bool) error { return found })
	if !errors.Is(err, found) {
		l.Error(err)
	}
}

func TestACallWhoseTimeRunsOutIsFinishedByTheNext(t *testing.T) {
	t.Parallel()
	l := newLab(t, kubetest.Shared(t))
	d, spec := l.open(), l.spec()
	l.csi.Behave(kubetest.Behavior{Failure: "no room at 10.1.2.3"})
	err := endedWhen(t, func() { l.warned(spec.Native) }, func(ctx context.Context) error {
		_, err := d.CreateVolume(ctx, spec)
		return err
	})
	if f := fault.From(err); f.Kind != fault.Unavailable || f.Message != why.Message || !strings.Contains(err.Error(), "no room") {
		t.Errorf("%v", err)
	}
	uid := l.claim(spec.Native).Meta.UID
	if _, err := d.Volume(t.Context(), spec.Name); !fault.Is(err, fault.NotFound) {
		t.Errorf("what is not complete is there: %v", err)
	}
	if err := d.EachVolume(t.Context(), func(v driver.Volume) error { t.Errorf("%+v", v); return nil }); err != nil {
		t.Error(err)
	}
	l.csi.Behave(kubetest.Behavior{})
	if v, err := d.CreateVolume(t.Context(), spec); err != nil || v.Size != 8*mib || l.claim(spec.Native).Meta.UID != uid {
		t.Errorf("%+v, %v", v, err)
	}

	l.csi.Behave(kubetest.Behavior{Stopped: true})
	if _, err := d.ExpandVolume(soon(t), spec.Name, 16*mib); !fault.Is(err, fault.Unavailable) {
		t.Errorf("%v", err)
	}
	if v, err := d.Volume(t.Context(), spec.Name); err != nil || v.Size != 8*mib {
		t.Errorf("%+v, %v", v, err)
	}
	l.csi.Behave(kubetest.Behavior{})
	if v, err := d.ExpandVolume(t.Context(), spec.Name, 16*mib); err != nil || v.Size != 16*mib {
		t.Errorf("%+v, %v", v, err)
	}

	l.csi.Behave(kubetest.Behavior{Failure: "too busy"})
	name := driver.Name{Pool: l.class, Native: driver.SnapshotName(uuid.NewString())}
	err = endedWhen(t, func() {
		kubetest.Await(t, l.cluster, kube.VolumeSnapshots, l.namespace, name.Native, func(s *kubetest.Snapshot) bool {
			return s != nil && s.Status.Error != nil
		})
	}, func(ctx context.Context) error {
		_, err := d.CreateSnapshot(ctx, spec.Name, name, quiet)
		return err
	})
	if f := fault.From(err); f.Kind != fault.Unavailable || f.Message != why.Message || !strings.Contains(err.Error(), "too busy") {
		t.Errorf("%v", err)
	}
	if _, err := d.Snapshot(t.Context(), name); !fault.Is(err, fault.NotFound) {
		t.Errorf("what is not complete is there: %v", err)
	}
	l.csi.Behave(kubetest.Behavior{})
	if s, err := d.CreateSnapshot(t.Context(), spec.Name, name, quiet); err != nil || s.Size != 16*mib {
		t.Errorf("%+v, %v", s, err)
	}

	l.csi.Behave(kubetest.Behavior{Stopped: true})
	if err := d.DeleteSnapshot(soon(t), name); !fault.Is(err, fault.Unavailable) {
		t.Errorf("%v", err)
	}
	l.csi.Behave(kubetest.Behavior{})
	if err := d.DeleteSnapshot(t.Context(), name); err != nil {
		t.Error(err)
	}

	// One that was never made can be deleted.
	l.csi.Behave(kubetest.Behavior{Stopped: true})
	never := l.spec()
	if _, err := d.CreateVolume(soon(t), never); !fault.Is(err, fault.Unavailable) {
		t.Errorf("%v", err)
	}
	if err := d.DeleteVolume(t.Context(), never.Name); err != nil {
		t.Error(err)
	}
	kubetest.Await(t, l.cluster, kube.PersistentVolumeClaims, l.namespace, never.Native, func(c *kubetest.Claim) bool { return c == nil })
}

func TestACallSurvivesTheAPIServer(t *testing.T) {
	t.Parallel()
	l := newLab(t, kubetest.Start(t))
	d, spec := l.open(), l.spec()
	l.csi.Behave(kubetest.Behavior{Stopped: true})
	made := make(chan error, 1)
	go func() {
		_, err := d.CreateVolume(t.Context(), spec)
		made <- err
	}()
	kubetest.Await(t, l.cluster, kube.PersistentVolumeClaims, l.namespace, spec.Native, func(c *kubetest.Claim) bool { return c != nil })
	uid := l.claim(spec.Native).Meta.UID
	if err := l.cluster.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Volume(t.Context(), spec.Name); !fault.Is(err, fault.Unavailable) {
		t.Errorf("%v", err)
	}
	if err := l.cluster.Run(); err != nil {
		t.Fatal(err)
	}
	l.csi.Behave(kubetest.Behavior{})
	err := <-made
	if fault.Is(err, fault.Unavailable) { // the answer to the very request that made the claim was lost
		_, err = d.CreateVolume(t.Context(), spec)
	}
	if err != nil || l.claim(spec.Native).Meta.UID != uid {
		t.Errorf("%v", err)
	}

	// Without the CRDs of snapshots, there are volumes all the same.
	crds := kube.Resource{
		Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition", Plural: "customresourcedefinitions",
	}
	l.delete(crds, "", "volumesnapshots.snapshot.storage.k8s.io")
	kubetest.Await(t, l.cluster, crds, "", "volumesnapshots.snapshot.storage.k8s.io", func(c *kubetest.Object) bool { return c == nil })
	name := driver.Name{Pool: l.class, Native: driver.SnapshotName(uuid.NewString())}
	for err = nil; !fault.Is(err, fault.Invalid) && t.Context().Err() == nil; { // the API server forgets the kind a moment later
		_, err = d.CreateSnapshot(soon(t), spec.Name, name, quiet)
	}
	if f := fault.From(err); f.Code != "unsupported" {
		t.Errorf("%v", err)
	}
	if _, err := d.Inspect(t.Context()); err != nil {
		t.Error(err)
	}
	if can := d.Capabilities(); can.Snapshots || can.Clone || !can.Block || !can.File || !can.Expansion {
		t.Errorf("%+v", can)
	}
	if _, err := d.Snapshot(t.Context(), name); !fault.Is(err, fault.NotFound) {
		t.Errorf("%v", err)
	}
	if err := d.DeleteSnapshot(t.Context(), name); err != nil {
		t.Error(err)
	}
	if err := d.DeleteVolume(t.Context(), spec.Name); err != nil {
		t.Error(err)
	}
}

func TestWhatTheGatewayDidNotMakeIsOnlyRead(t *testing.T) {
	t.Parallel()
	l := newLab(t, kubetest.Shared(t))
	d := l.open()
	own := l.make(d)
	claim := &kubetest.Claim{Spec: kubetest.ClaimSpec{
		AccessModes: []string{"ReadWriteOnce"}, StorageClassName: l.class, VolumeMode: "Filesystem",
	}}
	claim.Spec.Resources.Requests.Storage = "4Mi"
	foreign := l.spec().Name
	// One has a name of the gateway's; another one is a copy of its manifest.
	for name, labels := range map[string]map[string]string{foreign.Native: nil, "copied": {"mainstay/native": own.Native}} {
		claim.Meta = kube.Meta{Name: name, Labels: labels}
		kubetest.Create(t, l.cluster, kube.PersistentVolumeClaims, l.namespace, claim)
		kubetest.Await(t, l.cluster, kube.PersistentVolumeClaims, l.namespace, name, func(c *kubetest.Claim) bool {
			return c != nil && c.Status.Phase == "Bound"
		})
	}
	seen := map[string]driver.Volume{}
	if err := d.EachVolume(t.Context(), func(v driver.Volume) error { seen[v.Native] = v; return nil }); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{own.Native: false, foreign.Native: true, "copied": true} {
		if v := seen[name]; v.Foreign != want || v.Pool != l.class || v.Size != 4*mib && want {
			t.Errorf("%s: %+v", name, v)
		}
	}
	before := l.claim(foreign.Native).Meta
	_, created := d.CreateVolume(t.Context(), driver.VolumeSpec{Name: foreign, Kind: driver.Block, Size: 16 * mib})
	_, expanded := d.ExpandVolume(t.Context(), foreign, 16*mib)
	_, read := d.Volume(t.Context(), foreign)
	snapshot := driver.Name{Native: driver.SnapshotName(uuid.NewString())}
	_, snapped := d.CreateSnapshot(t.Context(), foreign, snapshot, quiet)
	for what, err := range map[string]error{
		"created": created, "expanded": expanded, "read": read, "snapped": snapped, "deleted": d.DeleteVolume(t.Context(), foreign),
	} {
		if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "did not make") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if after := l.claim(foreign.Native).Meta; after.UID != before.UID || after.ResourceVersion != before.ResourceVersion {
		t.Errorf("%+v, then %+v", before, after)
	}

	s := &kubetest.Snapshot{Meta: kube.Meta{Name: snapshot.Native}}
	s.Spec.Class, s.Spec.Source.Claim = l.class, own.Native
	kubetest.Create(t, l.cluster, kube.VolumeSnapshots, l.namespace, s)
	_, created2 := d.CreateSnapshot(t.Context(), own.Name, snapshot, quiet)
	_, cloned := d.CloneSnapshot(t.Context(), snapshot, l.spec(), quiet)
	for what, err := range map[string]error{
		"created": created2, "cloned": cloned, "deleted": d.DeleteSnapshot(t.Context(), snapshot),
	} {
		if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "did not make") {
			t.Errorf("snapshot %s: %v", what, err)
		}
	}
	kubetest.Get[kubetest.Snapshot](t, l.cluster, kube.VolumeSnapshots, l.namespace, snapshot.Native)
}

func TestAClaimThatPodsUseIsNotDeleted(t *testing.T) {
	t.Parallel()
	l := newLab(t, kubetest.Shared(t))
	d := l.open()
	v := l.make(d)
	for _, name := range []string{"one", "two"} {
		kubetest.Create(t, l.cluster, kube.Pods, l.namespace, kubetest.PodUsing(name, v.Native))
	}
	kubetest.Create(t, l.cluster, kube.Pods, l.namespace, kubetest.PodUsing("another", "other"))
	err := d.DeleteVolume(t.Context(), v.Name)
	if f := fault.From(err); f == nil || f.Kind != fault.Conflict || !strings.Contains(f.Message, "one, two;") || strings.Contains(f.Message, "another") {
		t.Errorf("%v", err)
	}
	if !l.claim(v.Native).Meta.DeletionTimestamp.IsZero() {
		t.Error("the claim goes when the pods do")
	}
	for _, name := range []string{"one", "two"} {
		l.delete(kube.Pods, l.namespace, name)
	}
	if err := d.DeleteVolume(t.Context(), v.Name); err != nil {
		t.Error(err)
	}
	// A person deletes a claim that a pod uses. It stays, and the gateway says why.
	v = l.make(d)
	kubetest.Create(t, l.cluster, kube.Pods, l.namespace, kubetest.PodUsing("three", v.Native))
	l.delete(kube.PersistentVolumeClaims, l.namespace, v.Native)
	if err := d.DeleteVolume(t.Context(), v.Name); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "three") {
		t.Errorf("%v", err)
	}
}

func TestTheQuotaOfTheNamespaceIsTold(t *testing.T) {
	t.Parallel()
	l := newLab(t, kubetest.Shared(t))
	d := l.open()
	v := l.make(d)
	quota := &kubetest.Quota{Meta: kube.Meta{Name: "small"}}
	quota.Spec.Hard = map[string]string{"requests.storage": "12Mi"}
	kubetest.Create(t, l.cluster, kubetest.Quotas, l.namespace, quota)
	kubetest.Await(t, l.cluster, kubetest.Quotas, l.namespace, "small", func(q *kubetest.Quota) bool {
		return q != nil && kube.Bytes(q.Status.Used["requests.storage"]) == 8*mib
	})
	_, made := d.CreateVolume(t.Context(), l.spec())
	_, expanded := d.ExpandVolume(t.Context(), v.Name, 16*mib)
	for _, err := range []error{made, expanded} {
		if f := fault.From(err); f == nil || f.Kind != fault.TooMany || !strings.Contains(f.Message, "small") {
			t.Errorf("%v", err)
		}
	}
	if v, err := d.Volume(t.Context(), v.Name); err != nil || v.Size != 8*mib {
		t.Errorf("%+v, %v", v, err)
	}
}

func TestStorageClassesThatDoNotFitAreRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t, kubetest.Shared(t))
	d := l.open()
	fixed := l.csi.AddClass(t, func(c *kubetest.Class) { c.AllowVolumeExpansion = false })
	late := l.csi.AddClass(t, func(c *kubetest.Class) { c.VolumeBindingMode = "WaitForFirstConsumer" })
	manual := l.csi.AddClass(t, func(c *kubetest.Class) { c.Provisioner = "kubernetes.io/no-provisioner" })
	cluster, err := d.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]driver.PoolKind{
		l.class: driver.PoolStorageClass, fixed: driver.PoolStorageClass, late: driver.PoolOther, manual: driver.PoolOther,
	} {
		if !slices.ContainsFunc(cluster.Pools, func(p driver.Pool) bool { return p.Name == name && p.Kind == want && p.Max == 1<<40 }) {
			t.Errorf("no %s of the kind %s: %+v", name, want, cluster.Pools)
		}
	}
	for class, reason := range map[string]string{late: "WaitForFirstConsumer", manual: "no provisioner"} {
		spec := l.spec()
		spec.Pool = class
		_, err := d.CreateVolume(t.Context(), spec)
		if f := fault.From(err); f == nil || f.Code != "unsupported" || !strings.Contains(f.Message, reason) {
			t.Errorf("%v", err)
		}
	}
	spec := l.spec()
	spec.Pool = fixed
	if _, err := d.CreateVolume(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	before := l.claim(spec.Native).Meta.ResourceVersion
	_, err = d.ExpandVolume(t.Context(), spec.Name, 16*mib)
	if f := fault.From(err); f == nil || f.Kind != fault.Invalid || f.Code != "unsupported" || !strings.Contains(f.Message, "allowVolumeExpansion") {
		t.Errorf("%v", err)
	}
	if l.claim(spec.Native).Meta.ResourceVersion != before {
		t.Error("the claim was changed")
	}
	// Without a class for snapshots of the driver, there are none.
	l.delete(kube.VolumeSnapshotClasses, "", l.class)
	l.delete(kube.VolumeSnapshotClasses, "", fixed)
	l.delete(kube.VolumeSnapshotClasses, "", late)
	l.delete(kube.VolumeSnapshotClasses, "", manual)
	_, err = d.CreateSnapshot(t.Context(), spec.Name, driver.Name{Native: driver.SnapshotName(uuid.NewString())}, quiet)
	if f := fault.From(err); f == nil || f.Code != "unsupported" || !strings.Contains(f.Message, "VolumeSnapshotClass") {
		t.Errorf("%v", err)
	}
}

func TestAFileSystemThatGrowsInItsPodCountsAsGrown(t *testing.T) {
	t.Parallel()
	l := newLab(t, kubetest.Shared(t))
	d, spec := l.open(), l.spec()
	spec.Kind = driver.Filesystem
	if _, err := d.CreateVolume(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	l.csi.Behave(kubetest.Behavior{Waits: true})
	if v, err := d.ExpandVolume(t.Context(), spec.Name, 16*mib); err != nil || v.Size != 16*mib {
		t.Errorf("%+v, %v", v, err)
	}
	if c := l.claim(spec.Native); kube.Bytes(c.Status.Capacity.Storage) != 8*mib {
		t.Errorf("%+v", c.Status)
	}
}

func TestClaimsThatGoBehindItsBack(t *testing.T) {
	t.Parallel()
	l := newLab(t, kubetest.Shared(t))
	d := l.open()
	v := l.make(d)
	l.delete(kube.PersistentVolumeClaims, l.namespace, v.Native)
	kubetest.Await(t, l.cluster, kube.PersistentVolumeClaims, l.namespace, v.Native, func(c *kubetest.Claim) bool { return c == nil })
	if _, err := d.Volume(t.Context(), v.Name); !fault.Is(err, fault.NotFound) {
		t.Errorf("%v", err)
	}
	if _, err := d.ExpandVolume(t.Context(), v.Name, 16*mib); !fault.Is(err, fault.NotFound) {
		t.Errorf("%v", err)
	}
	if err := d.DeleteVolume(t.Context(), v.Name); err != nil {
		t.Error(err)
	}

	// One goes while the gateway waits for it.
	l.csi.Behave(kubetest.Behavior{Stopped: true})
	spec, made := l.spec(), make(chan error, 1)
	go func() {
		_, err := d.CreateVolume(t.Context(), spec)
		made <- err
	}()
	kubetest.Await(t, l.cluster, kube.PersistentVolumeClaims, l.namespace, spec.Native, func(c *kubetest.Claim) bool { return c != nil })
	l.delete(kube.PersistentVolumeClaims, l.namespace, spec.Native)
	if err := <-made; !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "deleted in the cluster") {
		t.Errorf("%v", err)
	}
	l.csi.Behave(kubetest.Behavior{})

	// The volume of one is lost.
	gone := lostClaim(l.spec().Native, l.class)
	gone.Meta.Labels = map[string]string{"mainstay/native": gone.Meta.Name}
	kubetest.Create(t, l.cluster, kube.PersistentVolumeClaims, l.namespace, gone)
	kubetest.Await(t, l.cluster, kube.PersistentVolumeClaims, l.namespace, gone.Meta.Name, func(c *kubetest.Claim) bool {
		return c != nil && c.Status.Phase == "Lost"
	})
	found := false
	if err := d.EachVolume(t.Context(), func(seen driver.Volume) error {
		found = found || seen.Native == gone.Meta.Name && seen.Damaged && !seen.Foreign
		return nil
	}); err != nil || !found {
		t.Errorf("it is not told as damaged: %v", err)
	}
}

// lostClaim returns a claim that says that it had a volume, which there is not.
func lostClaim(name, class string) *kubetest.Claim {
	c := &kubetest.Claim{
		Meta: kube.Meta{Name: name, Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}},
		Spec: kubetest.ClaimSpec{AccessModes: []string{"ReadWriteOnce"}, StorageClassName: class, VolumeName: "none"},
	}
	c.Spec.Resources.Requests.Storage = "1Mi"
	return c
}

func TestOneClaimIsMadeByManyProcesses(t *testing.T) {
	t.Parallel()
	l := newLab(t, kubetest.Shared(t))
	spec := l.spec()
	var running sync.WaitGroup
	for range 4 {
		d := l.open()
		running.Go(func() {
			if v, err := d.CreateVolume(t.Context(), spec); err != nil || v.Size != 8*mib {
				t.Errorf("%+v, %v", v, err)
			}
		})
	}
	running.Wait()
	for range 4 {
		d := l.open()
		running.Go(func() {
			if err := d.DeleteVolume(t.Context(), spec.Name); err != nil {
				t.Errorf("%v", err)
			}
		})
	}
	running.Wait()
}

func TestOtherClustersAndNamespacesAreRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t, kubetest.Shared(t))
	cluster, err := l.open().Inspect(t.Context())
	if err != nil || cluster.Name != l.namespace {
		t.Fatalf("%+v, %v", cluster, err)
	}
	for _, c := range []struct {
		cfg  kubernetes.Config
		kind fault.Kind
		says string
	}{
		{kubernetes.Config{Kubeconfig: l.cluster.Kubeconfig, UID: "other"}, fault.Conflict, "another cluster"},
		{kubernetes.Config{Kubeconfig: l.cluster.Kubeconfig, Namespace: "none"}, fault.Unavailable, "no namespace none"},
		{kubernetes.Config{Kubeconfig: filepath.Join(t.TempDir(), "none")}, fault.Unavailable, "kubeconfig"},
	} {
		if _, err := kubernetes.Open(t.Context(), c.cfg); !fault.Is(err, c.kind) || !strings.Contains(fault.From(err).Message, c.says) {
			t.Errorf("%+v: %v", c.cfg, err)
		}
	}
	d, err := kubernetes.Open(t.Context(), kubernetes.Config{Kubeconfig: l.cluster.Kubeconfig, UID: cluster.NativeID})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	if cluster, err := d.Inspect(t.Context()); err != nil || cluster.Name != "default" { // that of the kubeconfig
		t.Errorf("%+v, %v", cluster, err)
	}
}

// counted returns a driver that reaches the cluster through a proxy, and the largest answer to a list so far.
func (l *lab) counted() (*kubernetes.Driver, *atomic.Int64, *atomic.Int64) {
	l.Helper()
	raw, err := os.ReadFile(l.cluster.Kubeconfig)
	if err != nil {
		l.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(raw), "server: ")
	address, _, _ := strings.Cut(rest, "\n")
	to, err := url.Parse(address)
	if err != nil {
		l.Fatal(err)
	}
	lists, largest := &atomic.Int64{}, &atomic.Int64{}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.FlushInterval = -1
	proxy.Transport = l.cluster.Transport(l)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("Accept-Encoding")
		m := &meter{ResponseWriter: w}
		proxy.ServeHTTP(m, r)
		if strings.HasSuffix(r.URL.Path, "/persistentvolumeclaims") {
			lists.Add(1)
			largest.Store(max(largest.Load(), m.bytes))
		}
	}))
	l.Cleanup(server.Close)
	path := filepath.Join(l.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Config", "current-context": "a",
"clusters": [{"name": "a", "cluster": {"server": %q}}], "contexts": [{"name": "a", "context": {"cluster": "a"}}]}`, server.URL), 0o600); err != nil {
		l.Fatal(err)
	}
	d, err := kubernetes.Open(l.Context(), kubernetes.Config{Kubeconfig: path, Namespace: l.namespace})
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { _ = d.Close() })
	return d, lists, largest
}

// meter counts the bytes of an answer.
type meter struct {
	http.ResponseWriter
	bytes int64
}

func (m *meter) Write(p []byte) (int, error) {
	m.bytes += int64(len(p))
	return m.ResponseWriter.Write(p)
}

func (m *meter) Flush() { m.ResponseWriter.(http.Flusher).Flush() }

func TestManyClaimsAreReadPageByPage(t *testing.T) {
	t.Parallel()
	l := newLab(t, kubetest.Shared(t))
	const count = 2000
	var running sync.WaitGroup
	todo := make(chan int)
	for range 16 {
		running.Go(func() {
			for i := range todo {
				c := lostClaim(fmt.Sprintf("claim-%04d", i), l.class)
				if _, err := kube.Create(t.Context(), l.cluster.Client, kube.PersistentVolumeClaims, l.namespace, c); err != nil {
					t.Errorf("%v", err)
					continue
				}
				if _, err := kube.Apply(t.Context(), l.cluster.Client, kube.PersistentVolumeClaims.Status(), l.namespace, c.Meta.Name, &kubetest.Claim{
					Status: kubetest.ClaimStatus{Phase: "Lost"},
				}); err != nil {
					t.Errorf("%v", err)
				}
			}
		})
	}
	for i := range count {
		todo <- i
	}
	close(todo)
	running.Wait()
	d, lists, largest := l.counted()
	seen := map[string]bool{}
	if err := d.EachVolume(t.Context(), func(v driver.Volume) error {
		seen[v.Native] = v.Foreign
		return nil
	}); err != nil || len(seen) != count {
		t.Errorf("%d claims, %v", len(seen), err)
	}
	if lists.Load() != 4 || largest.Load() > 2<<20 {
		t.Errorf("%d lists of up to %d bytes", lists.Load(), largest.Load())
	}
}
