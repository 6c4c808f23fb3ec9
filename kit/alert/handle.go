package alert

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/text"
)

// Limits of the input about alerts.
const (
	MaxNote    = 1000 // characters of a note or a reason
	MaxSilence = 366 * 24 * time.Hour
)

func checkNote(field, note string) error {
	if utf8.RuneCountInString(note) > MaxNote {
		return fault.InvalidField(field, "is longer than %d characters", MaxNote)
	}
	return text.Check(field, strings.NewReplacer("\n", " ", "\r", " ", "\t", " ").Replace(note))
}

func notFiring(id string) error {
	return fault.New(fault.Conflict, "alert %s has resolved", id).WithCode("alert_resolved")
}

// Acknowledge records that somebody is handling a firing alert. It replaces an earlier
// acknowledgement.
func (a *Alerts) Acknowledge(ctx context.Context, tx *db.Tx, scope db.Scope, id, by, note string) (Alert, error) {
	if err := checkNote("note", note); err != nil {
		return Alert{}, err
	}
	condition, args := scope.And("id = ? AND status = 'firing'", id).SQL()
	n, err := tx.Exec(
		ctx, "UPDATE alerts SET acknowledged_at = ?, acknowledged_by = ?, acknowledge_note = ? WHERE "+condition,
		append([]any{db.At(a.cfg.Now()), by, note}, args...)...)
	if err != nil {
		return Alert{}, err
	}
	found, err := a.Get(ctx, tx, scope, id)
	if err == nil && n == 0 {
		err = notFiring(id)
	}
	return found, err
}

// Silence suppresses notifications for a firing alert, and for later ones of the same kind and
// subject, until a time within MaxSilence. It replaces an existing silence.
func (a *Alerts) Silence(
	ctx context.Context, tx *db.Tx, scope db.Scope, id, by, reason string, until time.Time,
) (Alert, error) {
	if strings.TrimSpace(reason) == "" {
		return Alert{}, fault.InvalidField("reason", "is required")
	}
	if err := checkNote("reason", reason); err != nil {
		return Alert{}, err
	}
	now := a.cfg.Now()
	if !until.After(now) {
		return Alert{}, fault.InvalidField("until", "must be in the future")
	}
	if until.Sub(now) > MaxSilence {
		return Alert{}, fault.InvalidField("until", "must be within a year")
	}
	found, err := a.Get(ctx, tx, scope, id)
	if err != nil {
		return Alert{}, err
	}
	if found.Status != Firing {
		return Alert{}, notFiring(id)
	}
	if _, err := tx.Exec(
		ctx,
		`INSERT INTO alert_silences (kind, subject, silenced_until, silenced_by, silence_reason) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (kind, subject) DO UPDATE SET silenced_until = excluded.silenced_until,
			silenced_by = excluded.silenced_by, silence_reason = excluded.silence_reason`,
		found.Kind, found.Subject, db.At(until), by, reason,
	); err != nil {
		return Alert{}, err
	}
	return a.Get(ctx, tx, scope, id)
}

// Unsilence removes the silence of an alert's kind and subject, if there is one.
func (a *Alerts) Unsilence(ctx context.Context, tx *db.Tx, scope db.Scope, id string) (Alert, error) {
	found, err := a.Get(ctx, tx, scope, id)
	if err != nil {
		return Alert{}, err
	}
	if _, err := tx.Exec(
		ctx, "DELETE FROM alert_silences WHERE kind = ? AND subject = ?", found.Kind, found.Subject,
	); err != nil {
		return Alert{}, err
	}
	return a.Get(ctx, tx, scope, id)
}

// Resolve resolves a firing alert manually.
func (a *Alerts) Resolve(ctx context.Context, tx *db.Tx, scope db.Scope, id, by string) (Alert, error) {
	now := db.At(a.cfg.Now())
	condition, args := scope.And("id = ? AND status = 'firing'", id).SQL()
	var resolved []Alert
	if err := tx.Select(
		ctx, &resolved,
		"UPDATE alerts SET status = 'resolved', resolved_at = ?, last_seen_at = ?, resolved_by = ? WHERE "+condition+" RETURNING *",
		append([]any{now, now, by}, args...)...); err != nil {
		return Alert{}, err
	}
	if err := a.tell(ctx, tx, resolved, now); err != nil {
		return Alert{}, err
	}
	found, err := a.Get(ctx, tx, scope, id)
	if err == nil && len(resolved) == 0 {
		err = notFiring(id)
	}
	return found, err
}
