package twin

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// PendingRegistration is a registration that must be sent. Number identifies it in Registered.
type PendingRegistration struct {
	DeviceID string
	Number   int64
	Registration
}

// NextRegistration returns a registration to send, of the first device after the given one, or nil
// if there is none.
func (s *Store) NextRegistration(ctx context.Context, after string) (*PendingRegistration, error) {
	var r deviceRow
	err := s.db.Get(
		ctx, &r,
		"SELECT * FROM devices WHERE pending_registration > 0 AND device_id > ? ORDER BY device_id LIMIT 1", after,
	)
	if errors.Is(err, db.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p := &PendingRegistration{DeviceID: r.DeviceID, Number: r.PendingReg}
	return p, json.Unmarshal([]byte(r.Registration), &p.Registration)
}

// Registered records that the control plane has answered a registration. refusal is the reason if
// it was refused, or empty. A registration that has changed since stays pending.
func (s *Store) Registered(ctx context.Context, p *PendingRegistration, refusal string) error {
	return s.db.Settle(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(
			ctx,
			"UPDATE devices SET pending_registration = 0, error = ? WHERE device_id = ? AND pending_registration = ?",
			refusal, p.DeviceID, p.Number,
		)
		return err
	})
}

// RegisterAll makes all registrations pending again, for a control plane that does not know the
// devices under this site.
func (s *Store) RegisterAll(ctx context.Context) error {
	err := s.db.Update(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(
			ctx, "UPDATE devices SET pending_registration = pending_registration + 1 WHERE registration <> ''",
		)
		return err
	})
	if err == nil {
		s.nudge()
	}
	return err
}

// PendingPatch is a patch that must be sent.
type PendingPatch struct {
	DeviceID string `db:"device_id"`
	Number   int64  `db:"pending_patch"`
	Patch    string `db:"patch"`
}

// NextPatch returns a patch to send, of the first device after the given one whose registration is
// not pending, or nil if there is none.
func (s *Store) NextPatch(ctx context.Context, after string) (*PendingPatch, error) {
	var p PendingPatch
	err := s.db.Get(ctx, &p, `SELECT device_id, pending_patch, patch FROM devices
		WHERE pending_patch > 0 AND pending_registration = 0 AND device_id > ? ORDER BY device_id LIMIT 1`, after)
	if errors.Is(err, db.ErrNoRows) {
		return nil, nil
	}
	return &p, err
}

// Patched records that the control plane has merged a patch, with the new reported state. If
// programs have added to the patch since, the combined patch stays pending.
func (s *Store) Patched(ctx context.Context, p *PendingPatch, reported json.RawMessage, version int64) error {
	return s.db.Settle(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE devices SET patch = CASE WHEN pending_patch = ? THEN '' ELSE patch END,
			pending_patch = CASE WHEN pending_patch = ? THEN 0 ELSE pending_patch END, reported = ?, reported_version = ? WHERE device_id = ?`,
			p.Number, p.Number, string(reported), version, p.DeviceID)
		return err
	})
}

// Refused deletes a patch that the control plane will never merge.
func (s *Store) Refused(ctx context.Context, p *PendingPatch, reason string) error {
	return s.db.Settle(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(
			ctx,
			"UPDATE devices SET patch = '', pending_patch = 0, error = ? WHERE device_id = ? AND pending_patch = ?",
			reason, p.DeviceID, p.Number,
		)
		return err
	})
}

// Pulled is a twin from the control plane.
type Pulled struct {
	DeviceID                        string
	Desired, Reported               json.RawMessage
	DesiredVersion, ReportedVersion int64
}

// Pull stores a page of twins.
func (s *Store) Pull(ctx context.Context, page []Pulled) error {
	s.files.Lock()
	defer s.files.Unlock()
	err := s.db.Update(ctx, func(tx *db.Tx) error {
		for _, p := range page {
			// Do not write unchanged rows again, since small machines have flash storage.
			if _, err := tx.Exec(
				ctx,
				`INSERT INTO devices (device_id, desired, desired_version, reported, reported_version) VALUES (?, ?, ?, ?, ?)
				ON CONFLICT (device_id) DO UPDATE SET desired = excluded.desired, desired_version = excluded.desired_version,
				reported = excluded.reported, reported_version = excluded.reported_version
				WHERE devices.desired_version <> excluded.desired_version OR devices.reported_version <> excluded.reported_version OR devices.desired <> excluded.desired`,
				p.DeviceID,
				string(p.Desired),
				p.DesiredVersion,
				string(p.Reported),
				p.ReportedVersion,
			); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, p := range page {
		if err := s.fileFault(s.writeFile(p.DeviceID, p.DesiredVersion, p.Desired)); err != nil {
			return err
		}
	}
	return nil
}

// Retain completes a pull: it deletes devices that were in none of its pages. It keeps devices
// whose registration is pending or was refused, since the control plane cannot know them.
func (s *Store) Retain(ctx context.Context, pulled map[string]bool) error {
	s.files.Lock()
	defer s.files.Unlock()
	var gone []string
	var known []string
	if err := s.db.Select(
		ctx, &known, "SELECT device_id FROM devices WHERE pending_registration = 0 AND error = ''",
	); err != nil {
		return err
	}
	for _, device := range known {
		if !pulled[device] {
			gone = append(gone, device)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	err := s.db.Update(ctx, func(tx *db.Tx) error {
		for _, device := range gone {
			if _, err := tx.Exec(
				ctx, "DELETE FROM devices WHERE device_id = ? AND pending_registration = 0", device,
			); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, device := range gone {
		if _, err := s.row(ctx, s.db, device); err == nil || !fault.Is(err, fault.NotFound) {
			continue // registered again in the meantime
		}
		if err := s.removeFile(device); err != nil {
			return s.fileFault(err)
		}
	}
	return nil
}
