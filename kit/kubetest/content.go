package kubetest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/kube"
)

// Finalizers that the real controllers set.
const (
	finalizerVolume   = "external-provisioner.volume.kubernetes.io/finalizer"
	finalizerContent  = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"
	finalizerSnapshot = "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection"
)

// rbd is the driver whose volumes are images of Ceph.
const rbd = "rbd.csi.ceph.com"

// errLater is the error of what waits for something else.
var errLater = errors.New("not yet")

// hold has an object stay until release.
func (p *pass) hold(ctx context.Context, r kube.Resource, m *kube.Meta, finalizer string) error {
	if slices.Contains(m.Finalizers, finalizer) {
		return nil
	}
	_, err := kube.Apply(ctx, p.clients.finalizers, r, m.Namespace, m.Name, &Object{
		Meta: kube.Meta{UID: m.UID, Finalizers: []string{finalizer}},
	})
	return err
}

// release lets an object go. What it does not name any more goes from the fields of the field manager.
func (p *pass) release(ctx context.Context, r kube.Resource, m *kube.Meta, finalizer string) error {
	if !slices.Contains(m.Finalizers, finalizer) {
		return nil
	}
	_, err := kube.Apply(ctx, p.clients.finalizers, r, m.Namespace, m.Name, &Object{Meta: kube.Meta{UID: m.UID}})
	return unless(err, fault.NotFound, fault.Conflict)
}

// unless returns nil for errors of some kinds.
func unless(err error, kinds ...fault.Kind) error {
	if err != nil && slices.Contains(kinds, fault.KindOf(err)) {
		return nil
	}
	return err
}

// begin is called before something is done. It returns an error if that is to fail.
func (p *pass) begin(ctx context.Context, r kube.Resource, m *kube.Meta) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(p.Slow):
	}
	if p.Failure == "" {
		return nil
	}
	_, err := kube.Create(ctx, p.clients.provisioner, kube.Events, m.Namespace, &Event{
		Meta:     kube.Meta{Name: m.Name + "." + uuid.NewString()[:8]},
		Involved: Ref{APIVersion: r.Version, Kind: r.Kind, Namespace: m.Namespace, Name: m.Name, UID: m.UID},
		Type:     "Warning", Reason: "ProvisioningFailed", Message: p.Failure,
	})
	return errors.Join(errors.New(p.Failure), err)
}

// claim gives a claim what it asks for.
func (p *pass) claim(ctx context.Context, c *Claim) error {
	class := p.classes["/"+c.Spec.StorageClassName]
	if class == nil || class.Provisioner != p.driver || !c.Meta.DeletionTimestamp.IsZero() {
		return nil
	}
	asked := kube.Bytes(c.Spec.Resources.Requests.Storage)
	switch {
	case c.Spec.VolumeName == "":
		return p.provision(ctx, c, class, asked)
	case c.Status.Phase == "Bound" && kube.Bytes(c.Status.Capacity.Storage) < asked:
		return p.expand(ctx, c, asked)
	}
	return nil
}

// provision makes the volume of a claim, which the cluster binds to it then.
func (p *pass) provision(ctx context.Context, c *Claim, class *Class, size int64) error {
	name := "pvc-" + c.Meta.UID
	if p.volumes["/"+name] != nil {
		return nil
	}
	source, err := p.source(c)
	if err != nil {
		return err
	}
	if err := p.begin(ctx, kube.PersistentVolumeClaims, &c.Meta); err != nil {
		return err
	}
	if err := p.fill(name, source, size); err != nil {
		return err
	}
	v := &Volume{
		Meta: kube.Meta{Name: name, Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": p.driver}},
		Spec: VolumeSpec{
			Capacity: Storage{strconv.FormatInt(size, 10)}, AccessModes: c.Spec.AccessModes, ReclaimPolicy: class.ReclaimPolicy,
			StorageClassName: class.Meta.Name, VolumeMode: c.Spec.VolumeMode,
			ClaimRef: &Ref{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: c.Meta.Namespace, Name: c.Meta.Name, UID: c.Meta.UID},
			CSI:      &Handle{Driver: p.driver, VolumeHandle: name},
		},
	}
	if p.driver == rbd {
		v.Spec.CSI.VolumeAttributes = map[string]string{
			"pool": class.Parameters["pool"], "imageName": "csi-vol-" + c.Meta.UID,
		}
	}
	made, err := kube.Create(ctx, p.clients.provisioner, kube.PersistentVolumes, "", v)
	if fault.Is(err, fault.Conflict) {
		return nil // it is not seen yet
	}
	if err != nil {
		return err
	}
	return p.hold(ctx, kube.PersistentVolumes, &made.Meta, finalizerVolume)
}

// source returns the handle of what a claim is made of; empty: of nothing.
func (p *pass) source(c *Claim) (string, error) {
	from := c.Spec.DataSource
	if from == nil {
		return "", nil
	}
	switch from.Kind {
	case kube.VolumeSnapshots.Kind:
		s := p.snapshots[c.Meta.Namespace+"/"+from.Name]
		if s != nil && s.Status.Ready {
			if content := p.contents["/"+s.Status.Content]; content != nil {
				return content.Status.Handle, nil
			}
		}
	case kube.PersistentVolumeClaims.Kind:
		if other := p.claims[c.Meta.Namespace+"/"+from.Name]; other != nil {
			if v := p.volumes["/"+other.Spec.VolumeName]; v != nil {
				return v.Spec.CSI.VolumeHandle, nil
			}
		}
	}
	return "", errLater
}

// fill makes the file of a volume or snapshot, of a size.
func (p *pass) fill(handle, source string, size int64) error {
	var content []byte
	if source != "" {
		var err error
		if content, err = os.ReadFile(p.path(source)); err != nil {
			return err
		}
	}
	beside := p.path(handle) + ".new"
	err := os.WriteFile(beside, content, 0o600)
	if err == nil && int64(len(content)) < size {
		err = os.Truncate(beside, size)
	}
	return errors.Join(err, os.Rename(beside, p.path(handle)))
}

// expand makes a volume larger, and then its claim.
func (p *pass) expand(ctx context.Context, c *Claim, size int64) error {
	v := p.volumes["/"+c.Spec.VolumeName]
	if v == nil {
		return errLater
	}
	if p.Waits && c.Spec.VolumeMode == "Filesystem" && slices.ContainsFunc(c.Status.Conditions, pendingInPod) {
		return nil
	}
	if err := p.begin(ctx, kube.PersistentVolumeClaims, &c.Meta); err != nil {
		return err
	}
	if err := os.Truncate(p.path(v.Spec.CSI.VolumeHandle), size); err != nil {
		return err
	}
	storage := Storage{strconv.FormatInt(size, 10)}
	if _, err := kube.Apply(ctx, p.clients.resizer, kube.PersistentVolumes, "", v.Meta.Name, &Volume{
		Meta: kube.Meta{UID: v.Meta.UID}, Spec: VolumeSpec{Capacity: storage},
	}); err != nil {
		return err
	}
	status := ClaimStatus{Capacity: storage}
	if p.Waits && c.Spec.VolumeMode == "Filesystem" {
		status = ClaimStatus{Conditions: []Condition{{Type: "FileSystemResizePending", Status: "True"}}}
	}
	claims := kube.PersistentVolumeClaims.Status()
	_, err := kube.Apply(ctx, p.clients.resizer, claims, c.Meta.Namespace, c.Meta.Name, &Claim{
		Meta: kube.Meta{UID: c.Meta.UID}, Status: status,
	})
	return err
}

func pendingInPod(c Condition) bool { return c.Type == "FileSystemResizePending" && c.Status == "True" }

// released removes a volume whose claim is gone.
func (p *pass) released(ctx context.Context, v *Volume) error {
	ours := v.Spec.CSI != nil && v.Spec.CSI.Driver == p.driver
	if !ours || v.Status.Phase != "Released" || v.Spec.ReclaimPolicy != "Delete" {
		return nil
	}
	if err := p.begin(ctx, kube.PersistentVolumes, &v.Meta); err != nil {
		return err
	}
	if err := os.Remove(p.path(v.Spec.CSI.VolumeHandle)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := kube.Delete(ctx, p.clients.provisioner, kube.PersistentVolumes, "", v.Meta.Name, v.Meta.UID)
	if err := unless(err, fault.NotFound, fault.Conflict); err != nil {
		return err
	}
	return p.release(ctx, kube.PersistentVolumes, &v.Meta, finalizerVolume)
}

// snapshot takes a snapshot, or lets one go.
func (p *pass) snapshot(ctx context.Context, s *Snapshot) error {
	class := p.ofSnaps["/"+s.Spec.Class]
	if class == nil || class.Driver != p.driver {
		return nil
	}
	name := "snapcontent-" + s.Meta.UID
	content := p.contents["/"+name]
	if !s.Meta.DeletionTimestamp.IsZero() {
		if content == nil {
			return p.release(ctx, kube.VolumeSnapshots, &s.Meta, finalizerSnapshot)
		}
		if class.DeletionPolicy == "Delete" && content.Meta.DeletionTimestamp.IsZero() {
			err := kube.Delete(ctx, p.clients.snapshotter, kube.VolumeSnapshotContents, "", name, content.Meta.UID)
			return unless(err, fault.NotFound, fault.Conflict)
		}
		return nil
	}
	if s.Status.Ready {
		return nil
	}
	if content == nil {
		return p.take(ctx, s, class, name)
	}
	if !content.Status.Ready {
		return nil // it comes again when it is
	}
	return p.tell(ctx, s, SnapshotStatus{
		Content: name, Ready: true, RestoreSize: strconv.FormatInt(content.Status.RestoreSize, 10),
		CreationTime: time.Unix(0, content.Status.CreationTime).UTC().Truncate(time.Second),
	})
}

// tell gives a snapshot a status.
func (p *pass) tell(ctx context.Context, s *Snapshot, status SnapshotStatus) error {
	snapshots := kube.VolumeSnapshots.Status()
	_, err := kube.Apply(ctx, p.clients.snapshotter, snapshots, s.Meta.Namespace, s.Meta.Name, &Snapshot{
		Meta: kube.Meta{UID: s.Meta.UID}, Status: status,
	})
	return err
}

// take makes the content of a snapshot, which content fills.
func (p *pass) take(ctx context.Context, s *Snapshot, class *SnapshotClass, name string) error {
	of := p.claims[s.Meta.Namespace+"/"+s.Spec.Source.Claim]
	if of == nil || p.volumes["/"+of.Spec.VolumeName] == nil {
		return errLater
	}
	if err := p.begin(ctx, kube.VolumeSnapshots, &s.Meta); err != nil {
		return errors.Join(err, p.tell(ctx, s, SnapshotStatus{
			Error: &SnapshotError{Message: p.Failure, Time: time.Now().UTC().Truncate(time.Second)},
		}))
	}
	if err := p.hold(ctx, kube.VolumeSnapshots, &s.Meta, finalizerSnapshot); err != nil {
		return err
	}
	c := &SnapshotContent{Meta: kube.Meta{Name: name}, Spec: SnapshotContentSpec{
		DeletionPolicy: class.DeletionPolicy, Driver: p.driver, Class: class.Meta.Name,
		Snapshot: Ref{
			APIVersion: kube.VolumeSnapshots.Group + "/v1", Kind: kube.VolumeSnapshots.Kind, Namespace: s.Meta.Namespace, Name: s.Meta.Name, UID: s.Meta.UID,
		},
	}}
	c.Spec.Source.VolumeHandle = p.volumes["/"+of.Spec.VolumeName].Spec.CSI.VolumeHandle
	made, err := kube.Create(ctx, p.clients.snapshotter, kube.VolumeSnapshotContents, "", c)
	if fault.Is(err, fault.Conflict) {
		return nil // it is not seen yet
	}
	if err != nil {
		return err
	}
	return p.hold(ctx, kube.VolumeSnapshotContents, &made.Meta, finalizerContent)
}

// content fills the content of a snapshot, or removes it.
func (p *pass) content(ctx context.Context, c *SnapshotContent) error {
	if c.Spec.Driver != p.driver {
		return nil
	}
	handle := "snap-" + c.Meta.UID
	if !c.Meta.DeletionTimestamp.IsZero() {
		if err := os.Remove(p.path(handle)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return p.release(ctx, kube.VolumeSnapshotContents, &c.Meta, finalizerContent)
	}
	if c.Status.Ready {
		return nil
	}
	if err := p.fill(handle, c.Spec.Source.VolumeHandle, 0); err != nil {
		return err
	}
	info, err := os.Stat(p.path(handle))
	if err != nil {
		return err
	}
	contents := kube.VolumeSnapshotContents.Status()
	_, err = kube.Apply(ctx, p.clients.snapshotter, contents, "", c.Meta.Name, &SnapshotContent{
		Meta: kube.Meta{UID: c.Meta.UID}, Status: SnapshotHandle{
			CreationTime: time.Now().UnixNano(), Ready: true, RestoreSize: info.Size(), Handle: handle,
		},
	})
	return err
}
