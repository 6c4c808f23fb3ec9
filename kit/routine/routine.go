// Package routine runs the goroutines of a service so that a panic in one of them does not end the
// process: the panic is recovered, counted and logged with its stack.
//
// Use Go for a goroutine with a single task, or Start if something waits for its result. Use Keep
// for a loop that must keep running: it is restarted after a panic. Use Run, or Call for functions
// that may fail, for code that must act on a panic, for example to send a response.
package routine

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Panics counts recovered panics by the goroutine's name. telemetry.NewRegistry registers it, so
// that every service's registry shows the count of the process.
var Panics = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "goroutine_panics_total", Help: "Panics of background goroutines that were recovered, by goroutine.",
}, []string{"goroutine"})

// Run calls f. If f panics, it logs the panic with its stack, counts it and returns it as an error.
// A nil log means slog.Default. Names must be few and fixed, since each is a label of a metric.
func Run(log *slog.Logger, name string, f func()) (err error) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		if log == nil {
			log = slog.Default()
		}
		Panics.WithLabelValues(name).Inc()
		log.Error("a goroutine panicked", "goroutine", name, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
		err = fmt.Errorf("%s: panic: %v", name, v)
	}()
	f()
	return nil
}

// Go is Run in a new goroutine.
func Go(log *slog.Logger, name string, f func()) {
	go func() { _ = Run(log, name, f) }() // Run has logged it
}

// Call is Run for functions that may fail: it returns the error of f, or its panic as an error.
func Call(log *slog.Logger, name string, f func() error) (err error) {
	if panicked := Run(log, name, func() { err = f() }); panicked != nil {
		return panicked
	}
	return err
}

// Start is Call in a new goroutine. The channel receives the result.
func Start(log *slog.Logger, name string, f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- Call(log, name, f) }()
	return done
}

// The waits of Keep after a panic.
const (
	firstRestart = time.Second
	maxRestart   = time.Minute
)

// Keep calls f, and calls it again when it panics, until it returns or ctx ends. The wait before
// each restart doubles from one second to a minute, and is reset once f ran for a minute.
func Keep(ctx context.Context, log *slog.Logger, name string, f func(ctx context.Context)) {
	for wait := firstRestart; ; wait = min(2*wait, maxRestart) {
		began := time.Now()
		if Run(log, name, func() { f(ctx) }) == nil {
			return
		}
		if time.Since(began) > maxRestart {
			wait = firstRestart
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}
