package agent

import (
	"net/http"

	"github.com/mainstay-infra/mainstay/service/agent/answer"
	"github.com/mainstay-infra/mainstay/service/agent/outbox"
)

const (
	// What one request holds at most, and the least to which a slow link brings it.
	maxForwardBytes = 1 << 20
	minForwardBytes = 8 << 10
	growAfter       = 4
	// An event that was refused so often, alone, is suspected.
	suspectAfter = 3
	// So many events that follow a suspected one are tried, one by one, before the
	// next wait.
	maxProbes = 8
)

// window is how much the next batch may hold. It shrinks where requests are too
// much for the link or the server, and grows again, more slowly, with successes:
// on a link that breaks after some kilobytes every batch that is too large costs a
// connection.
type window struct {
	events    int
	bytes     int64
	successes int // in a row, at this size
}

func (w *window) grow() {
	if w.successes++; w.successes == growAfter {
		w.events, w.bytes, w.successes = min(w.events*2, outbox.MaxBatch), min(w.bytes*2, maxForwardBytes), 0
	}
}

// shrink divides the window after a batch failed as a whole.
func (w *window) shrink(batch []outbox.Stored, by int) {
	bytes := int64(0)
	for _, e := range batch {
		bytes += e.Bytes
	}
	w.events, w.bytes, w.successes = max(1, len(batch)/by), max(min(w.bytes, bytes)/int64(by), minForwardBytes), 0
}

// suspect is the oldest event after it was refused, alone, without being named. The
// zero value is nobody.
type suspect struct {
	seq      int64
	refusals int  // in a row
	probed   int  // how many of the events behind it were refused, too
	alone    bool // there is none behind it
}

// refusedAgain counts a refusal, and reports whether the event is suspected now.
func (s *suspect) refusedAgain(seq int64) bool {
	if s.seq != seq {
		*s = suspect{seq: seq}
	}
	s.refusals++
	return s.isSuspected()
}

func (s *suspect) isSuspected() bool { return s.refusals >= suspectAfter }

// newcomers is added while only a newcomer can show whether the server accepts
// others, and nil otherwise.
func (s *suspect) newcomers(added <-chan struct{}) <-chan struct{} {
	if s.isSuspected() && s.alone {
		return added
	}
	return nil
}

// mayBeTheEvent tells whether an event can be the reason for a refusal, rather than
// the state of the server or of what is in between.
func mayBeTheEvent(r *answer.Refusal) bool {
	switch r.Status {
	case http.StatusBadRequest,
		http.StatusRequestEntityTooLarge,
		http.StatusUnprocessableEntity,
		http.StatusInternalServerError:
		return true
	}
	return r.Final()
}
