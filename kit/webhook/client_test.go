package webhook_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/webhook"
)

func newClient(t *testing.T, g webhook.Guard, o webhook.Options) *webhook.Client {
	t.Helper()
	c := webhook.NewClient(g, o)
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// atName returns the server's URL with another host.
func atName(t *testing.T, s *httptest.Server, host string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return "http://" + net.JoinHostPort(host, port) + "/"
}

func TestAReceiverCanVerifyWhatTheClientSends(t *testing.T) {
	t.Parallel()
	secret, old := mustSecret(t, webhook.NewSecret()), mustSecret(t, webhook.NewSecret())
	sent := time.Unix(1_700_000_000, 0)
	seen := make(chan *http.Request, 1)
	srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		for _, s := range []webhook.Secret{secret, old} {
			if err := s.Verify(r.Header, body, sent, webhook.DefaultTolerance); err != nil {
				t.Error(err)
			}
		}
		seen <- r
		w.WriteHeader(http.StatusNoContent)
	})
	head := http.Header{"X-Tenant": {"acme"}, "Webhook-Id": {"forged"}}
	res := newClient(t, private, webhook.Options{}).Send(t.Context(), webhook.Request{
		URL: srv.URL + "/hook?x=1", Header: head, Body: []byte(`{"a":1}`), ID: "msg_1", Secret: secret,
		OldSecrets: []webhook.Secret{old}, Timestamp: sent,
	})
	if res.Err != nil || res.Status != http.StatusNoContent || res.BodySnippet != "" {
		t.Fatalf("%+v", res)
	}
	r := <-seen
	for name, want := range map[string]string{
		"Content-Type": "application/json", "User-Agent": "Mainstay-Webhook/1", "X-Tenant": "acme",
		webhook.HeaderID: "msg_1", webhook.HeaderTimestamp: "1700000000",
	} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if r.Method != http.MethodPost || r.RequestURI != "/hook?x=1" {
		t.Errorf("%s %s", r.Method, r.RequestURI)
	}
	if _, ok := r.Header["Idempotency-Key"]; ok || head.Get("Webhook-Id") != "forged" || len(head) != 2 {
		t.Errorf("headers sent %v, headers given %v", r.Header, head)
	}
}

func TestAMessageWithoutSecretIsSentUnsigned(t *testing.T) {
	t.Parallel()
	srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(webhook.HeaderID) == "" || r.Header.Get(webhook.HeaderSignature) != "" {
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	res := newClient(t, private, webhook.Options{}).Send(t.Context(), webhook.Request{
		Method: http.MethodPut, URL: srv.URL, ID: "m", Header: http.Header{"Webhook-Signature": {"v1,forged"}},
	})
	if res.Status != http.StatusOK {
		t.Errorf("%+v", res)
	}
}

func TestARedirectToAPrivateAddressIsNotFollowed(t *testing.T) {
	t.Parallel()
	var hits atomic.Int32
	inner := serve(t, func(http.ResponseWriter, *http.Request) { hits.Add(1) })
	c := newClient(t, private, webhook.Options{})
	for _, status := range []int{301, 302, 303, 307, 308} {
		srv := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, inner.URL, status) })
		res := c.Send(t.Context(), webhook.Request{URL: srv.URL, ID: "m"})
		if res.Status != status || webhook.Classify(res.Status, res.Err) != webhook.Permanent {
			t.Errorf("%+v", res)
		}
	}
	if n := hits.Load(); n != 0 {
		t.Errorf("the redirect's target was asked %d times", n)
	}
}

func TestANameReboundToAPrivateAddressIsNotReached(t *testing.T) {
	t.Parallel()
	var hits, lookups atomic.Int32
	srv := serve(t, func(http.ResponseWriter, *http.Request) { hits.Add(1) })
	resolver := resolverTo(t, func() netip.Addr {
		if lookups.Add(1) == 1 {
			return netip.MustParseAddr("93.184.215.14")
		}
		return netip.MustParseAddr("127.0.0.1")
	})
	target := atName(t, srv, "rebind.example.com")
	if _, err := strict.CheckURL(target); err != nil {
		t.Fatal(err)
	}
	// A check of the resolved address when the target is configured would pass.
	first, err := resolver.LookupNetIP(t.Context(), "ip4", "rebind.example.com")
	if err != nil || len(first) != 1 || strict.CheckAddr(first[0]) != nil {
		t.Fatal(first, err)
	}
	res := newClient(t, strict, webhook.Options{Resolver: resolver}).
		Send(t.Context(), webhook.Request{URL: target, ID: "m", Secret: mustSecret(t, vectorSecret)})
	if !errors.Is(res.Err, webhook.ErrBlockedTarget) || webhook.Classify(res.Status, res.Err) != webhook.Permanent {
		t.Errorf("%+v", res)
	}
	if f := fault.From(res.Err); f.Kind != fault.Invalid || strings.Contains(f.Message, "127.0.0.1") {
		t.Errorf("%s: %s", f.Kind, f.Message)
	}
	if n := hits.Load(); n != 0 {
		t.Errorf("the private server was asked %d times", n)
	}
	if lookups.Load() < 2 {
		t.Error("the name was not resolved again, so nothing was proved")
	}

	// The same name and resolver reach the server once that is allowed.
	res = newClient(t, private, webhook.Options{Resolver: resolver}).Send(
		t.Context(), webhook.Request{URL: target, ID: "m"},
	)
	if res.Status != http.StatusOK {
		t.Errorf("allowed: %+v", res)
	}
}

func TestANameForTheMetadataServiceIsNotReachedEvenWhenPrivateIsAllowed(t *testing.T) {
	t.Parallel()
	resolver := resolverTo(t, func() netip.Addr { return netip.MustParseAddr("169.254.169.254") })
	res := newClient(t, private, webhook.Options{Resolver: resolver}).
		Send(t.Context(), webhook.Request{URL: "http://innocent.example.com/latest/", ID: "m"})
	if !errors.Is(res.Err, webhook.ErrBlockedTarget) {
		t.Errorf("%+v", res)
	}
}

func TestTheProxyOfTheEnvironmentIsIgnoredByDefault(t *testing.T) {
	// Not parallel: it sets the environment, which is read once per process, so no other test may
	// use the proxy.
	t.Setenv("HTTP_PROXY", "http://192.0.2.1:9")
	resolver := resolverTo(t, func() netip.Addr { return netip.MustParseAddr("127.0.0.1") })
	srv := serve(t, func(http.ResponseWriter, *http.Request) {})
	res := newClient(t, private, webhook.Options{Resolver: resolver}).
		Send(t.Context(), webhook.Request{URL: atName(t, srv, "direct.example.com"), ID: "m"})
	if res.Status != http.StatusOK {
		t.Errorf("%+v", res)
	}
}

func TestMalformedRequestsArePermanentAndNeverSent(t *testing.T) {
	t.Parallel()
	var hits atomic.Int32
	srv := serve(t, func(http.ResponseWriter, *http.Request) { hits.Add(1) })
	c := newClient(t, private, webhook.Options{})
	for _, r := range []webhook.Request{
		{URL: srv.URL},
		{URL: srv.URL, ID: "a.b"},
		{URL: srv.URL, ID: "a b"},
		{URL: srv.URL, ID: strings.Repeat("a", 257)},
		{URL: srv.URL, ID: "m", Method: "BAD METHOD"},
		{URL: "http://2130706433", ID: "m"},
		{URL: "", ID: "m"},
	} {
		res := c.Send(t.Context(), r)
		if res.Status != 0 || webhook.Classify(res.Status, res.Err) != webhook.Permanent {
			t.Errorf("%+v: %+v", r, res)
		}
	}
	if hits.Load() != 0 {
		t.Error("a malformed request was sent")
	}
}

func TestAFailedResponseIsKeptInPartAndItsConnectionUsedAgain(t *testing.T) {
	t.Parallel()
	var conns atomic.Int32
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "99999")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, "no\x00\x1b[31m\xff\n"+strings.Repeat("x", 32<<10))
	}))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns.Add(1)
		}
	}
	srv.Start()
	t.Cleanup(srv.Close)
	c := newClient(t, private, webhook.Options{})
	for range 5 {
		res := c.Send(t.Context(), webhook.Request{URL: srv.URL, ID: "m"})
		if res.Status != 503 || res.RetryAfter != webhook.MaxRetryAfter || res.Err != nil {
			t.Fatalf("%+v", res)
		}
		if s := res.BodySnippet; !strings.HasPrefix(s, "no[31m?\nxxx") || len(s) > webhook.MaxSnippetBytes {
			t.Fatalf("snippet of %d bytes: %.20q", len(s), s)
		}
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

func TestAnEndlessResponseIsCutOff(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	srv := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		defer close(ended)
		for {
			if _, err := w.Write(make([]byte, 8<<10)); err != nil {
				return
			}
		}
	})
	res := newClient(t, private, webhook.Options{}).Send(
		t.Context(), webhook.Request{URL: srv.URL, ID: "m", Timeout: time.Hour},
	)
	if res.Status != http.StatusOK || res.Err != nil {
		t.Errorf("%+v", res)
	}
	<-ended
}

func TestABrokenBodyDoesNotChangeTheStatus(t *testing.T) {
	t.Parallel()
	srv := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, "short")
	})
	res := newClient(t, private, webhook.Options{}).Send(t.Context(), webhook.Request{URL: srv.URL, ID: "m"})
	if webhook.Classify(res.Status, res.Err) != webhook.Delivered {
		t.Errorf("%+v", res)
	}
}

func TestASilentTargetTimesOutAndIsRetried(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	srv := serve(t, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	res := newClient(t, private, webhook.Options{}).Send(
		t.Context(), webhook.Request{URL: srv.URL, ID: "m", Timeout: time.Millisecond},
	)
	if !errors.Is(res.Err, context.DeadlineExceeded) || webhook.Classify(res.Status, res.Err) != webhook.Retry {
		t.Errorf("%+v", res)
	}
}

func TestOldTLSVersionsAndUnknownCertificatesAreRefused(t *testing.T) {
	t.Parallel()
	newTLS := func(limit uint16) (*httptest.Server, *tls.Config) {
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		srv.TLS = &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: limit}
		srv.Config.ErrorLog = log.New(io.Discard, "", 0)
		srv.StartTLS()
		t.Cleanup(srv.Close)
		roots := x509.NewCertPool()
		roots.AddCert(srv.Certificate())
		return srv, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS10}
	}
	good, conf := newTLS(tls.VersionTLS13)
	if res := newClient(t, private, webhook.Options{TLS: conf}).Send(
		t.Context(), webhook.Request{URL: good.URL, ID: "m"},
	); res.Status != 200 {
		t.Errorf("good: %+v", res)
	}
	if res := newClient(t, private, webhook.Options{}).Send(
		t.Context(), webhook.Request{URL: good.URL, ID: "m"},
	); res.Err == nil {
		t.Error("an unknown certificate was accepted")
	}
	old, conf := newTLS(tls.VersionTLS11)
	if res := newClient(t, private, webhook.Options{TLS: conf}).Send(
		t.Context(), webhook.Request{URL: old.URL, ID: "m"},
	); res.Err == nil {
		t.Error("TLS 1.1 was accepted")
	}
}
