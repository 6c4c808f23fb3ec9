package cronjob_test

import (
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/service/orchestrator/cronjob"
	"github.com/mainstay-infra/mainstay/service/orchestrator/spec"
)

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return t
}

func schedule(cron string) *spec.Schedule {
	return &spec.Schedule{Cron: cron, TimeZone: "UTC", Overlap: "forbid", Missed: "skip"}
}

func decide(t *testing.T, s *spec.Schedule, decided, now string, running bool) cronjob.Decision {
	t.Helper()
	d, err := cronjob.Decide(s, at(decided), at(now), running)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestARunIsMadeWhenItIsDueAndNotTwice(t *testing.T) {
	t.Parallel()
	s := schedule("0 3 * * *")
	if d := decide(t, s, "2026-01-01T02:00:00Z", "2026-01-01T02:59:59Z", false); d.Run || !d.Due.IsZero() || !d.Next.Equal(at("2026-01-01T03:00:00Z")) {
		t.Errorf("before: %+v", d)
	}
	d := decide(t, s, "2026-01-01T02:00:00Z", "2026-01-01T03:00:00Z", false)
	if !d.Run || !d.Due.Equal(at("2026-01-01T03:00:00Z")) || d.Why != "" || !d.Next.Equal(at("2026-01-02T03:00:00Z")) {
		t.Errorf("due: %+v", d)
	}
	if d := decide(t, s, "2026-01-01T03:00:00Z", "2026-01-01T03:00:30Z", false); d.Run || !d.Due.IsZero() {
		t.Errorf("again: %+v", d)
	}
}

func TestAFewRunsAreMadeUpForAsTheScheduleSays(t *testing.T) {
	t.Parallel()
	s := schedule("*/5 * * * *")
	d := decide(t, s, "2020-01-01T00:00:00Z", "2026-06-01T12:03:30Z", false)
	if d.Run || d.Why == "" || !d.Due.Equal(at("2026-06-01T12:00:00Z")) {
		t.Errorf("skipped: %+v", d)
	}
	s.Missed = "run"
	if d = decide(t, s, "2020-01-01T00:00:00Z", "2026-06-01T12:03:30Z", false); !d.Run || !d.Due.Equal(at("2026-06-01T12:00:00Z")) {
		t.Errorf("made up for: %+v", d)
	}
	if d = decide(t, s, "2026-06-01T12:00:00Z", "2026-06-01T12:03:30Z", false); d.Run {
		t.Errorf("once: %+v", d)
	}
	// Rare ones, for which it looks far back.
	for cron, want := range map[string]string{
		"0 0 1 * *": "2026-06-01T00:00:00Z", "0 0 1 1 *": "2026-01-01T00:00:00Z", "0 0 29 2 *": "2024-02-29T00:00:00Z", "0 0 31 12 *": "2025-12-31T00:00:00Z",
	} {
		rare := schedule(cron)
		if d := decide(t, rare, "2020-01-01T00:00:00Z", "2026-06-01T12:03:30Z", false); !d.Due.Equal(at(want)) {
			t.Errorf("%s: %+v", cron, d)
		}
		if d := decide(t, rare, want, "2026-06-01T12:03:30Z", false); !d.Due.IsZero() {
			t.Errorf("%s: %+v", cron, d)
		}
	}
	if d := decide(t, schedule("0 0 30 2 *"), "2020-01-01T00:00:00Z", "2026-06-01T12:03:30Z", false); !d.Due.IsZero() || !d.Next.IsZero() {
		t.Errorf("never: %+v", d)
	}
}

func TestRunsOverlapAsTheScheduleSays(t *testing.T) {
	t.Parallel()
	s := schedule("* * * * *")
	for overlap, want := range map[string]cronjob.Decision{
		"forbid": {Why: "the run before has not ended"}, "allow": {Run: true}, "replace": {Run: true, Replace: true},
	} {
		s.Overlap = overlap
		d := decide(t, s, "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z", true)
		if d.Run != want.Run || d.Replace != want.Replace || d.Why != want.Why {
			t.Errorf("%s: %+v", overlap, d)
		}
		if d = decide(t, s, "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z", false); !d.Run || d.Replace {
			t.Errorf("%s, alone: %+v", overlap, d)
		}
	}
}

func TestTimesAreThoseOfTheTimeZone(t *testing.T) {
	t.Parallel()
	s := schedule("30 2 * * *")
	s.TimeZone = "Europe/Berlin"
	for now, want := range map[string]string{
		"2026-01-10T01:30:00Z": "2026-01-10T01:30:00Z", "2026-07-10T00:30:00Z": "2026-07-10T00:30:00Z",
		// On 29 March, there is no half past two.
		"2026-03-29T12:00:00Z": "2026-03-28T01:30:00Z",
	} {
		if d := decide(t, s, "2026-01-01T00:00:00Z", now, false); !d.Due.Equal(at(want)) {
			t.Errorf("%s: %+v", now, d)
		}
	}
	s.TimeZone = "Local"
	if _, err := cronjob.Decide(s, at("2026-01-01T00:00:00Z"), at("2026-01-01T00:00:00Z"), false); err == nil {
		t.Error("the server's zone is taken")
	}
}
