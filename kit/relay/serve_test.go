package relay_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/problem"
	"github.com/mainstay-infra/mainstay/kit/relay"
)

var discard = slog.New(slog.DiscardHandler)

// guest is the far end of the streams that a handler serves.
type guest struct {
	streams chan net.Conn
	errs    chan error // of Serve
}

// handler serves a new stream for each request.
func (g *guest) handler(until context.Context, greeting string) http.Handler {
	fail := httpserve.JSONErrors(discard, problem.Flat)
	serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		near, far := net.Pipe()
		g.streams <- far
		err := relay.Serve(until, w, r, near, relay.Options{Log: discard, Greeting: []byte(greeting)})
		if err != nil {
			fail(w, r, err)
		}
		g.errs <- err
	})
	return httpserve.LimitInFlight(100, fail)(serve)
}

func newGuest() *guest { return &guest{make(chan net.Conn, 100), make(chan error, 100)} }

// open opens a socket to a new server, and returns the far end of its stream.
func open(t *testing.T, until context.Context, greeting string) (*websocket.Conn, net.Conn, *guest) {
	t.Helper()
	g := newGuest()
	server := httptest.NewServer(g.handler(until, greeting))
	t.Cleanup(server.Close)
	conn, _, err := websocket.Dial(t.Context(), server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.CloseNow() })
	return conn, <-g.streams, g
}

// ends reads a socket to its end, and returns its close status.
func ends(t *testing.T, conn *websocket.Conn) websocket.StatusCode {
	t.Helper()
	for {
		if _, _, err := conn.Read(t.Context()); err != nil {
			return websocket.CloseStatus(err)
		}
	}
}

func TestASocketCarriesBothWaysAfterItsGreeting(t *testing.T) {
	t.Parallel()
	conn, far, g := open(t, t.Context(), `{"offset":7}`)
	kind, message, err := conn.Read(t.Context())
	if err != nil || kind != websocket.MessageText || string(message) != `{"offset":7}` {
		t.Errorf("first %v %q, %v", kind, message, err)
	}
	for _, text := range []string{"login: ", "\x00\xff"} {
		if _, err := io.WriteString(far, text); err != nil {
			t.Fatal(err)
		}
		kind, message, err = conn.Read(t.Context())
		if err != nil || kind != websocket.MessageBinary || string(message) != text {
			t.Errorf("then %v %q, %v", kind, message, err)
		}
		if err := conn.Write(t.Context(), websocket.MessageBinary, []byte(text)); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(text))
		if _, err := io.ReadFull(far, got); err != nil || string(got) != text {
			t.Errorf("typed %q, %v", got, err)
		}
	}
	_ = far.Close()
	if status := ends(t, conn); status != websocket.StatusNormalClosure {
		t.Errorf("with the stream, the socket ends with %d", status)
	}
	if err := <-g.errs; err != nil {
		t.Error(err)
	}
}

func TestAStreamEndsWithItsSocket(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*websocket.Conn){
		"closed":   func(c *websocket.Conn) { _ = c.Close(websocket.StatusNormalClosure, "") },
		"cut off":  func(c *websocket.Conn) { _ = c.CloseNow() },
		"too much": func(c *websocket.Conn) { _ = c.Write(t.Context(), websocket.MessageBinary, make([]byte, 1<<20+1)) },
	} {
		conn, far, g := open(t, t.Context(), "")
		end(conn)
		if _, err := far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("%s: the stream ends with %v", name, err)
		}
		_ = conn.CloseNow()
		if err := <-g.errs; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The service stops, or the caller loses the permission.
func TestASocketEndsWithTheContextThatItIsServedUntil(t *testing.T) {
	t.Parallel()
	until, end := context.WithCancel(t.Context())
	conn, far, g := open(t, until, "")
	end()
	if status := ends(t, conn); status != websocket.StatusNormalClosure {
		t.Errorf("the socket ends with %d", status)
	}
	if _, err := far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %v", err)
	}
	if err := <-g.errs; err != nil {
		t.Error(err)
	}
}

func TestWhatCannotBecomeASocketGetsTheServicesErrorBody(t *testing.T) {
	t.Parallel()
	g := newGuest()
	server := httptest.NewServer(g.handler(t.Context(), ""))
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	p, ok := problem.Parse(body)
	if err != nil || res.StatusCode != 426 || !ok || p.Code != "upgrade_required" {
		t.Errorf("%d %s, %v", res.StatusCode, body, err)
	}
	if res.Header.Get("Upgrade") != "websocket" || res.Header.Get("Sec-WebSocket-Version") != "13" {
		t.Errorf("%v", res.Header)
	}
	if _, err := (<-g.streams).Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %v", err)
	}
	if err := <-g.errs; !fault.Is(err, fault.UpgradeRequired) {
		t.Error(err)
	}
}

func TestSocketsOfOneCallerAreBounded(t *testing.T) {
	t.Parallel()
	g := newGuest()
	server := httptest.NewServer(g.handler(t.Context(), ""))
	defer server.Close()
	var last *websocket.Conn
	for opened := 0; ; opened++ {
		conn, res, err := websocket.Dial(t.Context(), server.URL, nil)
		if err == nil {
			last = conn
			defer func() { _ = conn.CloseNow() }()
			<-g.streams
			if opened > 100 {
				t.Fatal("there is no bound")
			}
			continue
		}
		if opened < 10 || res == nil || res.StatusCode != 429 {
			t.Fatalf("after %d sockets: %v, %v", opened, res, err)
		}
		break
	}
	if _, err := (<-g.streams).Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the stream of the one that was refused ends with %v", err)
	}
	if err := <-g.errs; !fault.Is(err, fault.TooMany) {
		t.Error(err)
	}
	_ = last.CloseNow()
	if err := <-g.errs; err != nil {
		t.Error(err)
	}
	conn, _, err := websocket.Dial(t.Context(), server.URL, nil)
	if err != nil {
		t.Fatalf("in place of one that has ended: %v", err)
	}
	_ = conn.CloseNow()
}

// pipes is a listener for in-memory connections without buffers, so that only time passes in a
// bubble.
type pipes struct{ accepted chan net.Conn }

func (p pipes) Accept() (net.Conn, error) {
	conn, ok := <-p.accepted
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (p pipes) Close() error   { close(p.accepted); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

// openRaw performs the handshake of a socket manually, so that nothing answers pings.
func openRaw(t *testing.T) (client net.Conn, from *bufio.Reader, far net.Conn, g *guest) {
	t.Helper()
	g = newGuest()
	listener := pipes{make(chan net.Conn)}
	server := &http.Server{Handler: g.handler(t.Context(), "")} //nolint:gosec // no attacker in the bubble
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	client, near := net.Pipe()
	listener.accepted <- near
	go func() { _ = handshake(t).Write(client) }()
	from = bufio.NewReader(client)
	res, err := http.ReadResponse(from, nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", res, err)
	}
	_ = res.Body.Close()
	return client, from, <-g.streams, g
}

func TestAClientThatDoesNotAnswerPingsIsLetGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		client, from, far, g := openRaw(t)
		defer func() { _ = client.Close() }()
		var said bytes.Buffer
		go func() { _, _ = io.Copy(&said, from) }()
		if _, err := far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the stream ends with %v", err)
		}
		if took := time.Since(began); took != 50*time.Second {
			t.Errorf("it was let go after %s", took)
		}
		if err := <-g.errs; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if !strings.HasPrefix(said.String(), "\x89") { // a ping
			t.Errorf("it was not asked: %q", said.String())
		}
	})
}

func TestAClientThatTakesNothingIsLetGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, _, far, g := openRaw(t)
		defer func() { _ = client.Close() }()
		began := time.Now()
		if _, err := io.WriteString(far, "login: "); err != nil {
			t.Fatal(err)
		}
		if _, err := far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the stream ends with %v", err)
		}
		if took := time.Since(began); took != 15*time.Second {
			t.Errorf("it was let go after %s", took)
		}
		if err := <-g.errs; err != nil {
			t.Error(err)
		}
	})
}
