package probe_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/service/lb/probe"
)

// verdict is the first result of a check against a real listener.
func verdict(t *testing.T, c probe.Check) string {
	t.Helper()
	told := make(chan string, 1)
	p := probe.New(probe.Options{
		Log:      slog.New(slog.DiscardHandler),
		OnChange: func(_ probe.ID, healthy bool, reason string) { told <- fmt.Sprintf("%t: %s", healthy, reason) },
	})
	c.Interval = time.Hour // one probe is enough
	if err := p.Set([]probe.Check{c}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	select {
	case v := <-told:
		return v
	case <-time.After(time.Minute):
		t.Fatal("no verdict")
		return ""
	}
}

// listen serves each connection with serve, which reads and writes as it likes.
func listen(t *testing.T, serve func(*net.TCPConn)) netip.AddrPort {
	t.Helper()
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.AcceptTCP()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func TestTCPProbesSendNothingAndCloseWithAReset(t *testing.T) {
	t.Parallel()
	type end struct {
		read int
		err  error
	}
	ends := make(chan end, 1)
	address := listen(t, func(conn *net.TCPConn) {
		n, err := io.Copy(io.Discard, conn)
		ends <- end{int(n), err}
	})
	if got := verdict(t, check(address)); got != "true: connected" {
		t.Error(got)
	}
	if e := <-ends; e.read != 0 || !errors.Is(e.err, syscall.ECONNRESET) {
		t.Errorf("the backend read %d bytes, then %v", e.read, e.err)
	}
}

func TestAClosedPortIsAFailureWithTheKernelsWord(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().(*net.TCPAddr).AddrPort()
	l.Close()
	if got := verdict(t, check(address)); got != "false: connect: connection refused" {
		t.Error(got)
	}
}

func TestHTTPProbesAskForThePathAndNothingElse(t *testing.T) {
	t.Parallel()
	asked := make(chan *http.Request, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r
		w.WriteHeader(http.StatusEarlyHints) // interim answers are not the answer
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(http.StatusFound)
	}))
	defer server.Close()
	c := check(netip.MustParseAddrPort(server.Listener.Addr().String()))
	c.Type, c.Path, c.Host = probe.HTTP, "/health?full=1", "app.example.com"
	if got := verdict(t, c); got != "true: status 302" {
		t.Error(got)
	}
	r := <-asked
	if r.Method != http.MethodGet || r.RequestURI != "/health?full=1" || r.Host != "app.example.com" ||
		r.UserAgent() != "mainstay-lb" ||
		!r.Close {
		t.Errorf("asked %s %s of %s by %s", r.Method, r.RequestURI, r.Host, r.UserAgent())
	}
	if len(asked) > 0 {
		t.Error("the redirect was followed")
	}
}

func TestWithoutAHostTheAddressIsSent(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 1)
	server := httptest.NewServer(
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.Host + r.RequestURI }),
	)
	defer server.Close()
	c := check(netip.MustParseAddrPort(server.Listener.Addr().String()))
	c.Type = probe.HTTP
	if got := verdict(t, c); got != "true: status 200" {
		t.Error(got)
	}
	if got := <-asked; got != server.Listener.Addr().String()+"/" {
		t.Errorf("asked for %s", got)
	}
}

func TestTheStatusDecides(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }),
	)
	t.Cleanup(server.Close)
	for accepted, want := range map[probe.StatusRange]string{
		{}:                      "false: status 503, want 200-399",
		{First: 204, Last: 204}: "false: status 503, want 204",
		{First: 500, Last: 599}: "true: status 503",
	} {
		t.Run(accepted.String(), func(t *testing.T) {
			t.Parallel()
			c := check(netip.MustParseAddrPort(server.Listener.Addr().String()))
			c.Type, c.Status = probe.HTTP, accepted
			if got := verdict(t, c); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

func TestHTTPSTakesAnyCertificateAndNamesTheHost(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	names := make(chan string, 1)
	server.TLS = &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		names <- hello.ServerName
		return nil, nil
	}}
	server.StartTLS()
	defer server.Close()
	c := check(netip.MustParseAddrPort(server.Listener.Addr().String()))
	for host, want := range map[string]string{"": "", "app.example.com:8443": "app.example.com", "[::1]:443": ""} {
		c.Type, c.Host = probe.HTTPS, host
		if got := verdict(t, c); got != "true: status 200" {
			t.Error(got)
		}
		if name := <-names; name != want {
			t.Errorf("host %q is the server name %q", host, name)
		}
	}
}

// TestHostileAnswersFailWithAShortReason has backends that answer anything but HTTP.
func TestHostileAnswersFailWithAShortReason(t *testing.T) {
	t.Parallel()
	answer := func(text string) func(*net.TCPConn) {
		return func(conn *net.TCPConn) {
			_, _ = bufio.NewReader(conn).ReadString('\n')
			_, _ = io.WriteString(conn, text)
		}
	}
	endless := func(conn *net.TCPConn) {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
		for {
			if _, err := io.WriteString(conn, "X: "+strings.Repeat("a", 1000)+"\r\n"); err != nil {
				return
			}
		}
	}
	for name, c := range map[string]struct {
		serve func(*net.TCPConn)
		typ   probe.Type
		want  string
	}{
		"closes":           {func(*net.TCPConn) {}, probe.HTTP, "false: "},
		"resets":           {func(conn *net.TCPConn) { _ = conn.SetLinger(0) }, probe.HTTP, "false: "},
		"says nothing":     {func(conn *net.TCPConn) { _, _ = io.Copy(io.Discard, conn) }, probe.HTTP, "false: timeout after 300ms"},
		"half a header":    {answer("HTTP/1.1 200 OK\r\nA: b"), probe.HTTP, "false: no HTTP answer: connection closed"},
		"not HTTP":         {answer("\x00\x1b[31m" + strings.Repeat("x", 1000) + "\n"), probe.HTTP, "false: no HTTP answer: malformed HTTP"},
		"endless header":   {endless, probe.HTTP, "false: no HTTP answer: connection closed"},
		"only interim":     {answer(strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 100)), probe.HTTP, "false: no HTTP answer: nothing but 1xx"},
		"no TLS":           {answer("HTTP/1.1 400 Bad Request\r\n\r\n"), probe.HTTPS, "false: TLS handshake: "},
		"TLS says nothing": {func(conn *net.TCPConn) { _, _ = io.Copy(io.Discard, conn) }, probe.HTTPS, "false: timeout after 300ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hostile := check(listen(t, c.serve))
			hostile.Type, hostile.Timeout = c.typ, 300*time.Millisecond
			if name == "endless header" {
				hostile.Timeout = 10 * time.Second
			}
			got := verdict(t, hostile)
			if !strings.HasPrefix(got, c.want) || len(got) > 150 || strings.ContainsAny(got, "\x00\x1b\n") {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestAnEndlessBodyIsNoFailureAndIsNotRead(t *testing.T) {
	t.Parallel()
	written := make(chan int, 1)
	address := listen(t, func(conn *net.TCPConn) {
		_, _ = bufio.NewReader(conn).ReadString('\n')
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
		total := 0
		for {
			n, err := conn.Write(make([]byte, 4096))
			if total += n; err != nil {
				written <- total
				return
			}
		}
	})
	c := check(address)
	c.Type, c.Timeout = probe.HTTP, 10*time.Second
	if got := verdict(t, c); got != "true: status 200" {
		t.Error(got)
	}
	// Sockets buffer some megabytes at most; what was read of them is 64 KiB.
	if n := <-written; n > 64<<20 {
		t.Errorf("the backend got rid of %d bytes", n)
	}
}

func TestReasonsAreShort(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"connect: no route to host":     &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)},
		"network is unreachable":        fmt.Errorf("tunnel: %w", syscall.ENETUNREACH),
		"timeout after 1s":              &net.OpError{Op: "dial", Net: "tcp", Err: context.DeadlineExceeded},
		"connection closed":             io.EOF,
		"a.[2Jb":                        errors.New("a\x1b[2Jb"),
		strings.Repeat("ä", 60) + "...": errors.New(strings.Repeat("ä", 100)),
	} {
		if got := probe.FailureReason(err, time.Second); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
