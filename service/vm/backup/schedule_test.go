package backup

import (
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/service/vm/record"
)

func TestNextRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec        record.PolicySpec
		after, want string
	}{
		"later today":          {record.PolicySpec{Schedule: Daily, Time: "02:00", Timezone: "UTC"}, "2026-03-01T01:59:59Z", "2026-03-01T02:00:00Z"},
		"tomorrow":             {record.PolicySpec{Schedule: Daily, Time: "02:00", Timezone: "UTC"}, "2026-03-01T02:00:00Z", "2026-03-02T02:00:00Z"},
		"of its time zone":     {record.PolicySpec{Schedule: Daily, Time: "02:00", Timezone: "Asia/Tokyo"}, "2026-03-01T12:00:00Z", "2026-03-01T17:00:00Z"},
		"skipped by the clock": {record.PolicySpec{Schedule: Daily, Time: "02:30", Timezone: "Europe/Berlin"}, "2026-03-28T12:00:00Z", "2026-03-29T01:30:00Z"},
		"twice on the clock":   {record.PolicySpec{Schedule: Daily, Time: "02:30", Timezone: "Europe/Berlin"}, "2026-10-24T12:00:00Z", "2026-10-25T01:30:00Z"},
		"only once of the two": {
			record.PolicySpec{Schedule: Daily, Time: "02:30", Timezone: "Europe/Berlin"}, "2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z",
		},
		"weekly":         {record.PolicySpec{Schedule: Weekly, Time: "04:00", Timezone: "UTC", Weekday: "sunday"}, "2026-03-02T00:00:00Z", "2026-03-08T04:00:00Z"},
		"weekly, today":  {record.PolicySpec{Schedule: Weekly, Time: "04:00", Timezone: "UTC", Weekday: "monday"}, "2026-03-02T00:00:00Z", "2026-03-02T04:00:00Z"},
		"monthly":        {record.PolicySpec{Schedule: Monthly, Time: "00:00", Timezone: "UTC", Day: 1}, "2026-03-01T00:00:00Z", "2026-04-01T00:00:00Z"},
		"short month":    {record.PolicySpec{Schedule: Monthly, Time: "00:00", Timezone: "UTC", Day: 31}, "2026-02-01T00:00:00Z", "2026-02-28T00:00:00Z"},
		"leap year":      {record.PolicySpec{Schedule: Monthly, Time: "00:00", Timezone: "UTC", Day: 30}, "2028-02-01T00:00:00Z", "2028-02-29T00:00:00Z"},
		"after the last": {record.PolicySpec{Schedule: Monthly, Time: "00:00", Timezone: "UTC", Day: 31}, "2026-01-31T00:00:00Z", "2026-02-28T00:00:00Z"},
	} {
		after, err := time.Parse(time.RFC3339, c.after)
		if err != nil {
			t.Fatal(err)
		}
		got, err := nextRun(&c.spec, after)
		if err != nil || got.Format(time.RFC3339) != c.want {
			t.Errorf("%s: %s, want %s (%v)", name, got.Format(time.RFC3339), c.want, err)
		}
	}
	for _, zone := range []string{"", "Local", "Mars/Olympus", "../etc/passwd"} {
		spec := record.PolicySpec{Schedule: Daily, Time: "02:00", Timezone: zone}
		if _, err := nextRun(&spec, time.Now()); err == nil && zone != "" {
			t.Errorf("the time zone %q is accepted", zone)
		}
	}
}

// Whatever the schedule, the next run is later than the moment that was given.
func FuzzNextRun(f *testing.F) {
	f.Add(int64(1774659600), uint8(2), "02:30", uint8(3), uint8(31))
	f.Fuzz(func(t *testing.T, unix int64, kind uint8, clock string, weekday, day uint8) {
		spec := record.PolicySpec{
			Schedule: []string{Daily, Weekly, Monthly}[kind%3], Time: clock, Timezone: "Europe/Berlin",
			Weekday: weekdays[weekday%7], Day: 1 + int(day%31),
		}
		after := time.Unix(unix%4102444800, 0)
		next, err := nextRun(&spec, after)
		if err == nil && (!next.After(after) || next.Sub(after) > 63*24*time.Hour) {
			t.Errorf("%+v after %v: %v", spec, after, next)
		}
	})
}
