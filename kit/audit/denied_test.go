package audit_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
)

func (f *fixture) deny(n int, actor, address string) {
	f.t.Helper()
	for range n {
		if err := f.Deny(
			f.t.Context(), address, audit.Entry{Actor: actor, ActorType: audit.Viewer, Action: "site.delete"}, nil,
		); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *fixture) entries() int64 { f.t.Helper(); return f.verify().Entries }

func TestDeniedAttemptsAreBoundedByCallerNetworkAndInAll(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		now := time.Now()
		f := open(t, d, func(c *audit.Config) {
			c.Now = func() time.Time { return now }
			c.Denied = audit.DeniedLimits{PerCaller: 3, All: 10}
		})
		f.deny(5, "a", "192.0.2.1")
		f.deny(5, "a", "192.0.2.200") // the same network
		if n := f.entries(); n != 3 {
			t.Errorf("%d entries of one caller", n)
		}
		f.deny(5, "b", "192.0.2.1")
		f.deny(5, "a", "2001:db8::1")
		f.deny(5, "a", "2001:db8::ffff:1")
		if n := f.entries(); n != 9 {
			t.Errorf("%d entries of three callers", n)
		}
		for i := range 50 {
			f.deny(1, fmt.Sprint(i), "")
		}
		if n := f.entries(); n != 10 {
			t.Errorf("%d entries in all", n)
		}
		if n := f.metric("audit_denied_suppressed_total"); n != 65 {
			t.Errorf("%v are counted", n)
		}
		now = now.Add(time.Minute)
		f.deny(1, "a", "192.0.2.1")
		if n := f.entries(); n != 11 {
			t.Errorf("%d entries after a minute", n)
		}
	})
}

func TestWhatWasOnlyCountedGetsOneEntry(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		f := open(t, d, func(c *audit.Config) { c.Denied = audit.DeniedLimits{PerCaller: 1, All: 1} })
		f.deny(8, "a", "192.0.2.1")
		for range 2 {
			if err := f.RecordDenied(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		all, err := f.List(t.Context(), d, audit.Filter{Action: audit.ActionDenied, Limit: 9})
		if err != nil || len(all) != 1 || all[0].Message != "7 more denied attempts" || all[0].Result != audit.Denied ||
			!strings.Contains(all[0].Detail, "7") {
			t.Errorf("%+v, %v", all, err)
		}
		f.whole(2)
	})
}
