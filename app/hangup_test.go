package app

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// lineLog is a log whose lines a test can wait for.
type lineLog struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	lines chan struct{}
}

func (l *lineLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := l.buf.Write(b)
	l.lines <- struct{}{}
	return n, err
}

// An unhandled SIGHUP would end the test.
func TestAHangupIsPassedOnAndDoesNotEndTheProcess(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reload := hangups(ctx)
	for range 3 {
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		<-reload
	}
}

func TestTheAgentSaysThatAHangupChangesNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	log, reload, done := &lineLog{lines: make(chan struct{}, 2)}, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tellHangups(ctx, reload, slog.New(slog.NewTextHandler(log, nil)))
	}()
	reload <- struct{}{}
	<-log.lines
	cancel()
	<-done
	if text := log.buf.String(); !strings.Contains(text, "changed settings take a restart") {
		t.Errorf("%s", text)
	}
}
