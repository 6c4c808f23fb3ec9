package backup

import (
	"slices"
	"time"
	_ "time/tzdata" // so that time zones are the same on every host

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// Schedules of policies.
const (
	Daily   = "daily"
	Weekly  = "weekly"
	Monthly = "monthly"
)

var weekdays = []string{"sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"}

// nextRun returns the first time after a moment at which a policy runs. A time that the clock of the
// time zone skips is that much later, and of one that it has twice, one counts.
func nextRun(p *record.PolicySpec, after time.Time) (time.Time, error) {
	zone, err := time.LoadLocation(p.Timezone)
	if err != nil || p.Timezone == "Local" {
		return time.Time{}, fault.InvalidField("timezone", "%q is not a time zone of the IANA database, such as Europe/Berlin",
			p.Timezone)
	}
	clock, err := time.Parse("15:04", p.Time)
	if err != nil {
		return time.Time{}, fault.InvalidField("time", "must be like 02:00")
	}
	weekday := slices.Index(weekdays, p.Weekday)
	local := after.In(zone)
	// A month has at most 31 days, and the next fitting one may be at the end of the following month.
	for ahead := range 63 {
		year, month, day := local.Date()
		at := time.Date(year, month, day+ahead, clock.Hour(), clock.Minute(), 0, 0, zone)
		fits := p.Schedule == Daily || p.Schedule == Weekly && int(at.Weekday()) == weekday ||
			p.Schedule == Monthly && at.Day() == min(p.Day, lastDay(at))
		if fits && at.After(after) {
			return at.UTC(), nil
		}
	}
	return time.Time{}, fault.InvalidField("schedule_type", "never comes")
}

// lastDay returns the number of days of a month.
func lastDay(in time.Time) int {
	return time.Date(in.Year(), in.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
}
