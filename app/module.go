package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Module is a part of the process that starts and stops as a unit.
type Module struct {
	Name string
	// After lists the modules that must be running before this one starts.
	After []string
	// Start returns once the module is ready. The module runs until ctx ends. wait returns once it
	// has stopped, with an error if it stopped for another reason.
	Start func(ctx context.Context) (wait func() error, err error)
}

type running struct {
	name string
	stop context.CancelFunc
	done chan struct{}
	err  error // set when done is closed
}

// Run starts the modules in the order of their After, calls ready, and runs until ctx ends or one
// of them stops. Then it stops all in reverse order.
func Run(ctx context.Context, modules []Module, ready func()) error {
	ordered, err := order(modules)
	if err != nil {
		return err
	}
	var started []*running
	failed := make(chan *running, len(ordered))
	var startErr error
	for _, m := range ordered {
		// A module is stopped when its turn comes, not when ctx ends.
		life, stop := context.WithCancel(context.WithoutCancel(ctx))
		wait, err := m.Start(life)
		if err != nil {
			stop()
			startErr = fmt.Errorf("%s: %w", m.Name, err)
			break
		}
		r := &running{name: m.Name, stop: stop, done: make(chan struct{})}
		started = append(started, r)
		go func() {
			r.err = wait()
			close(r.done)
			if life.Err() == nil {
				failed <- r
			}
		}()
	}
	if startErr == nil {
		ready()
		select {
		case <-ctx.Done():
		case r := <-failed:
			startErr = fmt.Errorf("%s stopped", r.name)
		}
	}
	errs := []error{startErr}
	for _, r := range slices.Backward(started) {
		r.stop()
		<-r.done
		if r.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.name, r.err))
		}
	}
	return errors.Join(errs...)
}

// order sorts modules so that each comes after those in its After.
func order(modules []Module) ([]Module, error) {
	byName := map[string]Module{}
	for _, m := range modules {
		byName[m.Name] = m
	}
	var sorted []Module
	state := map[string]int{} // 1: being visited, 2: done
	var visit func(name string, path []string) error
	visit = func(name string, path []string) error {
		m, known := byName[name]
		switch {
		case !known:
			return fmt.Errorf("module %s: there is no module %s", path[len(path)-1], name)
		case state[name] == 2:
			return nil
		case state[name] == 1:
			return fmt.Errorf("modules need each other in a circle: %s", strings.Join(append(path, name), " -> "))
		}
		state[name] = 1
		for _, before := range m.After {
			if err := visit(before, append(path, name)); err != nil {
				return err
			}
		}
		state[name] = 2
		sorted = append(sorted, m)
		return nil
	}
	for _, m := range modules {
		if err := visit(m.Name, nil); err != nil {
			return nil, err
		}
	}
	return sorted, nil
}

// serving runs serve in the background and waits until it is ready or has failed. serve calls its
// argument once when it is ready, with a value that is passed to started. wait returns the result
// of serve.
func serving[T any](serve func(ready func(T)) error, started func(T)) (wait func() error, err error) {
	ready, done := make(chan T, 1), make(chan error, 1)
	go func() { done <- serve(func(v T) { ready <- v }) }()
	select {
	case v := <-ready:
		started(v)
		return func() error { return <-done }, nil
	case err := <-done:
		return nil, err
	}
}
