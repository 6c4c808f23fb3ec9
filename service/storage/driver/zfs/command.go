package zfs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
)

const (
	// maxCommands is how many commands of a driver may be under way, also those that hang.
	maxCommands = 16
	// commandWithin bounds a command that changes something, and a list of what is there.
	commandWithin = 2 * time.Minute
	// killedWithin is how long a killed command may take to end before it is left behind.
	killedWithin = time.Second
	// maxLine is the most bytes of a line that is read.
	maxLine = 64 << 10
	// maxSaid is how many bytes of an error are kept.
	maxSaid = 4 << 10
)

// problem is what a command said when it failed.
type problem struct {
	command string // zfs create
	said    string
	cause   error
}

func (p *problem) Error() string { return fmt.Sprintf("%s: %v: %s", p.command, p.cause, p.said) }

func (p *problem) Unwrap() error { return p.cause }

// says reports whether an error is that of a command that said one of these.
func says(err error, texts ...string) bool {
	var p *problem
	return errors.As(err, &p) && slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(p.said, t) })
}

// What the programs say, without the names around it.
var (
	saysNone   = []string{"dataset does not exist", "could not find any snapshots to destroy", "no such pool"}
	saysExists = []string{"dataset already exists"}
	saysBusy   = []string{"dataset is busy", "target is busy"}
	saysParent = []string{"has children", "has dependent clones"}
	saysFull   = []string{"out of space", "no space left", "size is greater than available space", "quota exceeded"}
)

// told turns the error of a command into a fault.
func told(err error) error {
	var p *problem
	switch {
	case !errors.As(err, &p):
		return err
	case says(err, saysFull...):
		return fault.Wrap(fault.StorageFailed, err, "the storage takes no more data: its pool or a quota is full")
	case says(err, saysBusy...):
		return fault.Wrap(fault.Conflict, err, "the volume is in use: close its device, or what is open in its folder")
	}
	return fault.Wrap(fault.Unavailable, err, "%s failed; the log of the gateway tells more", p.command)
}

// run runs a command that prints nothing of interest.
func (d *Driver) run(ctx context.Context, program string, args ...string) error {
	return d.each(ctx, func([]string) error { return nil }, program, args...)
}

// each runs a command, and calls do with the fields of each line that it prints, which are separated by tabs.
func (d *Driver) each(ctx context.Context, do func(fields []string) error, program string, args ...string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, commandWithin, errSlow)
	defer cancel()
	select {
	case d.slots <- struct{}{}:
	case <-ctx.Done():
		return silent(ctx)
	}
	if ctx.Err() != nil { // it may have ended before, too
		<-d.slots
		return silent(ctx)
	}
	out, in, err := os.Pipe()
	if err != nil {
		<-d.slots
		return err
	}
	defer func() { _ = out.Close() }() // it was only read
	said := &limited{}
	cmd := exec.CommandContext(ctx, d.programs[program], args...) //nolint:gosec // see the package's invariants
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = in, said, killedWithin
	cmd.Env = []string{"LC_ALL=C", "PATH=" + os.Getenv("PATH")}
	ended := routine.Start(nil, "zfs command", func() error {
		defer func() { <-d.slots }()
		defer func() { _ = in.Close() }() // the command has ended, or never began
		return cmd.Run()
	})
	// One that hangs in the kernel keeps its end of the pipe.
	stop := context.AfterFunc(ctx, func() { _ = out.SetReadDeadline(time.Now()) })
	defer stop()
	reading := lines(out, do)
	if reading != nil {
		cancel()
	}
	select {
	case err = <-ended:
	case <-afterwards(ctx):
		return silent(ctx)
	}
	switch {
	case reading != nil && !errors.Is(reading, os.ErrDeadlineExceeded):
		return reading
	case ctx.Err() != nil:
		return silent(ctx)
	case err != nil:
		return &problem{command: program + " " + args[0], said: strings.TrimSpace(said.String()), cause: err}
	}
	return nil
}

var errSlow = fault.New(fault.Unavailable, "ZFS has not answered within %s", commandWithin)

// silent is the error of a command whose context has ended.
func silent(ctx context.Context) error {
	if cause := context.Cause(ctx); fault.Is(cause, fault.Unavailable) {
		return cause
	}
	return fault.Wrap(fault.Unavailable, context.Cause(ctx), "ZFS has not answered in time")
}

// afterwards is done a while after a context, when a killed process should have ended.
func afterwards(ctx context.Context) <-chan struct{} {
	late, done := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() { time.AfterFunc(2*killedWithin, done) })
	return late.Done()
}

func lines(from io.Reader, do func(fields []string) error) error {
	all := bufio.NewScanner(from)
	all.Buffer(nil, maxLine)
	for all.Scan() {
		if err := do(strings.Split(all.Text(), "\t")); err != nil {
			return err
		}
	}
	return all.Err()
}

// limited keeps the beginning of what is written to it.
type limited struct{ strings.Builder }

func (l *limited) Write(p []byte) (int, error) {
	_, _ = l.Builder.Write(p[:min(len(p), maxSaid-min(l.Len(), maxSaid))]) // a Builder does not fail
	return len(p), nil
}
