package record

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/jobs"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
)

// EventType is where an event comes from.
type EventType string

// The types of events.
const (
	EventAudit EventType = "audit" // somebody has changed something
	EventJob   EventType = "job"   // a job has ended
	EventAlert EventType = "alert" // an alert has opened or is resolved
)

// Event is something that happened.
type Event struct {
	Type         EventType `db:"-"`
	ID           string    `db:"id"` // unique together with Type and Kind
	At           db.Time   `db:"at"`
	Kind         string    `db:"kind"` // for example "volume.create", "job.failed" or "alert.opened"
	Message      string    `db:"message"`
	Actor        string    `db:"actor"`
	Tenant       string    `db:"tenant"`
	ResourceType string    `db:"resource_type"` // of alerts: the kind of the alert
	ResourceID   string    `db:"resource_id"`
	Place        int64     `db:"place"` // of audit entries: their number

	after string
}

// Key orders events, which come from three lists: it says how far each of them has been read.
func (e Event) Key() string { return e.after }

// EventFilter selects events. Empty fields select all.
type EventFilter struct {
	Type             EventType
	Tenant, Resource string
}

// position is how far the lists have been read, each down to the last event that was taken.
type position struct {
	seq   int64 // of the audit log
	job   moment
	alert moment
}

// moment is a place in a list that is ordered by time and id.
type moment struct {
	at int64 // microseconds since 1970
	id string
}

// String returns the position as a text, which parsePosition reads. Ids have neither spaces nor semicolons.
func (p position) String() string {
	return fmt.Sprintf("%d;%d %s;%d %s", p.seq, p.job.at, p.job.id, p.alert.at, p.alert.id)
}

func parsePosition(text string) (p position, err error) {
	p = position{math.MaxInt64, moment{at: math.MaxInt64}, moment{at: math.MaxInt64}}
	if text == "" {
		return p, nil
	}
	parts := strings.Split(text, ";")
	if len(parts) != 3 {
		return p, fault.InvalidField("cursor", "is not one of this list")
	}
	_, err = fmt.Sscanf(parts[0], "%d", &p.seq)
	for i, m := range []*moment{&p.job, &p.alert} {
		at, id, _ := strings.Cut(parts[i+1], " ")
		if _, scanErr := fmt.Sscanf(at, "%d", &m.at); scanErr != nil {
			err = scanErr
		}
		m.id = id
	}
	if err != nil {
		return p, fault.InvalidField("cursor", "is not one of this list")
	}
	return p, nil
}

// Events lists what happened in the caller's scope, newest first, after a Key.
func (s *Store) Events(ctx context.Context, f EventFilter, after string, limit int) ([]Event, error) {
	at, err := parsePosition(after)
	if err != nil {
		return nil, err
	}
	var lists [][]Event
	for _, source := range []struct {
		kind EventType
		read func(context.Context, EventFilter, position, int) ([]Event, error)
	}{{EventAudit, s.auditEvents}, {EventJob, s.jobEvents}, {EventAlert, s.alertEvents}} {
		if f.Type != "" && f.Type != source.kind {
			continue
		}
		found, err := source.read(ctx, f, at, limit)
		if err != nil {
			return nil, err
		}
		for i := range found {
			found[i].Type = source.kind
		}
		lists = append(lists, found)
	}
	return merge(lists, at, limit), nil
}

// merge takes the newest events of lists that are ordered themselves, and notes after each how far the lists were read.
func merge(lists [][]Event, at position, limit int) (out []Event) {
	for len(out) < limit {
		newest := -1
		for i := range lists {
			if len(lists[i]) > 0 && (newest < 0 || lists[i][0].At.After(lists[newest][0].At.Time)) {
				newest = i
			}
		}
		if newest < 0 {
			return out
		}
		e := lists[newest][0]
		lists[newest] = lists[newest][1:]
		switch read := (moment{e.At.UnixMicro(), e.ID}); e.Type {
		case EventAudit:
			at.seq = e.Place
		case EventJob:
			at.job = read
		case EventAlert:
			at.alert = read
		}
		e.after = at.String()
		out = append(out, e)
	}
	return out
}

// where returns a condition on events, with its arguments.
func (f EventFilter) where(ctx context.Context, tenant, resource string) (condition string, args []any) {
	c := caller.From(ctx)
	conditions := []string{"1 = 1"}
	for _, w := range []struct {
		column, value string
		given         bool
	}{
		{tenant, cmp.Or(c.Tenant, f.Tenant), !c.SeesAll() || f.Tenant != ""}, {resource, f.Resource, f.Resource != ""},
	} {
		if w.given {
			conditions, args = append(conditions, w.column+" = ?"), append(args, w.value)
		}
	}
	return strings.Join(conditions, " AND "), args
}

func (s *Store) auditEvents(ctx context.Context, f EventFilter, at position, limit int) (all []Event, err error) {
	where, args := f.where(ctx, "tenant", "target")
	// An expression has no index: that of the tenant or the target is used.
	err = s.db.Select(ctx, &all, `SELECT id, time AS at, action AS kind, message, actor, tenant, '' AS resource_type,
		target AS resource_id, seq AS place FROM audit_entries WHERE seq < ? AND result || '' = 'ok' AND `+where+`
		ORDER BY seq DESC LIMIT ?`, slices.Concat([]any{at.seq}, args, []any{limit})...)
	for i := range all {
		if dot := strings.LastIndexByte(all[i].Kind, '.'); dot > 0 {
			all[i].ResourceType = all[i].Kind[:dot]
		}
	}
	return all, err
}

func (s *Store) jobEvents(ctx context.Context, f EventFilter, at position, limit int) (all []Event, err error) {
	where, args := f.where(ctx, "o.tenant", "o.resource_id")
	return all, s.db.Select(ctx, &all, `SELECT j.id, j.finished_at AS at, 'job.' || j.state AS kind,
		CASE WHEN j.state = ? THEN o.kind || ': ' || j.error ELSE o.kind END AS message, o.actor, o.tenant, o.resource_type,
		o.resource_id, 0 AS place FROM jobs j JOIN operations o ON o.id = j.id
		WHERE (j.finished_at < ? OR j.finished_at = ? AND j.id < ?) AND `+where+`
		ORDER BY j.finished_at DESC, j.id DESC LIMIT ?`,
		slices.Concat([]any{jobs.Failed, at.job.at, at.job.at, at.job.id}, args, []any{limit})...)
}

func (s *Store) alertEvents(ctx context.Context, f EventFilter, at position, limit int) (all []Event, err error) {
	where, args := f.where(ctx, "org_id", "subject")
	half := func(id, when, kind, actor string) string {
		return fmt.Sprintf(`SELECT '%s' || id AS id, %s AS at, '%s' AS kind, message, %s AS actor, org_id AS tenant,
			kind AS resource_type, subject AS resource_id, 0 AS place FROM alerts WHERE %s IS NOT NULL AND %s`,
			id, when, kind, actor, when, where)
	}
	return all, s.db.Select(ctx, &all, "SELECT * FROM ("+half("a-", "first_seen_at", "alert.opened", "''")+" UNION ALL "+
		half("b-", "resolved_at", "alert.resolved", "resolved_by")+`) AS e WHERE at < ? OR at = ? AND id < ?
		ORDER BY at DESC, id DESC LIMIT ?`,
		slices.Concat(args, args, []any{at.alert.at, at.alert.at, at.alert.id, limit})...)
}
