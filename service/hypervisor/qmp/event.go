package qmp

import (
	"context"
	"encoding/json"
	"sync"
	"time"
)

// Names of events.
const (
	EventShutdown          = "SHUTDOWN" // its data is a Shutdown
	EventPowerdown         = "POWERDOWN"
	EventReset             = "RESET"
	EventStop              = "STOP"
	EventResume            = "RESUME"
	EventBlockIOError      = "BLOCK_IO_ERROR"
	EventGuestPanicked     = "GUEST_PANICKED"
	EventVSerPortChange    = "VSERPORT_CHANGE" // its data is a VSerPortChange
	EventDeviceDeleted     = "DEVICE_DELETED"
	EventJobStatusChange   = "JOB_STATUS_CHANGE"
	EventBlockJobReady     = "BLOCK_JOB_READY"
	EventBlockJobCompleted = "BLOCK_JOB_COMPLETED"
	EventBlockJobCancelled = "BLOCK_JOB_CANCELLED"
	EventBlockJobError     = "BLOCK_JOB_ERROR"
)

// queued is the maximum number of events that a subscription holds.
const queued = 256

// Event is something that happened in QEMU.
type Event struct {
	Name string
	// Time is by the host's clock.
	Time time.Time
	// Data is nil if the event has none.
	Data json.RawMessage
	// Missed is the number of events before this one that this subscriber lost because it was too
	// slow. A subscriber that tracks a state must then query it again.
	Missed int
}

// Decode decodes the event's data into a value.
func (e Event) Decode(into any) error { return decodeValue(e.Data, into) }

// Shutdown is the data of EventShutdown.
type Shutdown struct {
	// Guest is true if the guest requested it.
	Guest bool `json:"guest"`
	// Reason is one of QEMU's ShutdownCause: guest-shutdown, guest-reset,
	// guest-panic, host-qmp-quit, host-signal, ...
	Reason string `json:"reason"`
}

// VSerPortChange is the data of EventVSerPortChange: a program in the guest opened or closed a
// virtio-serial port. QEMU reports each port at most once a second and omits changes in between.
type VSerPortChange struct {
	// ID is the id of the port's device.
	ID   string `json:"id"`
	Open bool   `json:"open"`
}

// Subscription is a bounded queue of events. It is safe for concurrent use; each event goes to one
// caller.
type Subscription struct {
	client *Client
	names  map[string]bool // nil is all
	ready  chan struct{}   // has a value if there may be something for Next

	mu     sync.Mutex
	events []Event // the oldest first
	missed int     // before the first of events
	err    error   // what Next returns after the last event
}

// Subscribe collects events with these names from now on, or all events if there are no names. The
// caller must close it.
func (c *Client) Subscribe(names ...string) *Subscription {
	s := &Subscription{client: c, ready: make(chan struct{}, 1)}
	if len(names) > 0 {
		s.names = make(map[string]bool, len(names))
		for _, n := range names {
			s.names[n] = true
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		s.end(c.err)
	} else {
		c.subscriptions[s] = true
	}
	return s
}

// Next waits for the next event. It fails when ctx ends, after Close, and when the connection is
// lost and all earlier events have been read.
func (s *Subscription) Next(ctx context.Context) (Event, error) {
	for {
		if e, err, ok := s.take(); ok {
			return e, err
		}
		select {
		case <-s.ready:
		case <-ctx.Done():
			return Event{}, ctx.Err()
		}
	}
}

func (s *Subscription) take() (Event, error, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.events) == 0 && s.err == nil {
		return Event{}, nil, false
	}
	s.signal() // for the next reader: there may be more, and an end is for all
	if len(s.events) == 0 {
		return Event{}, s.err, true
	}
	e := s.events[0]
	e.Missed, s.missed = s.missed, 0
	s.events[0] = Event{}
	s.events = s.events[1:]
	return e, nil, true
}

// Close ends the subscription and drops its events.
func (s *Subscription) Close() {
	s.client.mu.Lock()
	delete(s.client.subscriptions, s)
	s.client.mu.Unlock()
	s.mu.Lock()
	s.events = nil
	s.mu.Unlock()
	s.end(errUnsubscribed)
}

// put never blocks. If there are too many events, it drops the oldest, since the newest tell the
// machine's state.
func (s *Subscription) put(e Event) {
	if s.names != nil && !s.names[e.Name] {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	if len(s.events) == queued {
		s.events = s.events[1:]
		s.missed++
	}
	s.events = append(s.events, e)
	s.signal()
}

func (s *Subscription) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	s.signal()
}

func (s *Subscription) signal() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}
