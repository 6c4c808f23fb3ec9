package vm_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/cli/terminal/terminaltest"
	"github.com/mainstay-infra/mainstay/cli/vm/daemon/daemontest"
)

func settings(t *testing.T, terminal *os.File) unix.Termios {
	t.Helper()
	raw, err := terminal.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var got *unix.Termios
	if controlErr := raw.Control(
		func(fd uintptr) { got, err = unix.IoctlGetTermios(int(fd), unix.TCGETS) },
	); controlErr != nil ||
		err != nil {
		t.Fatal(controlErr, err)
	}
	return *got
}

// guest is a console that greets and echoes input in brackets, until it is told to power off.
func guest(t *testing.T) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.CloseNow() }()
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		// More than the library accepts by default: a replay may be long.
		err = conn.Write(ctx, websocket.MessageBinary, []byte(strings.Repeat(".", 60<<10)+"login: "))
		for err == nil {
			var keys []byte
			if _, keys, err = conn.Read(ctx); err != nil {
				return
			}
			if string(keys) == "off\r" || string(keys) == "off\n" {
				_ = conn.Close(websocket.StatusNormalClosure, "it has ended")
				return
			}
			err = conn.Write(ctx, websocket.MessageBinary, fmt.Appendf(nil, "[%q]", keys))
		}
	}
}

// start runs a command line on a terminal; its result is sent when it has ended.
func start(t *testing.T, url string, program *os.File, args ...string) <-chan daemontest.Result {
	t.Helper()
	run := daemontest.Run{URL: url, Stdin: program, Out: program, Err: program, Dir: t.TempDir()}
	ended := make(chan daemontest.Result, 1)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	go func() { ended <- run.Do(t, ctx, args...) }()
	return ended
}

func await(t *testing.T, ended <-chan daemontest.Result) daemontest.Result {
	t.Helper()
	select {
	case r := <-ended:
		return r
	case <-time.After(patience):
		t.Fatal("the command does not end")
		panic("unreachable")
	}
}

func TestAConsoleHandsEveryKeyOnUntilItIsDetached(t *testing.T) {
	t.Parallel()
	s := daemontest.Serve(t, map[string]http.HandlerFunc{"OpenConsole": guest(t)})
	person, program := terminaltest.Open(t)
	before := settings(t, program)
	ended := start(t, s.URL, program, "vm", "console", "web", "--token", "secret")
	terminaltest.See(t, person, "login: ")
	for keys, want := range map[string]string{"ls\r": `["ls\r"]`, "\x03": `["\x03"]`, "\x1a": `["\x1a"]`, "\x1b[A": `["\x1b[A"]`, "\n": `["\n"]`, "ü": `["ü"]`} {
		terminaltest.Type(t, person, keys)
		terminaltest.See(t, person, want)
	}
	terminaltest.Type(t, person, "bye\x1dlost")
	seen := terminaltest.See(t, person, "comes back.")
	if strings.Contains(seen, "lost") || !strings.Contains(seen, "Detached; 'mainstay vm console web' comes back.") {
		t.Errorf("%q", seen)
	}
	if r := await(t, ended); r.Code != 0 {
		t.Errorf("exit code %d", r.Code)
	}
	if after := settings(t, program); after != before {
		t.Errorf("the terminal was %+v and is %+v", before, after)
	}
	if got := s.Last(); got.Operation != "OpenConsole" || got.Authorization != "Bearer secret" || got.Query != "" {
		t.Errorf("%+v", got)
	}
}

func TestARunAttachesAndRemovesTheVMWhenTheGuestPowersOff(t *testing.T) {
	t.Parallel()
	s := daemontest.Serve(t, map[string]http.HandlerFunc{"OpenConsole": guest(t)})
	person, program := terminaltest.Open(t)
	before := settings(t, program)
	ended := start(t, s.URL, program, "vm", "run", "demo", "--name", "web")
	terminaltest.See(t, person, "login: ")
	terminaltest.Type(t, person, "off\r")
	terminaltest.See(t, person, "The guest has powered off; the VM web is removed.")
	if r := await(t, ended); r.Code != 0 || s.Called() != "CreateVM StartVM OpenConsole WaitVM DeleteVM" {
		t.Errorf("exit code %d; called %s", r.Code, s.Called())
	}
	if settings(t, program) != before {
		t.Error("the terminal is not as it was")
	}
}

func TestARunThatIsDetachedOrKeptLeavesTheVM(t *testing.T) {
	t.Parallel()
	for keys, want := range map[string]string{"\x1d": "Detached; web goes on. 'mainstay vm console web' comes back", "off\r": "The VM web is kept"} {
		s := daemontest.Serve(t, map[string]http.HandlerFunc{"OpenConsole": guest(t)})
		person, program := terminaltest.Open(t)
		args := []string{"vm", "run", "demo", "--name", "web", "--keep"}
		if keys == "\x1d" {
			args = args[:5]
		}
		ended := start(t, s.URL, program, args...)
		terminaltest.See(t, person, "login: ")
		terminaltest.Type(t, person, keys)
		terminaltest.See(t, person, want)
		if r := await(t, ended); r.Code != 0 || strings.Contains(s.Called(), "DeleteVM") {
			t.Errorf("exit code %d; called %s", r.Code, s.Called())
		}
	}
}

func TestAConnectionThatBreaksIsNotTakenForAPowerOff(t *testing.T) {
	t.Parallel()
	s := daemontest.Serve(t, map[string]http.HandlerFunc{"OpenConsole": func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err == nil {
			_ = conn.CloseNow()
		}
	}})
	got := daemontest.Run{
		URL:   s.URL,
		Stdin: strings.NewReader(""),
	}.Do(t, t.Context(), "vm", "run", "demo", "--name", "web")
	if strings.Contains(s.Called(), "DeleteVM") || got.Code != 1 ||
		!strings.Contains(got.Err, "'mainstay vm console web' attaches its console") {
		t.Errorf("%d %s; called %s", got.Code, got.Err, s.Called())
	}
}

func TestAConsoleThatEndsWhileTheVMRunsIsNotTakenForAPowerOff(t *testing.T) {
	t.Parallel()
	s := daemontest.Serve(t, map[string]http.HandlerFunc{
		"OpenConsole": guest(t),
		"WaitVM":      daemontest.Answer(409, `{"error":"the VM is running","code":"wait_timeout","request_id":"q"}`),
	})
	got := daemontest.Run{
		URL:   s.URL,
		Stdin: strings.NewReader("off\n"),
	}.Do(t, t.Context(), "vm", "run", "demo", "--name", "web")
	if strings.Contains(s.Called(), "DeleteVM") || got.Code != 1 ||
		!strings.Contains(got.Err, "the console of web ended, but it is running") {
		t.Errorf("%d %s; called %s", got.Code, got.Err, s.Called())
	}
}

func TestAConsoleWithoutATerminalTakesAPipe(t *testing.T) {
	t.Parallel()
	s := daemontest.Serve(t, map[string]http.HandlerFunc{"OpenConsole": guest(t)})
	in, typed := io.Pipe()
	out := &watched{want: `["\x1d"]`, seen: make(chan struct{})}
	ended := make(chan daemontest.Result, 1)
	go func() {
		ended <- daemontest.Run{URL: s.URL, Stdin: in, Out: out}.Do(t, context.Background(), "vm", "console", "web")
	}()
	_, _ = io.WriteString(typed, "\x1d") // no terminal, so a key like any other
	select {
	case <-out.seen:
	case <-time.After(patience):
		t.Fatal("nothing came back")
	}
	_, _ = io.WriteString(typed, "off\n")
	_ = typed.Close()
	if r := await(t, ended); r.Code != 0 || r.Err != "The console has ended.\n" {
		t.Errorf("%d %q", r.Code, r.Err)
	}
}

// watched closes seen when the wanted text was written.
type watched struct {
	want string
	seen chan struct{}

	mu   sync.Mutex
	text strings.Builder
	once sync.Once
}

func (w *watched) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(b)
	if strings.Contains(w.text.String(), w.want) {
		w.once.Do(func() { close(w.seen) })
	}
	return len(b), nil
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

func TestAConsoleGoesThroughTLSWhoseAuthorityIsNamed(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(guest(t))
	s.EnableHTTP2 = true                           // which a socket cannot begin with
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // the refused handshake is what is tested
	s.StartTLS()
	t.Cleanup(s.Close)
	authority := writeFile(
		t, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})),
	)
	run := daemontest.Run{URL: s.URL, Stdin: strings.NewReader("off\n")}
	if got := run.Do(t, t.Context(), "vm", "console", daemontest.VMID); got.Code != 1 ||
		!strings.Contains(got.Err, "hint: --ca-file names the authority") {
		t.Errorf("%d %s", got.Code, got.Err)
	}
	run.Stdin = strings.NewReader("off\n")
	if got := run.OK(t, "vm", "console", daemontest.VMID, "--ca-file", authority); !strings.HasSuffix(
		got.Out, "login: ",
	) {
		t.Errorf("%q", got.Err)
	}
}

func TestARefusedConsoleSaysWhy(t *testing.T) {
	t.Parallel()
	s := daemontest.Serve(
		t,
		map[string]http.HandlerFunc{
			"OpenConsole": daemontest.Answer(
				409,
				`{"error":"the VM is stopped","code":"wrong_state","request_id":"q"}`,
			),
		},
	)
	got := daemontest.Run{URL: s.URL}.Do(t, t.Context(), "vm", "console", "web")
	if got.Code != 1 || !strings.Contains(got.Err, "mainstay: the VM is stopped (code wrong_state, request id q)") {
		t.Errorf("%d %s", got.Code, got.Err)
	}
}

func TestAViewerReachesTheScreenByALocalPort(t *testing.T) {
	t.Parallel()
	s := daemontest.Serve(t, map[string]http.HandlerFunc{"OpenScreen": func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		stream := websocket.NetConn(r.Context(), conn, websocket.MessageBinary)
		defer func() { _ = stream.Close() }()
		_, _ = io.WriteString(stream, "RFB 003.008\n")
		_, _ = io.Copy(stream, stream)
	}})
	ctx, interrupt := context.WithCancel(context.Background())
	out := &watched{want: "\n", seen: make(chan struct{})}
	ended := make(chan daemontest.Result, 1)
	go func() { ended <- daemontest.Run{URL: s.URL, Out: out}.Do(t, ctx, "vm", "vnc", "web") }()
	t.Cleanup(interrupt)
	select {
	case <-out.seen:
	case <-time.After(patience):
		t.Fatal("no address was printed")
	}
	for range 2 { // one viewer after the other
		viewer, err := net.DialTimeout("tcp", strings.Fields(out.String())[1], patience)
		if err != nil {
			t.Fatal(err)
		}
		_ = viewer.SetDeadline(time.Now().Add(patience))
		got := make([]byte, len("RFB 003.008\nhello"))
		_, _ = io.WriteString(viewer, "hello")
		if _, err := io.ReadFull(viewer, got); err != nil || string(got) != "RFB 003.008\nhello" {
			t.Errorf("%q %v", got, err)
		}
		_ = viewer.Close()
	}
	interrupt()
	if r := await(t, ended); r.Code != 0 {
		t.Errorf("%d %s", r.Code, r.Err)
	}
}
