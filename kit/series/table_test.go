package series_test

import (
	"fmt"
	"testing"
	"testing/fstest"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/kit/series"
)

var (
	tables = dbtest.Migrations{"demo": fstest.MapFS{"0001_demo.sql": {Data: []byte(`-- +goose Up
CREATE TABLE traffic (minute BIGINT NOT NULL, vm TEXT NOT NULL, nic TEXT NOT NULL, org TEXT NOT NULL,
    received BIGINT NOT NULL, sent BIGINT NOT NULL, PRIMARY KEY (vm, nic, minute));
-- +goose Down
DROP TABLE traffic;
`)}}}
	traffic = series.NewTable(series.Table{
		Name: "traffic", Key: []string{"vm", "nic"}, First: []string{"org"}, Sums: []string{"received", "sent"},
	})
)

type row struct {
	Minute   db.Time `db:"minute"`
	Received int64   `db:"received"`
	Sent     int64   `db:"sent"`
}

func add(t *testing.T, d *db.DB, minute int, values ...any) {
	t.Helper()
	err := d.Update(t.Context(), func(tx *db.Tx) error {
		return traffic.Add(t.Context(), tx, noon.Add(time.Duration(minute)*time.Minute+7*time.Second), values...)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, d *db.DB, w series.Window, condition string, args ...any) (out []string) {
	t.Helper()
	var rows []row
	if err := traffic.Read(t.Context(), d, &rows, w, condition, args...); err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		out = append(out, fmt.Sprintf("%g: %d %d", r.Minute.Sub(noon).Minutes(), r.Received, r.Sent))
	}
	return out
}

func TestATableAddsUpIncrementsByMinuteAndReadsThemByStep(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		add(t, d, -1, "a", "eth0", "x", 1000, 0)
		add(t, d, 0, "a", "eth0", "x", 1, 10)
		add(t, d, 0, "a", "eth0", "changed", 2, 20)
		add(t, d, 0, "a", "eth1", "x", 100, 0)
		add(t, d, 4, "a", "eth0", "x", 4, 0)
		add(t, d, 11, "b", "eth0", "y", 8, 1)
		add(t, d, 15, "a", "eth0", "x", 1000, 0)
		w := series.Window{From: noon, To: noon.Add(15 * time.Minute), Step: 5 * time.Minute}
		for condition, want := range map[string]string{
			"1 = 1":                            "[0: 107 30 10: 8 1]",
			"vm = ?":                           "[0: 107 30]",
			"nic <> ?":                         "[0: 107 30 10: 8 1]",
			"org <> ?":                         "[0: 107 30 10: 8 1]",
			"vm > ?":                           "[10: 8 1]",
			"vm < ?":                           "[]",
			"vm || ? = 'aa' OR vm || ? = 'ba'": "[0: 107 30 10: 8 1]",
		} {
			var args []any
			for _, c := range condition {
				if c == '?' {
					args = append(args, "a")
				}
			}
			if got := read(t, d, w, condition, args...); fmt.Sprint(got) != want {
				t.Errorf("%s: %s, want %s", condition, got, want)
			}
		}
		w.Step = time.Minute
		if got := read(t, d, w, "nic = ?", "eth0"); fmt.Sprint(got) != "[0: 3 30 4: 4 0 11: 8 1]" {
			t.Errorf("by the minute: %s", got)
		}
		var org []string
		if err := d.Select(
			t.Context(), &org, "SELECT org FROM traffic WHERE minute = ? AND nic = 'eth0'", db.At(noon),
		); err != nil || fmt.Sprint(org) != "[x]" {
			t.Errorf("the first org of a minute is %s, %v", org, err)
		}
	})
}

func TestMinutesBeforeATimeAreDeleted(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		for minute := range 5 {
			add(t, d, minute, "a", "eth0", "x", 1, 1)
			add(t, d, minute, "b", "eth0", "x", 1, 1)
		}
		if err := traffic.DeleteBefore(t.Context(), d, noon.Add(3*time.Minute)); err != nil {
			t.Fatal(err)
		}
		got := read(t, d, series.Last(noon.Add(time.Hour), time.Minute, 100), "1 = 1")
		if fmt.Sprint(got) != "[3: 2 2 4: 2 2]" {
			t.Errorf("%s are left", got)
		}
	})
}
