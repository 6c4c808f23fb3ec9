package twin

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"sync"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/text"
	"github.com/mainstay-infra/mainstay/service/agent/store"
)

// Twin is a device as it is known here. Reported includes pending patches.
type Twin struct {
	DeviceID                        string
	Desired, Reported               json.RawMessage
	DesiredVersion, ReportedVersion int64
	Pending                         bool
	Error                           string // why the control plane refused the last registration or patch
}

// Registration holds a program's description of a device.
type Registration struct {
	Name            string            `json:"name,omitempty"`
	Model           string            `json:"model,omitempty"`
	FirmwareVersion string            `json:"firmware_version,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
}

// Store stores the twins. It is safe for concurrent use.
type Store struct {
	db      *store.DB
	folder  string
	changed chan struct{}
	// files is held from a change in the database until its file is written, so that files change
	// in the same order.
	files sync.Mutex
}

type deviceRow struct {
	DeviceID        string `db:"device_id"`
	Desired         string `db:"desired"`
	DesiredVersion  int64  `db:"desired_version"`
	Reported        string `db:"reported"`
	ReportedVersion int64  `db:"reported_version"`
	Registration    string `db:"registration"`
	PendingReg      int64  `db:"pending_registration"`
	Patch           string `db:"patch"`
	Touched         string `db:"touched"`
	PendingPatch    int64  `db:"pending_patch"`
	Error           string `db:"error"`
}

// Open creates a Store on a database that package store opened, and updates the files in folder.
func Open(ctx context.Context, d *store.DB, folder string) (*Store, error) {
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "data: cannot make the folder %s", folder)
	}
	s := &Store{db: d, folder: folder, changed: make(chan struct{}, 1)}
	known := map[string]bool{}
	for after := ""; ; {
		page, err := s.rows(ctx, after, 100)
		if err != nil {
			return nil, err
		}
		for _, r := range page {
			known[FileName(r.DeviceID)] = true
			if err := s.writeFile(r.DeviceID, r.DesiredVersion, json.RawMessage(r.Desired)); err != nil {
				return nil, fault.Wrap(fault.StorageFailed, err, "data: cannot write into %s", folder)
			}
			after = r.DeviceID
		}
		if len(page) < 100 {
			return s, s.tidyFiles(known)
		}
	}
}

// Changed receives a value after a local program has registered or patched a device.
func (s *Store) Changed() <-chan struct{} { return s.changed }

func (s *Store) nudge() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *Store) rows(ctx context.Context, after string, limit int) ([]deviceRow, error) {
	var rows []deviceRow
	err := s.db.Select(ctx, &rows, "SELECT * FROM devices WHERE device_id > ? ORDER BY device_id LIMIT ?", after, limit)
	return rows, err
}

// List returns the twins after the given device id, ordered by id.
func (s *Store) List(ctx context.Context, after string, limit int) ([]Twin, error) {
	rows, err := s.rows(ctx, after, limit)
	if err != nil {
		return nil, err
	}
	twins := make([]Twin, len(rows))
	for i := range rows {
		if twins[i], err = rows[i].twin(); err != nil {
			return nil, err
		}
	}
	return twins, nil
}

// Get returns one twin.
func (s *Store) Get(ctx context.Context, device string) (Twin, error) {
	r, err := s.row(ctx, s.db, device)
	if err != nil {
		return Twin{}, err
	}
	return r.twin()
}

func (s *Store) row(ctx context.Context, q db.Querier, device string) (deviceRow, error) {
	var r deviceRow
	err := q.Get(ctx, &r, "SELECT * FROM devices WHERE device_id = ?", device)
	return r, db.NotFound(
		err, "device %s: the site has none of this id; register it with PUT /v1/devices/%s", device, device,
	)
}

func (r *deviceRow) twin() (Twin, error) {
	reported, err := merged(json.RawMessage(r.Reported), json.RawMessage(r.Patch))
	return Twin{
		DeviceID:        r.DeviceID,
		Desired:         json.RawMessage(r.Desired),
		Reported:        reported,
		DesiredVersion:  r.DesiredVersion,
		ReportedVersion: r.ReportedVersion,
		Pending:         r.PendingReg > 0 || r.PendingPatch > 0,
		Error:           r.Error,
	}, err
}

// Firmware returns the version that a program last registered for a device, or "" if there is none.
func (s *Store) Firmware(ctx context.Context, device string) (string, error) {
	var text string
	err := s.db.Get(ctx, &text, "SELECT registration FROM devices WHERE device_id = ?", device)
	if errors.Is(err, db.ErrNoRows) || err == nil && text == "" {
		return "", nil
	}
	var reg Registration
	if err == nil {
		err = json.Unmarshal([]byte(text), &reg)
	}
	return reg.FirmwareVersion, err
}

// Counts returns the number of devices, and how many have pending changes.
func (s *Store) Counts(ctx context.Context) (devices, pending int64, err error) {
	if err = s.db.Get(ctx, &devices, "SELECT COUNT(*) FROM devices"); err == nil {
		err = s.db.Get(
			ctx, &pending, "SELECT COUNT(*) FROM devices WHERE pending_registration > 0 OR pending_patch > 0",
		)
	}
	return devices, pending, err
}

var deviceID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$`)

// Register stores a program's description of a device. When it returns nil, the description is on
// disk.
func (s *Store) Register(ctx context.Context, device string, reg Registration) error {
	if !deviceID.MatchString(device) {
		return fault.InvalidField(
			"device", "must have 1 to 128 letters, digits and . _ : - and begin with a letter or digit",
		)
	}
	texts := map[string]string{"name": reg.Name, "model": reg.Model, "firmware_version": reg.FirmwareVersion}
	for k, v := range reg.Labels {
		if k == "" || len(k) > 128 {
			return fault.InvalidField("labels", "a key must have 1 to 128 bytes")
		}
		texts["labels."+k] = k + v
	}
	for field, given := range texts {
		if err := text.Check(field, given); err != nil {
			return err
		}
	}
	encoded, err := json.Marshal(reg)
	if err != nil {
		return err
	}
	if err := s.db.Room(ctx); err != nil {
		return err
	}
	s.files.Lock()
	defer s.files.Unlock()
	err = s.db.Update(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO devices (device_id, registration, pending_registration) VALUES (?, ?, 1)
			ON CONFLICT (device_id) DO UPDATE SET registration = excluded.registration, pending_registration = devices.pending_registration + 1, error = ''`, device, string(encoded))
		return err
	})
	if err != nil {
		return err
	}
	s.nudge()
	r, err := s.row(ctx, s.db, device)
	if err != nil {
		return err
	}
	return s.fileFault(s.writeFile(device, r.DesiredVersion, json.RawMessage(r.Desired)))
}

func (s *Store) fileFault(err error) error {
	if err == nil {
		return nil
	}
	return fault.Wrap(fault.StorageFailed, err, "the device's file in %s could not be written", s.folder)
}

// Patch merges a patch into a device's reported state (RFC 7396). When it returns nil, the patch is
// on disk.
func (s *Store) Patch(ctx context.Context, device string, patch json.RawMessage) error {
	patch, err := cleanPatch(patch)
	if err != nil {
		return err
	}
	if err := s.db.Room(ctx); err != nil {
		return err
	}
	err = s.db.Update(ctx, func(tx *db.Tx) error {
		r, err := s.row(ctx, tx, device)
		if err != nil {
			return err
		}
		base := json.RawMessage(r.Reported)
		sum, touched, err := composed(base, json.RawMessage(r.Touched), json.RawMessage(r.Patch), patch)
		if err != nil {
			return err
		}
		after, err := merged(base, sum)
		if err != nil {
			return err
		}
		if len(after) > MaxBytes || len(sum) > MaxBytes {
			return tooLarge()
		}
		_, err = tx.Exec(
			ctx,
			"UPDATE devices SET patch = ?, touched = ?, pending_patch = pending_patch + 1, error = '' WHERE device_id = ?",
			string(sum), string(touched), device,
		)
		return err
	})
	if err == nil {
		s.nudge()
	}
	return err
}
