package agent

import (
	"net/http"

	"github.com/mainstay-infra/mainstay/service/agent/answer"
	"github.com/mainstay-infra/mainstay/service/agent/outbox"
)

const (
	// The maximum size of a request, and the minimum to which it shrinks on a slow link, in bytes.
	maxForwardBytes = 1 << 20
	minForwardBytes = 8 << 10
	growAfter       = 4
	// An event that was refused this many times, alone, is suspected.
	suspectAfter = 3
	// The maximum number of events after a suspected one that are tried, one by one, before the
	// next wait.
	maxProbes = 8
)

// window limits the size of the next batch. It shrinks if requests are too large for the link or
// the server, and grows again, more slowly, with successes: on a link that breaks after some
// kilobytes, every batch that is too large costs a connection.
type window struct {
	events    int
	bytes     int64
	successes int // in a row, at the current size
}

func (w *window) grow() {
	if w.successes++; w.successes == growAfter {
		w.events, w.bytes, w.successes = min(w.events*2, outbox.MaxBatch), min(w.bytes*2, maxForwardBytes), 0
	}
}

// shrink divides the window by by after a batch has failed as a whole.
func (w *window) shrink(batch []outbox.Stored, by int) {
	bytes := int64(0)
	for _, e := range batch {
		bytes += e.Bytes
	}
	w.events, w.bytes, w.successes = max(1, len(batch)/by), max(min(w.bytes, bytes)/int64(by), minForwardBytes), 0
}

// suspect is the oldest event, after it was refused alone without being named in the error. The
// zero suspect means that there is none.
type suspect struct {
	seq      int64
	refusals int  // in a row
	probed   int  // number of the following events that were refused too
	alone    bool // no event follows it
}

// refusedAgain counts a refusal, and reports whether the event is now suspected.
func (s *suspect) refusedAgain(seq int64) bool {
	if s.seq != seq {
		*s = suspect{seq: seq}
	}
	s.refusals++
	return s.isSuspected()
}

func (s *suspect) isSuspected() bool { return s.refusals >= suspectAfter }

// newcomers returns added if only a new event can show whether the server accepts others, and
// otherwise nil.
func (s *suspect) newcomers(added <-chan struct{}) <-chan struct{} {
	if s.isSuspected() && s.alone {
		return added
	}
	return nil
}

// mayBeTheEvent reports whether an event can be the reason for a refusal, rather than the state of
// the server or of a proxy.
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
