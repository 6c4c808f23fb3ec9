//go:build linux

package pam_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/pam"
	"github.com/mainstay-infra/mainstay/service/vm/pam/pamtest"
)

// serve serves a socket until the test ends. Its log must not contain the secret.
func serve(t *testing.T, secret string, s *pam.Server) (socket string) {
	t.Helper()
	var log bytes.Buffer
	s.Log = slog.New(slog.NewTextHandler(&log, nil))
	socket = filepath.Join(t.TempDir(), "pam.sock")
	l, err := pam.Listen(socket, -1)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if log.Len() == 0 || strings.Contains(log.String(), secret) {
			t.Errorf("the log is empty or contains the password: %s", &log)
		}
	})
	return socket
}

func TestAServerAnswersItsOwnServiceAndNobodyElse(t *testing.T) {
	t.Parallel()
	path, h := pamtest.Program(t), pamtest.Accounts(t)
	dir := pamtest.ConfDir(t, map[string]string{"mainstay": pamtest.UnixRules, "permit": permitRules})
	socket := serve(t, h.Password, &pam.Server{
		UIDs: []int{os.Getuid()}, Services: []string{"mainstay"}, Program: path, ConfDir: dir,
	})
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("the socket: %v, %v", info.Mode(), err)
	}
	a, err := pam.Socket(socket, "mainstay").Authenticate(t.Context(), h.Plain, h.Password)
	if err != nil || a.Username != h.Plain {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := pam.Socket(socket, "mainstay").Authenticate(t.Context(), h.Plain, "wrong"); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("a wrong password: %v", err)
	}
	if _, err := pam.Socket(socket, "permit").Authenticate(t.Context(), h.Plain, h.Password); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a service that may not be asked about: %v", err)
	}
	stranger := serve(t, h.Password, &pam.Server{
		UIDs: []int{os.Getuid() + 1}, Services: []string{"mainstay"}, Program: path, ConfDir: dir,
	})
	if a, err := pam.Socket(stranger, "mainstay").Authenticate(t.Context(), h.Plain, h.Password); !fault.Is(err, fault.Unavailable) {
		t.Errorf("another user's process: %+v, %v", a, err)
	}
}

func TestAServerOutlivesBadRequests(t *testing.T) {
	t.Parallel()
	path, h := pamtest.Program(t), pamtest.Accounts(t)
	socket := serve(t, h.Password, &pam.Server{
		UIDs: []int{os.Getuid()}, Services: []string{"mainstay"}, Program: path,
		ConfDir: pamtest.ConfDir(t, map[string]string{"mainstay": pamtest.UnixRules}),
	})
	frame := func(body string) string {
		return string(binary.BigEndian.AppendUint32(nil, uint32(len(body)))) + body
	}
	for name, raw := range map[string]string{
		"nothing": "", "half a length": "\x00\x00", "a huge length": "\xff\xff\xff\xff", "half a body": "\x00\x00\x00\x10{}",
		"not JSON": frame("hello"), "another shape": frame(`{"op":[]}`), "no operation": frame(`{}`),
		"another operation": frame(`{"op":"chauthtok","service":"mainstay","username":"root"}`),
		"a path":            frame(`{"op":"groups","service":"mainstay","username":"../../etc/passwd"}`),
	} {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write([]byte(raw))
		_ = conn.(*net.UnixConn).CloseWrite()
		if a, err := pam.ReadResponse(conn); err == nil && a.Error != pam.Invalid {
			t.Errorf("%s: %+v", name, a)
		}
		_ = conn.Close()
	}
	if _, err := pam.Socket(socket, "mainstay").Authenticate(t.Context(), h.Plain, h.Password); err != nil {
		t.Error(err)
	}
}

func TestManyRequestsAtOnceAreAnsweredOrRefused(t *testing.T) {
	t.Parallel()
	path, h := pamtest.Program(t), pamtest.Accounts(t)
	socket := serve(t, h.Password, &pam.Server{
		UIDs: []int{os.Getuid()}, Services: []string{"mainstay"}, Program: path,
		ConfDir: pamtest.ConfDir(t, map[string]string{"mainstay": pamtest.UnixRules}),
	})
	var work sync.WaitGroup
	errs := make(chan error, 40)
	for i := range 40 {
		work.Go(func() { // each a Client of its own, so that the server has to limit them
			password := h.Password
			if i%2 == 0 {
				password = "wrong"
			}
			_, err := pam.Socket(socket, "mainstay").Authenticate(t.Context(), h.Plain, password)
			if err == nil != (i%2 == 1) && !fault.Is(err, fault.Unavailable) {
				t.Errorf("%s: %v", password, err)
			}
			errs <- err
		})
	}
	work.Wait()
	close(errs)
	answered := 0
	defer func() { t.Logf("%d of 40 were answered", answered) }()
	for err := range errs {
		if err == nil || fault.Is(err, fault.Unauthenticated) {
			answered++
		}
	}
	if answered < 8 {
		t.Errorf("only %d of 40 were answered", answered)
	}
}

func TestTheProgramServesItsSocket(t *testing.T) {
	t.Parallel()
	path, h := pamtest.Program(t), pamtest.Accounts(t)
	dir := pamtest.ConfDir(t, map[string]string{"mainstay": pamtest.UnixRules, "hang": script(t, "exec sleep 20")})
	socket := filepath.Join(t.TempDir(), "pam.sock")
	cmd := exec.Command(path, "serve", "--listen", socket, "--uid", "4242,"+strconv.Itoa(os.Getuid()),
		"--gid", strconv.Itoa(os.Getgid()), "--service", "mainstay,hang", "--confdir", dir)
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := pam.Socket(socket, "mainstay")
	var err error
	for range 200 { // until it listens
		if _, err = c.Authenticate(t.Context(), h.Plain, h.Password); !errors.Is(err, pam.ErrNotAsked) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		t.Error(err)
	}
	// It is killed while it is asked.
	asked := make(chan error, 1)
	go func() {
		_, err := pam.Socket(socket, "hang").Authenticate(t.Context(), h.Plain, h.Password)
		asked <- err
	}()
	for range 200 { // until the stack is asked
		if children, _ := exec.Command("pgrep", "-P", strconv.Itoa(cmd.Process.Pid)).Output(); len(children) > 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err := <-asked; !fault.Is(err, fault.Unavailable) {
		t.Errorf("killed while it was asked: %v", err)
	}
	if strings.Contains(log.String(), h.Password) {
		t.Errorf("the log contains the password: %s", &log)
	}
	if out, err := exec.Command(path, "serve").CombinedOutput(); err == nil || !strings.Contains(string(out), "--uid") {
		t.Errorf("without a user id: %s, %v", out, err)
	}
}

func TestASocketReplacesNoOtherFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := pam.Listen(path, -1); err == nil {
		t.Error("it listens")
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "x" {
		t.Errorf("%q, %v", text, err)
	}
}

func FuzzReadRequest(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x02{}"))
	f.Add([]byte("\xff\xff\xff\xff"))
	var good bytes.Buffer
	if err := pam.WriteRequest(&good, pam.Request{Op: pam.Authenticate, Service: "s", Username: "u", Password: []byte("p")}); err != nil {
		f.Fatal(err)
	}
	f.Add(good.Bytes())
	f.Fuzz(func(t *testing.T, raw []byte) {
		q, err := pam.ReadRequest(bytes.NewReader(raw))
		if err == nil && q.Check() == nil && (strings.ContainsAny(q.Username, "/\x00\n") || len(q.Username) > 64 || len(q.Password) > pam.MaxPassword) {
			t.Errorf("%+v", q)
		}
	})
}
