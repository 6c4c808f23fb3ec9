//go:build linux

package agent_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mainstay-infra/mainstay/service/hypervisor/guest"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/agent"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/wire"
)

// serial stands for a virtio-serial port and what a virtual machine monitor does with its
// socket: what a daemon wrote stays in the port when the daemon dies, and the guest does
// not hear of that.
type serial struct {
	t       testing.TB
	monitor io.ReadWriteCloser // the other end of the port

	mu   sync.Mutex
	host io.ReadWriteCloser // the daemon that is connected, if any
}

func newSerial(t testing.TB, s *stand) *serial {
	monitor, port := pair(t)
	s.serve(t, port, s.ServePort)
	p := &serial{t: t, monitor: monitor}
	t.Cleanup(func() { monitor.Close() })
	go func() {
		for b := make([]byte, 4096); ; {
			n, err := monitor.Read(b)
			if err != nil {
				return
			}
			p.mu.Lock()
			if p.host != nil {
				_, _ = p.host.Write(b[:n])
			}
			p.mu.Unlock()
		}
	}()
	return p
}

// connect returns a daemon's end; the one before is cut off.
func (p *serial) connect() io.ReadWriteCloser {
	daemon, host := pair(p.t)
	p.mu.Lock()
	p.host = host
	p.mu.Unlock()
	p.t.Cleanup(func() { host.Close(); daemon.Close() })
	go func() { _, _ = io.Copy(p.monitor, host) }()
	return daemon
}

func TestANewDaemonGetsASessionWhereverTheOldOneDied(t *testing.T) {
	t.Parallel()
	request := wire.With(1, wire.OpPing, struct{}{})
	request.Secret = secret
	ping, err := request.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, dying := range map[string][]byte{
		"in a length": ping[:3], "in a frame": ping[:20], "after a frame": ping,
		"in a preamble": wire.Nonce{}.Preamble()[:11], "in garbage": bytes.Repeat([]byte{0xff}, 100_000),
		"before anything": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			port := newSerial(t, newAgent(t, nil))
			for range 3 {
				c := connect(t, port.connect(), secret)
				if err := c.Ping(within(t, 20*time.Second)); err != nil {
					t.Fatal(err)
				}
				// The bytes come after those of the client, and the agent is not told.
				if _, err := port.monitor.Write(dying); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestANewDaemonKillsWhatTheOldOneRan(t *testing.T) {
	t.Parallel()
	port := newSerial(t, newAgent(t, nil))
	old := connect(t, port.connect(), secret)
	told := make(pids, 1)
	go func() {
		_, _ = old.Exec(
			t.Context(),
			guest.Command{Argv: shell(`echo $$; cat /dev/zero`), Stdout: writer(func(b []byte) (int, error) {
				if len(told) == 0 {
					line, _, _ := bytes.Cut(b, []byte("\n"))
					if len(line) > 1 && line[0] != 0 {
						return told.Write(line)
					}
				}
				return len(b), nil
			})},
		)
	}()
	pid := <-told // and a flood of output follows
	c := connect(t, port.connect(), secret)
	if err := c.Ping(within(t, 20*time.Second)); err != nil {
		t.Error(err)
	}
	eventually(t, "it is dead", func() bool { return !alive(pid) })
}

func TestAPortWithoutAHostIsReadAgain(t *testing.T) {
	t.Parallel()
	s := newAgent(t, nil)
	// A pipe that nobody has open for writing is at its end, as such a port is.
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	in, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	answers, out := io.Pipe()
	s.serve(t, port{in, out}, s.ServePort)
	r := wire.NewReader(answers)
	for i := range byte(3) {
		host, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		nonce := wire.Nonce{i}
		if _, err := host.Write(nonce.Preamble()); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Preamble(&nonce, wire.MaxStale); err != nil {
			t.Fatal(err)
		}
		if f, err := r.Frame(); err != nil || f.Op != wire.OpHello {
			t.Errorf("%v, %v", f, err)
		}
		host.Close()
		eventually(t, "the session ends", func() bool {
			return strings.Count(s.log.String(), "session ended") == int(i)+1
		})
	}
}

// port reads from a file and writes to a pipe.
type port struct {
	*os.File
	out *io.PipeWriter
}

func (p port) Write(b []byte) (int, error) { return p.out.Write(b) }

func (p port) Close() error { return errors.Join(p.File.Close(), p.out.Close()) }

func TestAMalformedFrameEndsTheSessionAndWhatItRan(t *testing.T) {
	t.Parallel()
	for name, sent := range map[string]string{
		"garbage":           "GET / HTTP/1.1\r\n\r\n",
		"an open call":      "",
		"credit":            "\x00\x00\x00\x24" + `{"id":1,"op":"credit","credit":1234}`,
		"data without end":  "flood",
		"an unknown stream": "\x00\x00\x00\x2d" + `{"id":1,"op":"data","stream":9,"data":"AAAA"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host, far := pair(t)
			s := newAgent(t, nil)
			s.serve(t, far, s.Serve)
			_, _ = host.Write(wire.Nonce{}.Preamble())
			r := wire.NewReader(host)
			if _, err := r.Preamble(&wire.Nonce{}, 0); err != nil {
				t.Fatal(err)
			}
			request := wire.With(1, wire.OpExec, wire.Exec{Argv: shell(family), Stdin: true})
			request.Secret = secret
			exec, err := request.Encode()
			if err != nil {
				t.Fatal(err)
			}
			_, _ = host.Write(exec)
			told := make(pids, 2)
			for len(told) < 2 {
				f, err := r.Frame()
				if err != nil {
					t.Fatal(err)
				}
				_, _ = told.Write(f.Data)
			}
			switch sent {
			case "":
				_, _ = host.Write(exec)
			case "flood":
				flood, _ := (&wire.Frame{ID: 1, Op: wire.OpData, Data: make([]byte, wire.MaxChunk)}).Encode()
				// One window, and what a pipe and the agent on its way to it can hold.
				for range 2*wire.Window/wire.MaxChunk + 4 {
					if _, err := host.Write(flood); err != nil {
						break
					}
				}
			default:
				_, _ = host.Write([]byte(sent))
			}
			for range 2 {
				pid := <-told
				eventually(t, "it is dead", func() bool { return !alive(pid) })
			}
			for { // the host is told
				f, err := r.Frame()
				if err != nil {
					t.Fatal(err)
				}
				if f.ID == 0 && f.Op == wire.OpError && strings.Contains(string(f.Body), "malformed frame") {
					break
				}
			}
			// And the next session works.
			_, _ = host.Write(wire.Nonce{7}.Preamble())
			if _, err := r.Preamble(&wire.Nonce{7}, 0); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestHelloTellsVersionAndCapabilities(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	if c.Version() != "1.2.3" || !slices.Contains(c.Capabilities(), wire.OpExec) ||
		!slices.Contains(c.Capabilities(), wire.OpRotateSecret) {
		t.Errorf("%q, %v", c.Version(), c.Capabilities())
	}
}

func TestAWrongSecretDoesNothing(t *testing.T) {
	t.Parallel()
	down := make(chan string, 1)
	s := newAgent(t, func(c *agent.Config) {
		c.Shutdown = func(mode string) error { down <- mode; return nil }
	})
	path := filepath.Join(t.TempDir(), "file")
	// A client each, since wrong ones are answered slower and slower.
	for name, call := range map[string]func(*guest.Client) error{
		"exec": func(c *guest.Client) error {
			return errOf(c.Exec(t.Context(), guest.Command{Argv: []string{"touch", path}}))
		},
		"put-file": func(c *guest.Client) error { return c.PutFile(t.Context(), path, 0o600, 1, endless{}) },
		"shutdown": func(c *guest.Client) error { return c.Shutdown(t.Context(), wire.PowerOff) },
		"rotate":   func(c *guest.Client) error { return errOf(c.RotateSecret(t.Context(), "mine")) },
	} {
		if err := call(s.client(t, secret+"x")); !guest.IsRefusal(err, wire.Denied) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Stat(path); err == nil || len(down) > 0 {
		t.Error("something was done")
	}
	if strings.Count(s.log.String(), "wrong secret was refused") != 4 {
		t.Errorf("the log does not say so: %s", s.log)
	}
	if err := s.client(t, secret).Ping(t.Context()); err != nil {
		t.Errorf("the right one: %v", err)
	}
}

func errOf(_ any, err error) error { return err }

func TestWrongSecretsAreAnsweredSlowerOneAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newAgent(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		dial := func(secret string) *guest.Client {
			host, far := net.Pipe()
			go func() { _ = s.Serve(ctx, far) }()
			c, err := guest.Connect(ctx, host, secret)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		began := time.Now()
		var guesses sync.WaitGroup
		for range 10 {
			c := dial("wrong")
			guesses.Go(func() {
				if err := c.Ping(ctx); !guest.IsRefusal(err, wire.Denied) {
					t.Error(err)
				}
				c.Close()
			})
		}
		right := dial(secret)
		if err := right.Ping(ctx); err != nil || time.Since(began) > 0 {
			t.Errorf("%v; the right secret waited %v", err, time.Since(began))
		}
		guesses.Wait()
		if took := time.Since(began); took != 7*time.Second {
			t.Errorf("ten guesses took %v", took)
		}
		right.Close()
	})
}

func TestARotatedSecretReplacesTheOldOneEverywhere(t *testing.T) {
	t.Parallel()
	s := newAgent(t, nil)
	c, other := s.client(t, secret), s.client(t, secret)
	stored, err := c.RotateSecret(t.Context(), "a-new-secret")
	if err != nil || !stored {
		t.Fatal(stored, err)
	}
	if err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if err := other.Ping(t.Context()); !guest.IsRefusal(err, wire.Denied) {
		t.Errorf("the old one: %v", err)
	}
	info, err := os.Stat(s.file)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if b, err := os.ReadFile(s.file); err != nil || string(b) != "a-new-secret\n" {
		t.Errorf("%q, %v", b, err)
	}
	if strings.Contains(s.log.String(), "a-new-secret") {
		t.Error("the log tells it")
	}
	// One that cannot be stored holds as long as the agent runs.
	if err := os.RemoveAll(filepath.Dir(s.file)); err != nil {
		t.Fatal(err)
	}
	if stored, err := c.RotateSecret(t.Context(), "a-third-secret"); err != nil || stored {
		t.Error(stored, err)
	}
	if err := s.client(t, "a-third-secret").Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestCallsDuringRotationsUseTheSecretThatIsRight(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	var pings sync.WaitGroup
	stop := make(chan struct{})
	for range 8 {
		pings.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := c.Ping(t.Context()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range 20 {
		if _, err := c.RotateSecret(t.Context(), strings.Repeat("s", i+1)); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	pings.Wait()
}

func TestSecretFilesThatOthersReadOrThatHoldNoneAreRefused(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for name, test := range map[string]struct {
		content string
		mode    os.FileMode
	}{
		"open": {secret, 0o644}, "group": {secret, 0o640}, "empty": {"\n", 0o600}, "binary": {"a\x00b", 0o600}, "large": {strings.Repeat("x", 5000), 0o600},
	} {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(test.content), test.mode); err != nil {
			t.Fatal(err)
		}
		_, err := agent.New(agent.Config{SecretFile: path})
		if err == nil || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := agent.New(agent.Config{SecretFile: filepath.Join(folder, "missing")}); !errors.Is(
		err, os.ErrNotExist,
	) {
		t.Error(err)
	}
}

// FuzzHost sends an agent what nobody who knows the secret would.
func FuzzHost(f *testing.F) {
	preamble := string(wire.Nonce{}.Preamble())
	f.Add([]byte("garbage"))
	f.Add([]byte(preamble + "\x00\x00\x00\x14" + `{"id":1,"op":"ping"}`))
	f.Add([]byte(preamble + "\x00\x00\x00\x16" + `{"id":1,"op":"cancel"}` + preamble))
	f.Fuzz(func(t *testing.T, sent []byte) {
		done := make(chan string, 1)
		s := newAgent(t, func(c *agent.Config) {
			c.Shutdown = func(mode string) error { done <- mode; return nil }
		})
		host, far := pair(t)
		over := make(chan error, 1)
		go func() { over <- s.Serve(t.Context(), far) }()
		go func() { _, _ = io.Copy(io.Discard, host) }()
		_, _ = host.Write(sent)
		_ = host.(*net.UnixConn).CloseWrite()
		select {
		case err := <-over:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute): // guesses take a second each
			if bytes.Count(sent, []byte(`"op"`)) < 10 {
				t.Error("the agent does not end")
			}
		}
		host.Close()
		if len(done) > 0 {
			t.Error("something was done")
		}
	})
}
