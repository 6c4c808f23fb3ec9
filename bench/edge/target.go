package main

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// target receives deliveries and records the latency of each.
type target struct {
	addr string
	srv  *http.Server

	mu       sync.Mutex
	last     time.Time
	body     []byte // of the last delivery
	underway []time.Duration
	arrived  chan struct{} // receives a value when a delivery has arrived
	gate     chan struct{} // requests wait until it is closed; nil means no wait
}

func newTarget() (*target, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &target{addr: listener.Addr().String(), arrived: make(chan struct{}, 1)}
	t.srv = &http.Server{Handler: t, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = t.srv.Serve(listener) }()
	return t, nil
}

func (t *target) close() { _ = t.srv.Close() }

// hold makes requests wait from now on. open releases them and ends the waiting.
func (t *target) hold() (open func()) {
	gate := make(chan struct{})
	t.mu.Lock()
	t.gate = gate
	t.mu.Unlock()
	return func() {
		t.mu.Lock()
		t.gate = nil
		t.mu.Unlock()
		close(gate)
	}
}

func (t *target) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t.mu.Lock()
	gate := t.gate
	t.mu.Unlock()
	if gate != nil {
		<-gate
	}
	body, err := io.ReadAll(r.Body)
	now := time.Now()
	at := bytes.Index(body, []byte(stampMark))
	if err != nil || at < 0 {
		http.Error(w, "no stamp", http.StatusBadRequest)
		return
	}
	stamp := body[at+len(stampMark):]
	sent, err := strconv.ParseInt(string(stamp[:min(len(noStamp), len(stamp))]), 10, 64)
	if err != nil {
		http.Error(w, "bad stamp", http.StatusBadRequest)
		return
	}
	t.mu.Lock()
	t.last, t.body = now, body
	t.underway = append(t.underway, now.Sub(time.Unix(0, sent)))
	t.mu.Unlock()
	select {
	case t.arrived <- struct{}{}:
	default:
	}
	w.WriteHeader(http.StatusOK)
}

// count returns how many deliveries have arrived since the last take.
func (t *target) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.underway)
}

// take returns the sorted latencies of deliveries, and resets them.
func (t *target) take() (underway []time.Duration, last time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	underway, last, t.underway = t.underway, t.last, nil
	slices.Sort(underway)
	return underway, last
}
