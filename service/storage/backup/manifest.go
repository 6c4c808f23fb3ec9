package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/repository/store"
	"github.com/mainstay-infra/mainstay/kit/tenant"
	"github.com/mainstay-infra/mainstay/kit/text"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/record"
)

// maxManifest is the most bytes of a manifest.
const maxManifest = 256 << 10

// formatVersion is that of manifests.
const formatVersion = 1

// manifest is the object that describes a backup. What it says is only believed after check.
type manifest struct {
	Format       int         `json:"format"`
	ID           string      `json:"id"`
	Mode         string      `json:"mode"`
	Tenant       string      `json:"tenant"`
	VolumeID     string      `json:"volume_id"`
	VolumeName   string      `json:"volume_name"`
	Kind         driver.Kind `json:"kind"`
	Policy       string      `json:"policy"`
	Size         int64       `json:"size_bytes"`
	Backend      string      `json:"backend"`
	Pool         string      `json:"pool"`
	Native       string      `json:"native"`
	Snapshots    []string    `json:"snapshots,omitempty"`
	TakenAt      time.Time   `json:"taken_at"`
	Consistency  string      `json:"consistency"`
	RepositoryID string      `json:"repository_id,omitempty"`
	Checksum     string      `json:"checksum,omitempty"`
}

// maxListed is the most snapshots that a manifest lists.
const maxListed = 1000

// describe returns the manifest of a backup of a volume.
func (m *Manager) describe(ctx context.Context, b *record.Backup, v *record.Volume) (manifest, error) {
	at, err := m.store.PlaceOf(ctx, v)
	if err != nil {
		return manifest{}, err
	}
	snapshots, err := m.store.Snapshots(ctx, record.SnapshotFilter{Volume: v.ID}, maxListed)
	if err != nil {
		return manifest{}, err
	}
	out := manifest{
		Format: formatVersion, ID: b.ID, Mode: b.Mode, Tenant: b.Tenant, VolumeID: v.ID, VolumeName: v.Name, Kind: v.Kind,
		Policy: v.Policy, Size: v.Size, Backend: at.Backend.Name, Pool: at.Pool.Name, Native: v.Shown(), TakenAt: m.cfg.Now(),
		Consistency: string(b.Consistency),
	}
	for _, s := range snapshots {
		out.Snapshots = append(out.Snapshots, s.Name)
	}
	return out, nil
}

// put stores a manifest, and reads it back. If an earlier attempt has stored one, that stays.
func (m *Manager) put(ctx context.Context, b *record.Backup, about manifest) error {
	s, err := m.bucket(ctx, b.BucketID)
	if err != nil {
		return err
	}
	content, err := json.MarshalIndent(about, "", "  ")
	if err != nil {
		return err
	}
	err = s.Put(ctx, b.Key, append(content, '\n'))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		m.forget(b.BucketID)
		return unavailable(err)
	}
	_, err = read(ctx, s, b.Key)
	return err
}

// read reads a manifest and checks it.
func read(ctx context.Context, s store.Store, name string) (about manifest, err error) {
	content, err := s.Get(ctx, name, maxManifest)
	if err != nil {
		return about, err
	}
	d := json.NewDecoder(bytes.NewReader(content))
	if err := d.Decode(&about); err != nil {
		return about, fault.New(fault.Invalid, "it is not a manifest")
	}
	return about, about.check(name)
}

// check refuses what no gateway has written, and what is not at its place.
func (about *manifest) check(name string) error {
	switch {
	case about.Format != formatVersion:
		return fault.New(fault.Invalid, "its format is %d, not %d", about.Format, formatVersion)
	case uuid.Validate(about.ID) != nil || uuid.Validate(about.VolumeID) != nil:
		return fault.New(fault.Invalid, "its ids are not valid")
	case record.BackupKey(about.VolumeID, about.ID) != name:
		return fault.New(fault.Invalid, "it is the manifest of another backup")
	case about.Mode != record.ModeManifest && about.Mode != record.ModeData:
		return fault.New(fault.Invalid, "its mode is not valid")
	case about.Size <= 0 || about.Size > maxSize || !validName(about.VolumeName):
		return fault.New(fault.Invalid, "its volume is not valid")
	case about.Kind != driver.Block && about.Kind != driver.Filesystem:
		return fault.New(fault.Invalid, "the kind of its volume is not valid")
	case !validTime(about.TakenAt):
		return fault.New(fault.Invalid, "its time is not valid")
	case about.Tenant != "" && tenant.CheckName("tenant", about.Tenant) != nil:
		return fault.New(fault.Invalid, "its tenant is not valid")
	}
	return nil
}

// maxSize is the largest size of a volume, in bytes.
const maxSize = 1 << 60

// validName reports whether volumes can have a name: those in Ceph are called as their users like.
func validName(name string) bool {
	return name != "" && len(name) <= 253 && !strings.Contains(name, "/") && text.CheckID("", name) == nil
}

// validTime reports whether there may have been a gateway at a time. What a database cannot keep is not one.
func validTime(t time.Time) bool { return t.Year() >= 2000 && t.UTC().Year() < 9999 }
