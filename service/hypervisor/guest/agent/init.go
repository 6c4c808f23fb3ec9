//go:build linux

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

const (
	stopGrace  = 10 * time.Second // that processes have between SIGTERM and the end of the guest
	startAgain = time.Second      // until an agent that has ended is started again
)

// Init is the main loop of a sandbox's first process, since a sandbox has no init system. It keeps
// the agent in argv running, unless argv is empty, and reaps orphaned processes until ctx ends,
// which the caller arranges on a signal. Then it asks all other processes to end and returns when
// they have, at the latest after ten seconds. The sandbox ends with its first process.
func Init(ctx context.Context, argv []string) error {
	if os.Getpid() != 1 {
		return errors.New("init is for the first process of a guest only, and this is not it")
	}
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	defer signal.Stop(children)
	var started time.Time
	agent := 0 // its process; 0: none
	for ctx.Err() == nil {
		var pause <-chan time.Time
		if agent == 0 && len(argv) > 0 {
			if wait := startAgain - time.Since(started); wait > 0 {
				pause = time.After(wait)
			} else {
				var err error
				if agent, err = spawn(argv); err != nil {
					return err
				}
				started = time.Now()
			}
		}
		select {
		case <-children:
		case <-pause:
		case <-ctx.Done():
		}
		if reap(agent) {
			agent = 0
		}
	}
	return endAll()
}

// spawn starts a program without input and output. reap reaps it.
func spawn(argv []string) (int, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	p, err := os.StartProcess(
		argv[0], argv,
		&os.ProcAttr{Env: os.Environ(), Files: []*os.File{null, null, null}, Sys: &unix.SysProcAttr{Setsid: true}},
	)
	if err != nil {
		return 0, fmt.Errorf("start the agent: %w", err)
	}
	return p.Pid, p.Release()
}

// endAll asks all processes to end and waits for them, at most stopGrace.
func endAll() error {
	if err := unix.Kill(-1, unix.SIGTERM); errors.Is(err, unix.ESRCH) {
		return nil
	} else if err != nil {
		return fmt.Errorf("ask all processes to end: %w", err)
	}
	// Not all of them are children, so there is no signal to wait for.
	for deadline := time.Now().Add(stopGrace); time.Now().Before(deadline) && unix.Kill(-1, 0) == nil; {
		reap(0)
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

// reap reaps all children that have ended and reports whether one was among them.
func reap(one int) (ended bool) {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return ended
		}
		ended = ended || pid == one
	}
}
