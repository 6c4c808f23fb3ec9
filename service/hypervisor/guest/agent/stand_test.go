//go:build linux

package agent_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/service/hypervisor/guest"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/agent"
)

const secret = "correct-horse-battery"

// raceDetector is whether the tests run under it.
var raceDetector bool

// stand is an agent with its secret file and its log, which must not tell secrets.
type stand struct {
	*agent.Agent
	file string
	log  *log
}

type log struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(b)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.String()
}

func newAgent(t testing.TB, change func(*agent.Config)) *stand {
	t.Helper()
	s := &stand{file: filepath.Join(t.TempDir(), "secret"), log: &log{}}
	if err := os.WriteFile(s.file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	config := agent.Config{
		Version: "1.2.3", SecretFile: s.file, Log: slog.New(slog.NewTextHandler(s.log, nil)),
		Mounts:   func() ([]agent.Mount, error) { return nil, nil },
		Shutdown: func(string) error { return fmt.Errorf("this test must not shut down") },
	}
	if change != nil {
		change(&config)
	}
	var err error
	if s.Agent, err = agent.New(config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if strings.Contains(s.log.String(), secret) {
			t.Error("the log tells the secret")
		}
	})
	return s
}

// pair is a connected pair of Unix sockets.
func pair(t testing.TB) (host, far io.ReadWriteCloser) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		if ends[i], err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	return ends[0], ends[1]
}

// serve serves a stream until the test ends.
func (s *stand) serve(t testing.TB, stream io.ReadWriteCloser, how func(context.Context, io.ReadWriteCloser) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = how(ctx, stream)
	}()
	t.Cleanup(func() { cancel(); <-over; s.Wait() })
}

// client connects a daemon to the agent.
func (s *stand) client(t testing.TB, secret string) *guest.Client {
	t.Helper()
	host, far := pair(t)
	s.serve(t, far, s.Serve)
	return connect(t, host, secret)
}

func connect(t testing.TB, host io.ReadWriteCloser, secret string) *guest.Client {
	t.Helper()
	c, err := guest.Connect(within(t, 30*time.Second), host, secret)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func newClient(t testing.TB) *guest.Client {
	t.Helper()
	return newAgent(t, nil).client(t, secret)
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits for what another process does.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for ctx := within(t, 20*time.Second); !is(); {
		select {
		case <-ctx.Done():
			t.Fatalf("never: %s", what)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// alive reports whether a process runs, and is not one whose end nobody has looked at.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}

// lines is a writer that hands on each line as a number, as scripts tell their processes.
type pids chan int

func (p pids) Write(b []byte) (int, error) {
	for line := range strings.Lines(string(b)) {
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			return 0, err
		}
		p <- pid
	}
	return len(b), nil
}
