package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/repository"
	"github.com/mainstay-infra/mainstay/kit/tenant"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/record"
	"github.com/mainstay-infra/mainstay/service/storage/state"
)

// intake is what a job that takes in backups has found.
type intake struct {
	took, passed int    // new backups, and objects that are not backups
	example      string // what is wrong with one that was passed over
}

// pass passes an object over.
func (in *intake) pass(object string, why error) {
	if in.passed++; in.example == "" {
		in.example = fmt.Sprintf("%s: %s", object, fault.From(why).Message)
	}
}

func (in *intake) String() string {
	text := fmt.Sprintf("%d backups are new", in.took)
	if in.passed > 0 {
		text += fmt.Sprintf("; %d objects were passed over, for example %s", in.passed, in.example)
	}
	return text
}

// take is the job that takes in the backups of a bucket that are not known: those with data from the repository, the
// others from their manifests. Objects that are not backups are passed over.
func (m *Manager) take(ctx context.Context, a record.ImportArgs, progress func(float64)) error {
	var in intake
	err := m.takeData(ctx, a, &in)
	if notCreated(err) {
		err = nil // there are only manifests
	}
	if err == nil {
		progress(record.Verifying / 2)
		err = m.takeManifests(ctx, a, &in)
	}
	if err != nil {
		return err
	}
	return m.store.NoteImport(ctx, a.Bucket, in.String())
}

func (m *Manager) takeData(ctx context.Context, a record.ImportArgs, in *intake) error {
	repo, err := m.repository(ctx, record.BackupBucket{Bucket: a.Bucket, KeyRef: a.KeyRef}, false)
	if err != nil {
		return err
	}
	all, problems, err := repo.ListAll(ctx)
	if err != nil {
		return err
	}
	for _, p := range problems {
		m.log.Warn("a backup in a bucket cannot be read", "bucket", a.Bucket, "problem", p)
		in.pass("a backup", fault.New(fault.Invalid, "%s", p))
	}
	for _, found := range all {
		b, err := m.found(found, a)
		if err != nil {
			m.log.Warn("a backup in a bucket is not taken in", "bucket", a.Bucket, "backup", found.ID.String(), "error", err)
			in.pass(found.ID.String(), err)
			continue
		}
		if err := m.add(ctx, &b, in); err != nil {
			return err
		}
	}
	return nil
}

// add stores a backup that is not known.
func (m *Manager) add(ctx context.Context, b *record.Backup, in *intake) error {
	known, err := m.store.AddBackup(ctx, b)
	if err == nil && !known {
		in.took++
	}
	return err
}

// found returns the row of a backup that a repository holds.
func (m *Manager) found(r *repository.Backup, a record.ImportArgs) (b record.Backup, err error) {
	var about settingsOf
	switch {
	case len(r.Items) != 1 || r.Items[0].Name != itemName || r.Items[0].Size <= 0 || r.Items[0].Size > maxSize:
		return b, fault.New(fault.Invalid, "it is not the backup of a volume")
	case json.Unmarshal(r.Config, &about) != nil || !validName(about.Volume):
		return b, fault.New(fault.Invalid, "what it says about its volume is not valid")
	case uuid.Validate(r.Name) != nil || uuid.Validate(r.Of) != nil:
		return b, fault.New(fault.Invalid, "its ids are not valid")
	case !validTime(r.Started) || !validTime(r.Finished):
		return b, fault.New(fault.Invalid, "its times are not valid")
	}
	of := tenantOf(r.Tenant)
	// The repository keeps what is of a tenant below that tenant's name.
	if a.Tenant != nil && *a.Tenant != of {
		return b, fault.New(fault.Invalid, "it belongs to the tenant %q", of)
	}
	if of != "" && tenant.CheckName("tenant", of) != nil {
		return b, fault.New(fault.Invalid, "its tenant is not valid")
	}
	return record.Backup{
		ID: r.Name, Tenant: of, VolumeID: r.Of, VolumeName: about.Volume, BucketID: a.Bucket,
		Key: record.BackupKey(r.Of, r.Name), Mode: record.ModeData, State: state.BackupCompleted,
		Incremental: r.Type == "incremental", Size: r.Items[0].Size, Stored: r.Items[0].Stored, KeyRef: a.KeyRef,
		Consistency: consistency(r.Consistency), RepositoryID: r.ID.String(), CreatedAt: db.At(r.Started),
		FinishedAt: db.At(r.Finished),
	}, nil
}

func consistency(word string) driver.Consistency {
	if c := driver.Consistency(word); c == driver.CrashConsistent {
		return c
	}
	return driver.NotConsistent
}

// takeManifests takes in backups without data.
func (m *Manager) takeManifests(ctx context.Context, a record.ImportArgs, in *intake) error {
	s, err := m.bucket(ctx, a.Bucket)
	if err != nil {
		return err
	}
	for object, err := range s.List(ctx, "backups/") {
		if err != nil {
			return unavailable(err)
		}
		if !strings.HasSuffix(object.Name, ".json") {
			continue
		}
		about, err := read(ctx, s, object.Name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue // it was removed meanwhile
		case fault.Is(err, fault.Invalid) || fault.Is(err, fault.TooLarge):
			m.log.Warn("a manifest in a bucket is not taken in", "bucket", a.Bucket, "object", object.Name, "error", err)
			in.pass(object.Name, err)
			continue
		case err != nil:
			return unavailable(err)
		}
		if about.Mode != record.ModeManifest || a.Tenant != nil && *a.Tenant != about.Tenant {
			continue
		}
		if err := m.add(ctx, &record.Backup{
			ID: about.ID, Tenant: about.Tenant, VolumeID: about.VolumeID, VolumeName: about.VolumeName, BucketID: a.Bucket,
			Key: object.Name, Mode: about.Mode, State: state.BackupCompleted, Size: about.Size,
			Consistency: driver.NotConsistent, CreatedAt: db.At(about.TakenAt), FinishedAt: db.At(about.TakenAt),
		}, in); err != nil {
			return err
		}
	}
	return nil
}
