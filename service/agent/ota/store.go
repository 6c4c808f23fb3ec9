package ota

import (
	"context"
	"errors"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
)

// Update is the stored state of a device's update.
type Update struct {
	DeviceID  string  `db:"device_id"`
	RequestID string  `db:"request_id"`
	Version   string  `db:"version"`
	URL       string  `db:"url"`
	SHA256    string  `db:"sha256"`
	Size      int64   `db:"size"`   // 0 means unknown
	Forced    bool    `db:"forced"` // install even if the device already has the version
	Phase     Phase   `db:"phase"`
	Progress  int     `db:"progress"`
	Message   string  `db:"message"`
	StartedAt db.Time `db:"started_at"`
	UpdatedAt db.Time `db:"updated_at"`
}

// Report is an update report that has not been answered yet.
type Report struct {
	Seq       int64  `db:"seq"`
	DeviceID  string `db:"device_id"`
	RequestID string `db:"request_id"`
	State     Phase  `db:"state"`
	Progress  int    `db:"progress"`
	Message   string `db:"message"`
}

const maxMessage = 1024 // bytes, the control plane's limit

func (m *Manager) load(ctx context.Context, q db.Querier, device string) (Update, bool, error) {
	var u Update
	err := q.Get(ctx, &u, "SELECT * FROM updates WHERE device_id = ?", device)
	if errors.Is(err, db.ErrNoRows) {
		return u, false, nil
	}
	return u, err == nil, err
}

// active lists the updates that have not ended, oldest first.
func (m *Manager) active(ctx context.Context) ([]Update, error) {
	var all []Update
	err := m.cfg.DB.Select(
		ctx, &all,
		"SELECT * FROM updates WHERE phase NOT IN ('succeeded', 'rejected', 'already_installed', 'failed', 'rolled_back', 'stopped') ORDER BY started_at, device_id",
	)
	return all, err
}

// List returns the updates after the given device, ordered by device.
func (m *Manager) List(ctx context.Context, after string, limit int) ([]Update, error) {
	updates := []Update{}
	err := m.cfg.DB.Select(
		ctx, &updates, "SELECT * FROM updates WHERE device_id > ? ORDER BY device_id LIMIT ?", after, limit,
	)
	return updates, err
}

// enter stores a new phase of an update together with its report. It returns false if another
// update has replaced this one.
func (m *Manager) enter(ctx context.Context, u *Update, to Phase, message string) (current bool, err error) {
	now, progress := db.At(m.cfg.Now()), u.Progress
	if to == Downloaded || to == AlreadyInstalled {
		progress = 100
	}
	err = m.cfg.DB.Update(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(
			ctx,
			"UPDATE updates SET phase = ?, progress = ?, message = ?, updated_at = ? WHERE device_id = ? AND request_id = ? AND phase = ?",
			string(to), progress, message, now, u.DeviceID, u.RequestID, string(u.Phase),
		)
		if current = n > 0; err != nil || !current {
			return err
		}
		return addReport(
			ctx, tx,
			Report{DeviceID: u.DeviceID, RequestID: u.RequestID, State: to, Progress: progress, Message: message},
		)
	})
	if err == nil && current {
		u.Phase, u.Message, u.Progress, u.UpdatedAt = to, message, progress, now
		m.nudge(m.reported)
	}
	return current, err
}

func addReport(ctx context.Context, tx *db.Tx, r Report) error {
	_, err := tx.Exec(
		ctx, "INSERT INTO update_reports (device_id, request_id, state, progress, message) VALUES (?, ?, ?, ?, ?)",
		r.DeviceID, r.RequestID, string(r.State), r.Progress, r.Message,
	)
	return err
}

// progress stores the progress of a download, and why its last attempt failed; the message is empty
// if it is making progress. It changes a report of the download that is still waiting, so that
// reports do not pile up while there is no link.
func (m *Manager) progress(ctx context.Context, u *Update, percent int, message string) error {
	err := m.cfg.DB.Update(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(
			ctx,
			"UPDATE updates SET progress = ?, message = ?, updated_at = ? WHERE device_id = ? AND request_id = ? AND phase = 'downloading'",
			percent, message, db.At(m.cfg.Now()), u.DeviceID, u.RequestID,
		)
		if err != nil || n == 0 {
			return err
		}
		n, err = tx.Exec(
			ctx,
			"UPDATE update_reports SET progress = ?, message = ? WHERE device_id = ? AND request_id = ? AND state = 'downloading'",
			percent, message, u.DeviceID, u.RequestID,
		)
		if err != nil || n > 0 {
			return err
		}
		return addReport(
			ctx, tx,
			Report{DeviceID: u.DeviceID, RequestID: u.RequestID, State: Downloading, Progress: percent, Message: message},
		)
	})
	if err == nil {
		u.Progress, u.Message = percent, message
		m.nudge(m.reported)
	}
	return err
}

// NextReport returns the oldest unanswered report of a device that is not among except, or nil if
// there is none.
func (m *Manager) NextReport(ctx context.Context, except ...string) (*Report, error) {
	var r Report
	query, args, err := db.In(
		"SELECT * FROM update_reports WHERE device_id NOT IN (?) ORDER BY seq LIMIT 1", append([]string{""}, except...), // a list must have an item
	)
	if err != nil {
		return nil, err
	}
	err = m.cfg.DB.Get(ctx, &r, query, args...)
	if errors.Is(err, db.ErrNoRows) {
		return nil, nil
	}
	return &r, err
}

// Told records that the control plane has answered a report. unwanted means that it accepts no more
// reports of this request; then the update is stopped.
func (m *Manager) Told(ctx context.Context, r *Report, unwanted bool) error {
	err := m.cfg.DB.Settle(ctx, func(tx *db.Tx) error {
		if unwanted {
			return m.stopIn(ctx, tx, r.DeviceID, r.RequestID)
		}
		// If the progress or the message has changed since, the report is sent again.
		_, err := tx.Exec(
			ctx, "DELETE FROM update_reports WHERE seq = ? AND progress = ? AND message = ?", r.Seq, r.Progress, r.Message,
		)
		return err
	})
	if err == nil && unwanted {
		m.interrupt(r.DeviceID, r.RequestID)
	}
	return err
}

// stopIn ends an update that is no longer wanted.
func (m *Manager) stopIn(ctx context.Context, tx *db.Tx, device, request string) error {
	if _, err := tx.Exec(
		ctx, "DELETE FROM update_reports WHERE device_id = ? AND request_id = ?", device, request,
	); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `UPDATE updates SET phase = 'stopped', updated_at = ? WHERE device_id = ? AND request_id = ?
		AND phase NOT IN ('succeeded', 'rejected', 'already_installed', 'failed', 'rolled_back')`, db.At(m.cfg.Now()), device, request)
	return err
}

// Want applies the update that a device's twin asks for.
func (m *Manager) Want(ctx context.Context, w Wanted) error {
	have, known, err := m.load(ctx, m.cfg.DB, w.DeviceID)
	if err != nil {
		return err
	}
	if known && w.Request != nil && have.RequestID == w.Request.RequestID {
		if !have.Phase.Terminal() || have.Phase == Stopped || m.untold(ctx, have) {
			return nil // in progress, or its result is about to be reported
		}
		// The control plane has lost the result (it was restored from a backup).
		err := m.cfg.DB.Update(ctx, func(tx *db.Tx) error {
			return addReport(ctx, tx, Report{
				DeviceID:  have.DeviceID,
				RequestID: have.RequestID,
				State:     have.Phase,
				Progress:  have.Progress,
				Message:   have.Message,
			})
		})
		m.nudge(m.reported)
		return err
	}
	if w.Request == nil && (!known || have.Phase.Terminal() && !m.untold(ctx, have)) {
		return nil
	}
	err = m.cfg.DB.Update(ctx, func(tx *db.Tx) error {
		if known {
			if err := m.stopIn(ctx, tx, have.DeviceID, have.RequestID); err != nil {
				return err
			}
		}
		if w.Request == nil {
			return nil
		}
		r, now := w.Request, db.At(m.cfg.Now())
		u := Update{
			DeviceID:  w.DeviceID,
			RequestID: r.RequestID,
			Version:   r.Version,
			URL:       r.URL,
			SHA256:    r.SHA256,
			Size:      r.Size,
			Forced:    r.Force,
			Phase:     Pending,
			StartedAt: now,
			UpdatedAt: now,
		}
		var refusal string
		switch w.State {
		case Pending, Downloading: // can be started again
		default:
			// The update was in progress, but its state is lost.
			u.Phase, refusal = Failed, "the agent lost what it knew of this update (its data folder was replaced) in state "+string(
				w.State,
			)
		}
		if _, err := tx.Exec(ctx, "DELETE FROM updates WHERE device_id = ?", w.DeviceID); err != nil {
			return err
		}
		if refusal != "" {
			u.Message = refusal
			if err := addReport(
				ctx, tx, Report{DeviceID: u.DeviceID, RequestID: u.RequestID, State: Failed, Message: refusal},
			); err != nil {
				return err
			}
		}
		return tx.Insert(ctx, "updates", u)
	})
	if err != nil {
		return err
	}
	if known {
		m.interrupt(have.DeviceID, have.RequestID)
	}
	m.nudge(m.wanted)
	m.nudge(m.reported)
	return nil
}

// untold reports whether an update has unanswered reports.
func (m *Manager) untold(ctx context.Context, u Update) bool {
	var n int
	err := m.cfg.DB.Get(
		ctx, &n, "SELECT COUNT(*) FROM update_reports WHERE device_id = ? AND request_id = ?", u.DeviceID, u.RequestID,
	)
	return err == nil && n > 0
}

// Retain stops the updates of all devices that are not in devices.
func (m *Manager) Retain(ctx context.Context, devices map[string]bool) error {
	var known []string
	if err := m.cfg.DB.Select(ctx, &known, "SELECT device_id FROM updates"); err != nil {
		return err
	}
	for _, device := range known {
		if devices[device] {
			continue
		}
		u, ok, err := m.load(ctx, m.cfg.DB, device)
		if err != nil {
			return err
		}
		if !ok {
			continue // it has ended and was removed since
		}
		if err := m.cfg.DB.Update(ctx, func(tx *db.Tx) error {
			if err := m.stopIn(ctx, tx, device, u.RequestID); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "DELETE FROM updates WHERE device_id = ?", device)
			return err
		}); err != nil {
			return err
		}
		m.interrupt(device, u.RequestID)
	}
	return nil
}

// downloadTime returns how much longer a download may take.
func (m *Manager) downloadTime(u *Update) time.Duration {
	return m.cfg.DownloadTimeout - m.cfg.Now().Sub(u.StartedAt.Time)
}
