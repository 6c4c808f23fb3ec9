package telemetry

import (
	"log/slog"
	"sync"
	"time"
)

// Waits between the lines of a Trouble.
const (
	firstTrouble = time.Minute
	maxTrouble   = 30 * time.Minute
)

// Trouble logs a repeating error, such as that of a loop while the database is unavailable:
// immediately, then after one minute, two, four and so on up to thirty, and once when it is over.
// It is safe for concurrent use.
type Trouble struct {
	log  *slog.Logger
	what string

	mu    sync.Mutex
	since time.Time // zero: no error
	next  time.Time // of the next line
	wait  time.Duration
	count int
}

// NewTrouble returns a Trouble. what says what fails, for example "jobs: cannot claim".
func NewTrouble(log *slog.Logger, what string) *Trouble { return &Trouble{log: log, what: what} }

// Report records the result of an attempt; nil means success.
func (t *Trouble) Report(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if err == nil {
		if !t.since.IsZero() {
			t.log.Info(
				t.what+": it works again", "failures", t.count, "after", now.Sub(t.since).Round(time.Millisecond),
			)
			t.since, t.count = time.Time{}, 0
		}
		return
	}
	t.count++
	switch {
	case t.since.IsZero():
		t.since, t.wait = now, firstTrouble
		t.log.Error(t.what, "error", err)
	case now.Before(t.next):
		return
	default:
		t.wait = min(2*t.wait, maxTrouble)
		t.log.Error(t.what, "error", err, "failures", t.count, "for", now.Sub(t.since).Round(time.Second))
	}
	t.next = now.Add(t.wait)
}
