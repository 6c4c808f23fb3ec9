package qmp

import (
	"context"
	"encoding/json"
	"sync"
	"time"
)

// Names of events that a keeper of virtual machines lives by.
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

// queued is how many events a subscription keeps for its reader.
const queued = 256

// Event is something that happened in QEMU.
type Event struct {
	Name string
	// Time is by the host's clock.
	Time time.Time
	// Data is nil if the event has none.
	Data json.RawMessage
	// Missed is how many events before this one this subscriber lost, for it was too
	// slow. Whoever follows a state by events has to ask for it anew then.
	Missed int
}

// Decode puts the event's data into a value, as Execute does with results.
func (e Event) Decode(into any) error { return decodeValue(e.Data, into) }

// Shutdown is the data of EventShutdown.
type Shutdown struct {
	// Guest is true if the guest itself asked for it.
	Guest bool `json:"guest"`
	// Reason is one of QEMU's ShutdownCause: guest-shutdown, guest-reset,
	// guest-panic, host-qmp-quit, host-signal, ...
	Reason string `json:"reason"`
}

// VSerPortChange is the data of EventVSerPortChange: a program in the guest opened a
// virtio-serial port, or closed it. QEMU reports a port once a second at most, and leaves
// out what happened between.
type VSerPortChange struct {
	// ID is that of the port's device.
	ID   string `json:"id"`
	Open bool   `json:"open"`
}

// Subscription is a bounded queue of events. Its methods may be called at once by
// several goroutines; each event goes to one of them.
type Subscription struct {
	client *Client
	names  map[string]bool // nil is all
	ready  chan struct{}   // has a value if there may be something for Next

	mu     sync.Mutex
	events []Event // the oldest first
	missed int     // before the first of events
	err    error   // what Next returns after the last event
}

// Subscribe collects the events of these names from now on, or all without names.
// Close it when it is not needed any more.
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

// Next waits for the next event. It fails when ctx ends, after Close, and when the
// connection is lost and every event that came before has been read.
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

// Close ends the subscription and drops what it holds.
func (s *Subscription) Close() {
	s.client.mu.Lock()
	delete(s.client.subscriptions, s)
	s.client.mu.Unlock()
	s.mu.Lock()
	s.events = nil
	s.mu.Unlock()
	s.end(errUnsubscribed)
}

// put never waits. Of too many events the oldest go, since the newest say how the
// machine is.
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
