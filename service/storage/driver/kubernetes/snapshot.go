package kubernetes

import (
	"cmp"
	"context"
	"strconv"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/kube"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
)

// Annotations of VolumeSnapshots, which may outlive their claims: the storage class, kind and size of the volume.
const (
	noteClass = "mainstay/storage-class"
	noteKind  = "mainstay/kind"
	noteSize  = "mainstay/size"
)

// snapshot returns what a VolumeSnapshot is to the gateway.
func (s *volumeSnapshot) snapshot() driver.Snapshot {
	size := kube.Bytes(s.Status.RestoreSize)
	if size == 0 { // some drivers do not tell
		size = kube.Bytes(s.Meta.Annotations[noteSize])
	}
	taken := s.Status.CreationTime
	if taken.IsZero() {
		taken = s.Meta.CreationTimestamp
	}
	return driver.Snapshot{
		Name: driver.Name{Pool: s.Meta.Annotations[noteClass], Native: s.Meta.Name}, Source: s.Spec.Source.Claim,
		Kind: driver.Kind(s.Meta.Annotations[noteKind]), Size: size, Used: -1, CreatedAt: taken,
		Consistency: driver.CrashConsistent,
	}
}

// findSnapshot returns a VolumeSnapshot of the gateway, ready or not. It is a fault of kind NotFound if it does not
// exist, and of kind Conflict if the gateway did not make it.
func (d *Driver) findSnapshot(ctx context.Context, native string) (*volumeSnapshot, error) {
	if err := check("snapshot", driver.SnapshotName(""), native); err != nil {
		return nil, err
	}
	if err := d.canSnapshot(ctx); err != nil {
		if fault.Is(err, fault.Invalid) {
			err = errNone("snapshot", native)
		}
		return nil, err
	}
	s, err := kube.Get[volumeSnapshot](ctx, d.client, kube.VolumeSnapshots, d.namespace, native)
	switch {
	case fault.Is(err, fault.NotFound):
		return nil, errNone("snapshot", native)
	case err == nil && !own(&s.Meta):
		return nil, errForeign(kube.VolumeSnapshots, native)
	}
	return s, err
}

// Snapshot returns a snapshot.
func (d *Driver) Snapshot(ctx context.Context, n driver.Name) (driver.Snapshot, error) {
	s, err := d.findSnapshot(ctx, n.Native)
	if err == nil && !s.Status.Ready {
		err = errNone("snapshot", n.Native)
	}
	if err != nil {
		return driver.Snapshot{}, err
	}
	return s.snapshot(), nil
}

// isDefault is the annotation of the class that a CSI driver's snapshots have unless they name another one.
const isDefault = "snapshot.storage.kubernetes.io/is-default-class"

// snapshotClass returns the name of the class for snapshots of a CSI driver: its default one, or else the first.
func (d *Driver) snapshotClass(ctx context.Context, provisioner string) (string, error) {
	first, chosen := "", ""
	if err := kube.Each(ctx, d.client, kube.VolumeSnapshotClasses, "", kube.Query{}, func(c *snapshotClass) error {
		if c.Driver != provisioner {
			return nil
		}
		if first == "" {
			first = c.Meta.Name
		}
		if chosen == "" && c.Meta.Annotations[isDefault] == "true" {
			chosen = c.Meta.Name
		}
		return nil
	}); err != nil {
		return "", err
	}
	if first == "" {
		return "", fault.New(fault.Invalid, "the cluster has no VolumeSnapshotClass for the driver %s", provisioner).WithCode(
			"unsupported",
		)
	}
	return cmp.Or(chosen, first), nil
}

// canSnapshot returns a fault if the cluster has no VolumeSnapshots.
func (d *Driver) canSnapshot(ctx context.Context) error {
	served, err := d.client.Serves(ctx, kube.VolumeSnapshots)
	if err == nil && !served {
		err = fault.New(fault.Invalid, "the cluster has no VolumeSnapshots (%s)", kube.VolumeSnapshots.Group).WithCode(
			"unsupported",
		)
	}
	return err
}

// CreateSnapshot makes a VolumeSnapshot, and waits until it can be used.
func (d *Driver) CreateSnapshot(
	ctx context.Context, of, n driver.Name, _ func(float64),
) (driver.Snapshot, error) {
	if err := d.canSnapshot(ctx); err != nil {
		return driver.Snapshot{}, err
	}
	s, err := d.findSnapshot(ctx, n.Native)
	if fault.Is(err, fault.NotFound) {
		s, err = d.makeSnapshot(ctx, of, n.Native)
	}
	if err != nil {
		return driver.Snapshot{}, err
	}
	ctx, cancel := d.patient(ctx)
	defer cancel()
	ready := func(now *volumeSnapshot) (bool, error) {
		if now == nil || now.Meta.UID != s.Meta.UID || !now.Meta.DeletionTimestamp.IsZero() {
			return false, fault.New(fault.Conflict, "the VolumeSnapshot %s was deleted in the cluster", n.Native)
		}
		s = now
		return now.Status.Ready, nil
	}
	if err := kube.Await(ctx, d.client, kube.VolumeSnapshots, d.namespace, n.Native, ready); err != nil {
		return driver.Snapshot{}, d.why(ctx, err, func(ctx context.Context) (string, error) {
			now, err := kube.Get[volumeSnapshot](ctx, d.client, kube.VolumeSnapshots, d.namespace, n.Native)
			if err != nil {
				return "", err
			}
			return now.Status.Error.Message, nil
		})
	}
	return s.snapshot(), nil
}

// makeSnapshot makes a VolumeSnapshot.
func (d *Driver) makeSnapshot(ctx context.Context, of driver.Name, native string) (*volumeSnapshot, error) {
	if err := check("snapshot", driver.SnapshotName(""), native); err != nil {
		return nil, err
	}
	v, err := d.Volume(ctx, of)
	if err != nil {
		return nil, err
	}
	class, err := d.class(ctx, of.Pool)
	if err != nil {
		return nil, err
	}
	name, err := d.snapshotClass(ctx, class.Provisioner)
	if err != nil {
		return nil, err
	}
	meta := ours(native)
	meta.Annotations = map[string]string{
		noteClass: of.Pool, noteKind: string(v.Kind), noteSize: strconv.FormatInt(v.Size, 10),
	}
	s, err := kube.Create(ctx, d.client, kube.VolumeSnapshots, d.namespace, &volumeSnapshot{
		Meta: meta, Spec: snapshotSpec{Class: name, Source: snapshotSource{of.Native}},
	})
	if fault.Is(err, fault.Conflict) { // another process was faster
		return d.findSnapshot(ctx, native)
	}
	return s, err
}

// DeleteSnapshot deletes a VolumeSnapshot, and waits until it is gone.
func (d *Driver) DeleteSnapshot(ctx context.Context, n driver.Name) error {
	s, err := d.findSnapshot(ctx, n.Native)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return d.remove(ctx, kube.VolumeSnapshots, &s.Meta)
}

// CloneSnapshot makes a claim with the content of a snapshot, and waits until the cluster has made its volume.
func (d *Driver) CloneSnapshot(
	ctx context.Context, of driver.Name, spec driver.VolumeSpec, _ func(float64),
) (driver.Volume, error) {
	if err := d.canSnapshot(ctx); err != nil {
		return driver.Volume{}, err
	}
	if _, err := d.find(ctx, spec.Name); !fault.Is(err, fault.NotFound) { // it is there, and the snapshot may be gone
		return d.claim(ctx, spec, nil)
	}
	s, err := d.Snapshot(ctx, of)
	if err != nil {
		return driver.Volume{}, err
	}
	if spec.Kind != s.Kind {
		return driver.Volume{}, fault.InvalidField("kind", "a clone is of the kind of its snapshot, %s", s.Kind)
	}
	spec.Size = max(spec.Size, s.Size)
	return d.claim(ctx, spec, &dataSource{
		APIGroup: kube.VolumeSnapshots.Group, Kind: kube.VolumeSnapshots.Kind, Name: s.Native,
	})
}
