package audit_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
)

var tables = dbtest.Migrations{"audit": audit.Migrations()}

func newLog() *audit.Log { return audit.NewLog(bytes.Repeat([]byte{7}, 32), time.Now) }

func appendN(t *testing.T, d *db.DB, l *audit.Log, n int) {
	t.Helper()
	for i := range n {
		if err := d.Update(t.Context(), func(tx *db.Tx) error {
			return l.Append(t.Context(), tx, audit.Entry{Actor: "root", ActorType: audit.Admin, Action: "site.revoke", Target: fmt.Sprint(i), Tenant: "org"}, map[string]int{"i": i})
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func verify(t *testing.T, d *db.DB, l *audit.Log) audit.Verification {
	t.Helper()
	v, err := l.Verify(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestAnUntouchedLogVerifies(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		l := newLog()
		if v := verify(t, d, l); !v.OK || v.Entries != 0 {
			t.Errorf("empty log: %+v", v)
		}
		appendN(t, d, l, 5)
		if v := verify(t, d, l); !v.OK || v.Verified != 5 || v.HeadHash == "" {
			t.Errorf("%+v", v)
		}
	})
}

func TestEveryKindOfTamperingIsFound(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ statement, reason string }{
		"a changed field":      {"UPDATE audit_entries SET actor = 'nobody' WHERE seq = 3", "entry 3 was changed"},
		"a removed entry":      {"DELETE FROM audit_entries WHERE seq = 3", "entry 3 is missing"},
		"a cut tail":           {"DELETE FROM audit_entries WHERE seq > 3", "entries 4 to 5 are missing"},
		"a moved head":         {"UPDATE audit_head SET seq = 3", "signature"},
		"a forged signature":   {"UPDATE audit_head SET signature = 'AAAA'", "signature"},
		"two swapped entries":  {"UPDATE audit_entries SET target = CASE seq WHEN 2 THEN '2' ELSE '1' END WHERE seq IN (2, 3)", "entry 2 was changed"},
		"a rewritten own hash": {"UPDATE audit_entries SET hash = (SELECT hash FROM audit_entries WHERE seq = 1) WHERE seq = 5", "entry 5 was changed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, l := dbtest.SQLite(t, tables), newLog()
			appendN(t, d, l, 5)
			if err := d.Update(t.Context(), func(tx *db.Tx) error {
				_, err := tx.Exec(t.Context(), tt.statement)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if v := verify(t, d, l); v.OK || !strings.Contains(v.Reason, tt.reason) {
				t.Errorf("%+v, want reason %q", v, tt.reason)
			}
		})
	}
}

func TestConcurrentAppendsMakeOneChainWithoutGaps(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		l := newLog()
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { appendN(t, d, l, 5) })
		}
		all.Wait()
		if v := verify(t, d, l); !v.OK || v.Verified != 40 {
			t.Errorf("%+v", v)
		}
	})
}

func TestAnEntryIsNotKeptWhenItsChangeIsNot(t *testing.T) {
	t.Parallel()
	d, l := dbtest.SQLite(t, tables), newLog()
	_ = d.Update(t.Context(), func(tx *db.Tx) error {
		if err := l.Append(t.Context(), tx, audit.Entry{Actor: "a", ActorType: audit.System, Action: "x.y"}, nil); err != nil {
			t.Error(err)
		}
		return context.Canceled
	})
	if v := verify(t, d, l); v.Entries != 0 {
		t.Errorf("%+v", v)
	}
}

func TestListFiltersAndPagesNewestFirst(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		l := newLog()
		appendN(t, d, l, 5)
		org, other := "org", "other"
		for _, tt := range []struct {
			filter audit.Filter
			want   string
		}{
			{audit.Filter{Limit: 2}, "5 4"},
			{audit.Filter{Limit: 2, Before: 4}, "3 2"},
			{audit.Filter{Limit: 9, Tenant: &org, Actor: "root", Action: "site.revoke"}, "5 4 3 2 1"},
			{audit.Filter{Limit: 9, Tenant: &other}, ""},
			{audit.Filter{Limit: 9, Site: "s"}, ""},
			{audit.Filter{Limit: 9, From: time.Now().Add(time.Hour)}, ""},
			{audit.Filter{Limit: 1, To: time.Now().Add(time.Hour)}, "5"},
		} {
			entries, err := l.List(t.Context(), d, tt.filter)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range entries {
				got = append(got, fmt.Sprint(e.Seq))
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("%+v: got %v, want %s", tt.filter, got, tt.want)
			}
		}
	})
}
