package alert_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/mainstay-infra/mainstay/kit/alert"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

var tables = dbtest.Migrations{
	"alerts": alert.Migrations(),
	"demo": fstest.MapFS{"0001_demo.sql": {Data: []byte(`-- +goose Up
CREATE TABLE disks (id TEXT PRIMARY KEY, org_id TEXT NOT NULL, site_id TEXT NOT NULL, used BIGINT NOT NULL);
-- +goose Down
DROP TABLE disks;
`)}},
}

// house is a service whose disks fill up.
type house struct {
	*testing.T
	db     *db.DB
	alerts *alert.Alerts
	now    time.Time
	told   []string // what Changed was told, in committed transactions
	fail   error    // of Changed
}

func each(t *testing.T, test func(h *house)) {
	t.Helper()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		h := &house{T: t, db: d, now: time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)}
		h.alerts = alert.New(alert.Config{
			DB: d, Now: func() time.Time { return h.now },
			Changed: func(_ context.Context, tx *db.Tx, changed []alert.Alert) error {
				lines := []string{}
				for _, a := range changed {
					line := a.Status + " " + a.Subject
					if a.Silenced() {
						line += " silently"
					}
					lines = append(lines, line)
				}
				tx.OnCommit(func() { h.told = append(h.told, lines...) })
				return h.fail
			},
		})
		test(h)
	})
}

var full = alert.Rule{
	Kind: "disk_full", Severity: "critical",
	Query: `SELECT id AS subject, org_id, site_id, 'disk ' || id || ' is full' AS message,
		'{"used": ' || CAST(used AS TEXT) || '}' AS evidence FROM disks WHERE used > ?`,
	Args: []any{90}, Evidence: true,
}

func (h *house) update(f func(tx *db.Tx) error) error {
	h.Helper()
	return h.db.Update(h.Context(), f)
}

// disk sets how full a disk is. The first letter of its id is its org.
func (h *house) disk(id string, used int) {
	h.Helper()
	if err := h.update(func(tx *db.Tx) error {
		_, err := tx.Exec(h.Context(), `INSERT INTO disks (id, org_id, site_id, used) VALUES (?, ?, 'here', ?)
			ON CONFLICT (id) DO UPDATE SET used = excluded.used`, id, id[:1], used)
		return err
	}); err != nil {
		h.Fatal(err)
	}
}

// sweep returns the alerts that a sweep one minute later reports.
func (h *house) sweep(rules ...alert.Rule) string {
	h.Helper()
	h.told, h.now = nil, h.now.Add(time.Minute)
	if err := h.alerts.Sweep(h.Context(), append([]alert.Rule{full}, rules...)); err != nil {
		h.Fatal(err)
	}
	slices.Sort(h.told)
	return strings.Join(h.told, ", ")
}

func (h *house) list(scope db.Scope, f alert.Filter) []alert.Alert {
	h.Helper()
	if f.Limit == 0 {
		f.Limit = 100
	}
	list, err := h.alerts.List(h.Context(), scope, f)
	if err != nil {
		h.Fatal(err)
	}
	return list
}

// firing returns the firing alert for a disk.
func (h *house) firing(id string) alert.Alert {
	h.Helper()
	for _, a := range h.list(db.All(), alert.Filter{Status: alert.Firing}) {
		if a.Subject == id {
			return a
		}
	}
	h.Fatalf("no alert fires for %s", id)
	return alert.Alert{}
}

func TestAlertsFollowFromWhatTheirRuleFinds(t *testing.T) {
	t.Parallel()
	each(t, func(h *house) {
		h.disk("a1", 95)
		h.disk("a2", 50)
		if got := h.sweep(); got != "firing a1" {
			h.Errorf("first: %s", got)
		}
		if got := h.sweep(); got != "" {
			h.Errorf("nothing changed: %s", got)
		}
		h.disk("a1", 50)
		h.disk("a2", 95)
		if got := h.sweep(); got != "firing a2, resolved a1" {
			h.Errorf("then: %s", got)
		}
		list := h.list(db.All(), alert.Filter{})
		if len(list) != 2 || list[0].Subject != "a2" || list[0].Status != alert.Firing || list[0].LastSeenAt != db.At(h.now) ||
			list[0].Message != "disk a2 is full" || list[0].Evidence != `{"used": 95}` || list[0].Severity != "critical" || list[0].OrgID != "a" || list[0].SiteID != "here" ||
			list[1].Status != alert.Resolved || list[1].ResolvedAt != db.At(h.now) || list[1].ResolvedBy != "" {
			h.Errorf("%+v", list)
		}
		h.disk("a1", 95)
		if got := h.sweep(); got != "firing a1" || len(h.list(db.All(), alert.Filter{})) != 3 {
			h.Errorf("again: %s", got)
		}
	})
}

func TestASweepGoesPageByPageAndARuleThatFailsStopsNoOther(t *testing.T) {
	t.Parallel()
	each(t, func(h *house) {
		const disks = 1100
		if err := h.update(func(tx *db.Tx) error {
			for n := range disks {
				if _, err := tx.Exec(
					h.Context(), "INSERT INTO disks (id, org_id, site_id, used) VALUES (?, 'a', '', 99)", fmt.Sprint("d", n),
				); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			h.Fatal(err)
		}
		err := h.alerts.Sweep(h.Context(), []alert.Rule{{Kind: "broken", Query: "SELECT nothing FROM nowhere"}, full})
		if err == nil || len(h.told) != disks {
			h.Errorf("%d alerts, %v", len(h.told), err)
		}
		if err := h.update(func(tx *db.Tx) error {
			_, err := tx.Exec(h.Context(), "DELETE FROM disks")
			return err
		}); err != nil {
			h.Fatal(err)
		}
		h.sweep()
		if len(h.told) != disks {
			h.Errorf("%d alerts resolved", len(h.told))
		}
	})
}

func TestNothingFiresUnlessItIsTold(t *testing.T) {
	t.Parallel()
	each(t, func(h *house) {
		h.disk("a1", 95)
		h.fail = errors.New("no room for the line")
		if err := h.alerts.Sweep(h.Context(), []alert.Rule{full}); !errors.Is(err, h.fail) {
			h.Errorf("%v", err)
		}
		if list := h.list(db.All(), alert.Filter{}); len(list) != 0 {
			h.Errorf("%+v", list)
		}
	})
}

func TestAnAlertIsHandledByWhoMaySeeItAndWhileItFires(t *testing.T) {
	t.Parallel()
	each(t, func(h *house) {
		h.disk("a1", 95)
		h.sweep()
		id := h.firing("a1").ID
		until := h.now.Add(time.Hour)
		verbs := map[string]func(tx *db.Tx, scope db.Scope, id string) (alert.Alert, error){
			"acknowledge": func(tx *db.Tx, scope db.Scope, id string) (alert.Alert, error) {
				return h.alerts.Acknowledge(h.Context(), tx, scope, id, "ops", "mine")
			},
			"silence": func(tx *db.Tx, scope db.Scope, id string) (alert.Alert, error) {
				return h.alerts.Silence(h.Context(), tx, scope, id, "ops", "work", until)
			},
			"resolve": func(tx *db.Tx, scope db.Scope, id string) (alert.Alert, error) {
				return h.alerts.Resolve(h.Context(), tx, scope, id, "ops")
			},
		}
		handle := func(verb string, scope db.Scope, id string) (a alert.Alert, err error) {
			err = h.update(func(tx *db.Tx) error {
				a, err = verbs[verb](tx, scope, id)
				return err
			})
			return a, err
		}
		for verb := range verbs {
			for _, scope := range []db.Scope{{}, db.Where("org_id = ?", "b")} {
				if _, err := handle(verb, scope, id); !fault.Is(err, fault.NotFound) {
					h.Errorf("%s by who may not see it: %v", verb, err)
				}
			}
			if _, err := handle(verb, db.All(), "none"); !fault.Is(err, fault.NotFound) {
				h.Errorf("%s of none: %v", verb, err)
			}
		}
		own := db.Where("org_id = ?", "a")
		if a, err := handle("acknowledge", own, id); err != nil || a.AcknowledgedBy != "ops" || a.AcknowledgeNote != "mine" ||
			a.AcknowledgedAt != db.At(h.now) || a.Status != alert.Firing {
			h.Errorf("%+v, %v", a, err)
		}
		if a, err := handle("silence", own, id); err != nil || !a.Silenced() || a.SilencedUntil != db.At(until) ||
			a.SilencedBy != "ops" || a.SilenceReason != "work" {
			h.Errorf("%+v, %v", a, err)
		}
		h.told = nil
		if a, err := handle("resolve", own, id); err != nil || a.Status != alert.Resolved || a.ResolvedBy != "ops" ||
			a.ResolvedAt != db.At(h.now) || a.AcknowledgedBy != "ops" || a.Silenced() {
			h.Errorf("%+v, %v", a, err)
		}
		if fmt.Sprint(h.told) != "[resolved a1 silently]" {
			h.Errorf("%s", h.told)
		}
		for verb := range verbs {
			if _, err := handle(verb, own, id); !fault.Is(err, fault.Conflict) {
				h.Errorf("%s of what has resolved: %v", verb, err)
			}
		}
		// The disk is still full.
		if got := h.sweep(); got != "firing a1 silently" || h.firing("a1").AcknowledgedBy != "" {
			h.Errorf("%s, %+v", got, h.firing("a1"))
		}
	})
}

func TestASilenceEndsByItselfOrByHand(t *testing.T) {
	t.Parallel()
	each(t, func(h *house) {
		h.disk("a1", 95)
		h.disk("a2", 95)
		h.sweep()
		silence := func(id string) {
			h.Helper()
			if err := h.update(func(tx *db.Tx) error {
				_, err := h.alerts.Silence(h.Context(), tx, db.All(), h.firing(id).ID, "ops", "work", h.now.Add(time.Hour))
				return err
			}); err != nil {
				h.Fatal(err)
			}
		}
		silence("a1")
		silence("a2")
		if err := h.update(func(tx *db.Tx) error {
			a, err := h.alerts.Unsilence(h.Context(), tx, db.All(), h.firing("a2").ID)
			if a.Silenced() {
				h.Errorf("%+v", a)
			}
			return err
		}); err != nil {
			h.Fatal(err)
		}
		if !h.firing("a1").Silenced() || h.firing("a2").Silenced() {
			h.Error("the wrong silence was ended")
		}
		h.now = h.now.Add(time.Hour)
		if a := h.firing("a1"); a.Silenced() || a.SilencedBy != "" || a.SilenceReason != "" {
			h.Errorf("%+v", a)
		}
		h.disk("a1", 0)
		if got := h.sweep(); got != "resolved a1" {
			h.Error(got)
		}
	})
}

func TestWhatPeopleSayIsBounded(t *testing.T) {
	t.Parallel()
	each(t, func(h *house) {
		h.disk("a1", 95)
		h.sweep()
		id := h.firing("a1").ID
		for name, c := range map[string]struct {
			field, note string
			until       time.Duration
		}{
			"a long note":      {"note", strings.Repeat("x", alert.MaxNote+1), 0},
			"an escape in it":  {"note", "\x1b[2J", 0},
			"no reason":        {"reason", " \n", time.Hour},
			"a long reason":    {"reason", strings.Repeat("x", alert.MaxNote+1), time.Hour},
			"the past":         {"until", "r", 0},
			"more than a year": {"until", "r", alert.MaxSilence + time.Second},
		} {
			err := h.update(func(tx *db.Tx) (err error) {
				if c.field == "note" {
					_, err = h.alerts.Acknowledge(h.Context(), tx, db.All(), id, "ops", c.note)
				} else {
					_, err = h.alerts.Silence(h.Context(), tx, db.All(), id, "ops", c.note, h.now.Add(c.until))
				}
				return err
			})
			if !fault.Is(err, fault.Invalid) || fault.From(err).Field != c.field {
				h.Errorf("%s: %v", name, err)
			}
		}
		err := h.update(func(tx *db.Tx) error {
			_, err := h.alerts.Acknowledge(h.Context(), tx, db.All(), id, "ops", strings.Repeat("é", alert.MaxNote))
			return err
		})
		if err != nil {
			h.Errorf("a note of %d characters that take two bytes each: %v", alert.MaxNote, err)
		}
	})
}

func TestAlertsAreListedByPageAndCountedByGroup(t *testing.T) {
	t.Parallel()
	each(t, func(h *house) {
		warm := alert.Rule{
			Kind: "disk_warm", Severity: "warning",
			Query: "SELECT id AS subject, org_id, '' AS site_id, 'warm' AS message FROM disks WHERE used > 10",
		}
		for _, id := range []string{"a1", "a2", "b1"} {
			h.disk(id, 95)
			h.sweep(warm)
		}
		h.disk("a2", 50)
		h.sweep(warm)
		if err := h.update(func(tx *db.Tx) error {
			_, err := h.alerts.Acknowledge(h.Context(), tx, db.All(), h.firing("b1").ID, "ops", "")
			return err
		}); err != nil {
			h.Fatal(err)
		}
		var paged []string
		for f := (alert.Filter{Limit: 2}); ; {
			list := h.list(db.All(), f)
			for _, a := range list {
				paged = append(paged, a.Subject+" "+a.Kind)
			}
			if len(list) == 0 {
				break
			}
			f.After = list[len(list)-1].Cursor()
		}
		if got := strings.Join(paged, ", "); got != "b1 disk_warm, b1 disk_full, a2 disk_warm, a2 disk_full, a1 disk_warm, a1 disk_full" {
			h.Error(got)
		}
		yes, no := true, false
		for _, c := range []struct {
			scope db.Scope
			f     alert.Filter
			want  int
		}{
			{db.Scope{}, alert.Filter{}, 0},
			{db.Where("org_id = ?", "a"), alert.Filter{}, 4},
			{db.Where("org_id = ?", "a"), alert.Filter{Status: alert.Firing, Kind: "disk_full"}, 1},
			{db.All(), alert.Filter{Severity: "warning"}, 3},
			{db.All(), alert.Filter{SiteID: "here", Status: alert.Resolved}, 1},
			{db.All(), alert.Filter{Acknowledged: &yes}, 1},
			{db.All(), alert.Filter{Acknowledged: &no}, 5},
			{db.All(), alert.Filter{Silenced: &yes}, 0},
		} {
			if got := h.list(c.scope, c.f); len(got) != c.want {
				h.Errorf("%+v %+v: %d alerts, want %d", c.scope, c.f, len(got), c.want)
			}
		}
		for by, want := range map[string]string{
			"kind": "disk_warm 3, disk_full 2", "severity": "warning 3, critical 2", "site": " 3, here 2",
		} {
			groups, err := h.alerts.Groups(h.Context(), db.All(), by, alert.Filter{Status: alert.Firing, Limit: 10})
			var got []string
			var acknowledged int64
			for _, g := range groups {
				got = append(got, fmt.Sprint(g.Key, " ", g.Count))
				acknowledged += g.Acknowledged
			}
			if strings.Join(got, ", ") != want || acknowledged != 1 || err != nil {
				h.Errorf("by %s: %+v, %v", by, groups, err)
			}
		}
		if groups, err := h.alerts.Groups(h.Context(), db.Scope{}, "kind", alert.Filter{Limit: 10}); len(groups) != 0 || err != nil {
			h.Errorf("of nobody: %+v, %v", groups, err)
		}
		if _, err := h.alerts.Groups(h.Context(), db.All(), "id; DROP TABLE alerts", alert.Filter{Limit: 10}); !fault.Is(err, fault.Invalid) {
			h.Errorf("%v", err)
		}
		if _, err := h.alerts.List(h.Context(), db.All(), alert.Filter{After: "x", Limit: 1}); !fault.Is(err, fault.Invalid) {
			h.Errorf("%v", err)
		}
	})
}

func TestWhatIsOverIsDeletedAndNothingElse(t *testing.T) {
	t.Parallel()
	each(t, func(h *house) {
		for _, id := range []string{"a1", "a2"} {
			h.disk(id, 95)
		}
		h.sweep()
		if err := h.update(func(tx *db.Tx) error {
			for id, span := range map[string]time.Duration{"a1": time.Minute, "a2": 48 * time.Hour} {
				if _, err := h.alerts.Silence(
					h.Context(), tx, db.All(), h.firing(id).ID, "ops", "work", h.now.Add(span),
				); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			h.Fatal(err)
		}
		h.disk("a1", 0)
		h.sweep()
		h.now = h.now.Add(24 * time.Hour)
		for range 2 {
			if err := h.alerts.Expire(h.Context(), h.now.Add(-time.Hour)); err != nil {
				h.Fatal(err)
			}
		}
		if list := h.list(db.All(), alert.Filter{}); len(list) != 1 || !list[0].Silenced() {
			h.Errorf("%+v", list)
		}
		var silences int
		if err := h.db.Get(h.Context(), &silences, "SELECT count(*) FROM alert_silences"); err != nil || silences != 1 {
			h.Errorf("%d silences, %v", silences, err)
		}
	})
}
