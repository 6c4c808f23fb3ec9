package httpserve_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/problem"
)

// serve runs a server for h and returns its address.
func serveOn(t *testing.T, cfg httpserve.Config, h http.Handler) string {
	t.Helper()
	cfg.Listen = "127.0.0.1:0"
	srv, err := httpserve.Listen(cfg, h, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Log(err) // requests that the test has left open
		}
	})
	return srv.Addr().String()
}

func get(t *testing.T, h http.Handler, path, remote string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	r.RemoteAddr = remote
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestProbesAreAnsweredWhenNothingElseIs(t *testing.T) {
	t.Parallel()
	release, begun := make(chan struct{}), make(chan struct{})
	render := httpserve.JSONErrors(slog.New(slog.DiscardHandler), problem.Nested)
	h := httpserve.LimitInFlight(1, render)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(begun)
			<-release
		}
	}))
	var slow sync.WaitGroup
	slow.Go(func() { get(t, h, "/slow", "10.0.0.1:1") })
	<-begun
	for path, want := range map[string]int{"/other": 503, "/healthz": 200, "/readyz": 200} {
		if got := get(t, h, path, "10.0.0.1:1").Code; got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
	close(release)
	slow.Wait()
	if got := get(t, h, "/other", "10.0.0.1:1").Code; got != 200 {
		t.Errorf("afterwards: %d", got)
	}
}

func TestStreamsTakeNoRequestsSlotsAndAreBoundedByCaller(t *testing.T) {
	t.Parallel()
	render := httpserve.JSONErrors(slog.New(slog.DiscardHandler), problem.Nested)
	opened := make(chan struct{}, 100)
	h := httpserve.LimitInFlight(2, render)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/stream" {
			return
		}
		s, err := httpserve.NewEventStream(w, r, time.Hour)
		if err != nil {
			render(w, r, err)
			return
		}
		defer s.Close()
		opened <- struct{}{}
		<-s.Context().Done()
	}))
	ctx, stop := context.WithCancel(t.Context())
	var streams sync.WaitGroup
	open := func(token string) {
		streams.Go(func() {
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/stream", nil)
			r.Header.Set("Authorization", "Bearer "+token)
			h.ServeHTTP(httptest.NewRecorder(), r)
		})
		<-opened
	}
	for range 32 {
		open("greedy")
	}
	if w := get(
		t, h, "/stream", "10.0.0.1:1", "Authorization", "Bearer greedy",
	); w.Code != http.StatusTooManyRequests ||
		!strings.Contains(w.Body.String(), "too_many_streams") {
		t.Errorf("one stream too many: %d %s", w.Code, w.Body)
	}
	open("modest")
	if got := get(t, h, "/other", "10.0.0.1:1").Code; got != 200 {
		t.Errorf("a request beside 33 streams: %d", got)
	}
	stop()
	streams.Wait()
	ctx, stop = context.WithCancel(t.Context())
	open("greedy") // the slots are back
	stop()
	streams.Wait()
}

func TestRequestsThatWaitTakeNoRequestsSlotsAndAreBoundedByCaller(t *testing.T) {
	t.Parallel()
	render := httpserve.JSONErrors(slog.New(slog.DiscardHandler), problem.Nested)
	begun := make(chan struct{}, 1000)
	h := httpserve.LimitInFlight(2, render)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit := time.Duration(0)
		if r.URL.Path == "/wait" {
			limit = time.Hour
		}
		end, err := httpserve.BeginWait(r.Context(), limit)
		if err != nil {
			render(w, r, err)
			return
		}
		defer end()
		if limit > 0 {
			begun <- struct{}{}
			<-r.Context().Done()
		}
	}))
	ctx, stop := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for range 256 {
		waiting.Go(func() {
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/wait", nil)
			r.Header.Set("Authorization", "Bearer greedy")
			h.ServeHTTP(httptest.NewRecorder(), r)
		})
		<-begun
	}
	if w := get(t, h, "/wait", "10.0.0.1:1", "Authorization", "Bearer greedy"); w.Code != http.StatusTooManyRequests {
		t.Errorf("one too many: %d %s", w.Code, w.Body)
	}
	for _, token := range []string{"greedy", "modest"} {
		if got := get(t, h, "/other", "10.0.0.1:1", "Authorization", "Bearer "+token).Code; got != 200 {
			t.Errorf("a request beside those that wait: %d", got)
		}
	}
	stop()
	waiting.Wait()
}

// WebSocket libraries respond with 101 before they hijack, so a refusal must come earlier.
func TestAReservedStreamIsRefusedBeforeItsAnswerAndGivenBackWithItsRequest(t *testing.T) {
	t.Parallel()
	render := httpserve.JSONErrors(slog.New(slog.DiscardHandler), problem.Nested)
	opened, leave, left := make(chan struct{}), make(chan struct{}), make(chan struct{}, 32)
	addr := serveOn(
		t,
		httpserve.Config{},
		httpserve.LimitInFlight(100, render)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := httpserve.ReserveStream(r); err != nil {
				render(w, r, err)
				return
			}
			if r.URL.Path == "/failed" {
				return // nothing came of it
			}
			w.WriteHeader(http.StatusSwitchingProtocols)
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			opened <- struct{}{}
			<-leave
			_ = c.Close()
			left <- struct{}{}
		})),
	)
	ask := func(path string) string {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return err.Error()
		}
		t.Cleanup(func() { _ = c.Close() })
		_, _ = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer greedy\r\n\r\n", path)
		line, err := bufio.NewReader(c).ReadString('\n')
		if err != nil {
			return err.Error()
		}
		return strings.TrimSpace(line)
	}
	for range 40 {
		if got := ask("/failed"); got != "HTTP/1.1 200 OK" {
			t.Fatal(got)
		}
	}
	var sockets sync.WaitGroup
	for range 32 {
		sockets.Go(func() {
			if got := ask("/socket"); got != "HTTP/1.1 101 Switching Protocols" {
				t.Errorf("a socket: %s", got)
			}
		})
		<-opened
	}
	if got := ask("/socket"); got != "HTTP/1.1 429 Too Many Requests" {
		t.Errorf("one socket too many: %s", got)
	}
	close(leave)
	for range 32 {
		<-left
	}
	sockets.Wait()
	if got := ask("/failed"); got != "HTTP/1.1 200 OK" {
		t.Errorf("afterwards: %s", got)
	}
}

func TestABodyThatTricklesIsCutOff(t *testing.T) {
	t.Parallel()
	read := make(chan error, 1)
	addr := serveOn(
		t,
		httpserve.Config{ReadTimeout: 300 * time.Millisecond},
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(r.Body)
			read <- err
		}),
	)
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nx"); err != nil {
		t.Fatal(err)
	}
	if err := <-read; !fault.Is(httpserve.BodyError(err), fault.Invalid) ||
		!strings.Contains(httpserve.BodyError(err).Error(), "did not arrive in time") {
		t.Errorf("%v", err)
	}
}

// The server watches the connection while a handler works. The deadline of the body must not end
// the handler's request.
func TestARequestOutlivesTheDeadlineOfItsBody(t *testing.T) {
	t.Parallel()
	addr := serveOn(
		t,
		httpserve.Config{ReadTimeout: 200 * time.Millisecond},
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			httpserve.Lasting(w, r)
			if _, err := io.ReadAll(r.Body); err != nil {
				t.Error(err)
			}
			select {
			case <-r.Context().Done():
				w.WriteHeader(http.StatusGatewayTimeout)
			case <-time.After(600 * time.Millisecond):
			}
		}),
	)
	res, err := http.Post("http://"+addr, "text/plain", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		t.Errorf("%d", res.StatusCode)
	}
}

func TestConnectionsOfOneAddressAreBounded(t *testing.T) {
	t.Parallel()
	addr := serveOn(
		t, httpserve.Config{MaxConnectionsPerAddress: 2}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
	)
	dial := func(from string) net.Conn {
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	works := func(c net.Conn) bool {
		if _, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			return false
		}
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		return err == nil && res.StatusCode == http.StatusOK
	}
	first, second := dial("127.0.0.2"), dial("127.0.0.2")
	if !works(first) || !works(second) {
		t.Fatal("the first two do not work")
	}
	if works(dial("127.0.0.2")) {
		t.Error("a third connection of the address works")
	}
	if !works(dial("127.0.0.3")) {
		t.Error("another address is refused")
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); !works(dial("127.0.0.2")); {
		if time.Now().After(deadline) {
			t.Fatal("a closed connection still counts")
		}
	}
}

func TestOnlyTrustedProxiesSayWhoseRequestItIs(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		proxies []string
		from    string
		header  []string
		want    string
	}{
		"no proxy is trusted":             {nil, "127.0.0.1", []string{"X-Forwarded-For", "192.0.2.7"}, "127.0.0.1"},
		"another address":                 {[]string{"127.0.0.9"}, "127.0.0.1", []string{"X-Forwarded-For", "192.0.2.7"}, "127.0.0.1"},
		"a trusted one":                   {[]string{"127.0.0.0/8"}, "127.0.0.1", []string{"X-Forwarded-For", "192.0.2.7"}, "192.0.2.7"},
		"what the client made up":         {[]string{"127.0.0.1"}, "127.0.0.1", []string{"X-Forwarded-For", "10.9.9.9, 192.0.2.7"}, "192.0.2.7"},
		"a chain of trusted ones":         {[]string{"127.0.0.1", "10.0.0.0/8"}, "127.0.0.1", []string{"X-Forwarded-For", "192.0.2.7, 10.1.1.1"}, "192.0.2.7"},
		"RFC 7239":                        {[]string{"127.0.0.1"}, "127.0.0.1", []string{"Forwarded", `for="[2001:db8::1]:4711";proto=https, for=127.0.0.1`}, "2001:db8::1"},
		"an identifier that hides it":     {[]string{"127.0.0.1"}, "127.0.0.1", []string{"Forwarded", "for=_hidden"}, "127.0.0.1"},
		"only trusted ones":               {[]string{"127.0.0.1"}, "127.0.0.1", []string{"X-Forwarded-For", "127.0.0.1"}, "127.0.0.1"},
		"two headers that disagree":       {[]string{"127.0.0.1"}, "127.0.0.1", []string{"X-Forwarded-For", "192.0.2.7", "Forwarded", "for=10.9.9.9"}, "127.0.0.1"},
		"two headers that agree":          {[]string{"127.0.0.1"}, "127.0.0.1", []string{"X-Forwarded-For", "192.0.2.7", "Forwarded", "for=10.9.9.9, for=192.0.2.7"}, "192.0.2.7"},
		"nonsense":                        {[]string{"127.0.0.1"}, "127.0.0.1", []string{"X-Forwarded-For", "<script>"}, "127.0.0.1"},
		"an IPv4 address written as IPv6": {[]string{"127.0.0.1"}, "127.0.0.1", []string{"X-Forwarded-For", "::ffff:192.0.2.7"}, "192.0.2.7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := serveOn(
				t,
				httpserve.Config{TrustedProxies: tt.proxies},
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.WriteString(w, httpserve.RemoteIP(r))
				}),
			)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i := 0; i < len(tt.header); i += 2 {
				req.Header.Set(tt.header[i], tt.header[i+1])
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = res.Body.Close() }()
			if got, err := io.ReadAll(res.Body); err != nil || string(got) != tt.want {
				t.Errorf("%s, %v; want %s", got, err, tt.want)
			}
		})
	}
	if err := (httpserve.Config{Listen: ":1", TrustedProxies: []string{"proxy.example"}, MaxInFlight: 1, MaxHeaderBytes: 1 << 16}).Validate(); fault.From(
		err,
	).Field != "trusted-proxies" {
		t.Errorf("%v", err)
	}
}

func TestAnIPv6ClientIsItsNetwork(t *testing.T) {
	t.Parallel()
	for remote, want := range map[string]string{"192.0.2.7:1": "192.0.2.7", "[2001:db8:1:2:3::4]:1": "2001:db8:1:2::/64", "[2001:db8:1:2:ffff::1]:1": "2001:db8:1:2::/64", "[fe80::1%eth0]:1": "fe80::/64", "pipe": "pipe"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = remote
		if got := httpserve.RemoteNetwork(r); got != want {
			t.Errorf("%s: %s, want %s", remote, got, want)
		}
	}
}

// The server reads the rest of a body before it responds. A client that is refused without
// credentials could hold a connection that way, and delay the server's shutdown.
func TestARefusalDoesNotWaitForTheBody(t *testing.T) {
	t.Parallel()
	addr := serveOn(t, httpserve.Config{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refused" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	ask := func(path, body string) (net.Conn, *http.Response) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if err := c.SetDeadline(time.Now().Add(8 * time.Second)); err != nil { // less than bodies are given
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n%s", path, body); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		return c, res
	}
	c, res := ask("/refused", "")
	if res.StatusCode != http.StatusUnauthorized || !res.Close {
		t.Errorf("%d, the connection is closed: %v", res.StatusCode, res.Close)
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("the connection is not closed: %d bytes, %v", n, err)
	}
	// A body that arrives, and that the handler does not read, does not close the connection.
	if _, res := ask("/taken", strings.Repeat("x", 100)); res.StatusCode != http.StatusOK || res.Close {
		t.Errorf("%d, the connection is closed: %v", res.StatusCode, res.Close)
	}
}
