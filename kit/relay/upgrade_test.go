package relay_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/coder/websocket"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/relay"
)

// handshake returns a request for a socket. header alternates names and values; an empty value
// removes the header.
func handshake(t *testing.T, header ...string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://host.example:7070/console", nil)
	for name, value := range map[string]string{
		"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
		"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
	} {
		r.Header.Set(name, value)
	}
	for i := 0; i < len(header); i += 2 {
		if r.Header.Del(header[i]); header[i+1] != "" {
			r.Header.Set(header[i], header[i+1])
		}
	}
	return r
}

func TestAHandshakeWithABodyIsRefused(t *testing.T) {
	t.Parallel()
	for name, length := range map[string]int64{"chunked": -1, "of a known length": 5} {
		r := with(handshake(t), func(r *http.Request) { r.ContentLength = length })
		if err := relay.CheckUpgrade(r); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The library's refusals have its own body, and come after a ticket was spent.
func TestExactlyWhatTheLibraryRefusesIsRefusedBefore(t *testing.T) {
	t.Parallel()
	const none = fault.Kind(255)
	for name, c := range map[string]struct {
		want fault.Kind
		r    *http.Request
	}{
		"a handshake":         {none, handshake(t)},
		"lists and cases":     {none, handshake(t, "Connection", "keep-alive, upgrade", "Upgrade", "h2c, WebSocket")},
		"our own page":        {none, handshake(t, "Origin", "https://HOST.example:7070")},
		"a plain request":     {fault.UpgradeRequired, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/console", nil)},
		"no Connection":       {fault.UpgradeRequired, handshake(t, "Connection", "")},
		"another Connection":  {fault.UpgradeRequired, handshake(t, "Connection", "keep-alive")},
		"no Upgrade":          {fault.UpgradeRequired, handshake(t, "Upgrade", "")},
		"another Upgrade":     {fault.UpgradeRequired, handshake(t, "Upgrade", "h2c")},
		"no version":          {fault.UpgradeRequired, handshake(t, "Sec-WebSocket-Version", "")},
		"another version":     {fault.UpgradeRequired, handshake(t, "Sec-WebSocket-Version", "8")},
		"no key":              {fault.Invalid, handshake(t, "Sec-WebSocket-Key", "")},
		"a short key":         {fault.Invalid, handshake(t, "Sec-WebSocket-Key", "AAAA")},
		"a key not in base64": {fault.Invalid, handshake(t, "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=!")},
		"another host's page": {fault.Denied, handshake(t, "Origin", "http://evil.example")},
		"another port's page": {fault.Denied, handshake(t, "Origin", "http://host.example")},
		"a page of no host":   {fault.Denied, handshake(t, "Origin", "null")},
		"no origin at all":    {fault.Denied, handshake(t, "Origin", "http://%zz")},
		"a HEAD":              {fault.UpgradeRequired, with(handshake(t), func(r *http.Request) { r.Method = http.MethodHead })},
		"HTTP/1.0": {
			fault.UpgradeRequired,
			with(handshake(t), func(r *http.Request) { r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.0", 1, 0 }),
		},
		"two keys": {fault.Invalid, with(handshake(t), func(r *http.Request) {
			r.Header.Add("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
		})},
	} {
		got := none
		if err := relay.CheckUpgrade(c.r); err != nil {
			got = fault.KindOf(err)
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		w := httptest.NewRecorder()
		if _, err := websocket.Accept(w, c.r, nil); err == nil {
			t.Fatalf("%s: a recorder has become a socket", name)
		}
		// A recorder cannot be hijacked, which is detected after all other checks.
		if accepts := w.Code == http.StatusNotImplemented; accepts != (c.want == none) {
			t.Errorf("%s: the library answers %d", name, w.Code)
		}
	}
}

func with(r *http.Request, change func(*http.Request)) *http.Request {
	change(r)
	return r
}
