package e2e

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/webhook"
)

func TestARouteIntoThePrivateNetworkIsRefusedHoweverItIsSpelled(t *testing.T) {
	t.Parallel()
	e := startEdge(t)
	for _, host := range []string{
		"127.0.0.1", "127.0.0.1:8080", "127.1.2.3", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "0.0.0.0", "169.254.169.254", "169.254.1.1",
		"[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::ffff:169.254.169.254]", "[64:ff9b::7f00:1]", "[fe80::1]", "[fd00:ec2::254]", "[2002:7f00:1::]",
		"2130706433", "0177.0.0.1", "017700000001", "0x7f000001", "0x7f.0.0.1", "127.1", "127.0.0.1.", "0",
		"localhost", "LOCALHOST", "localhost.", "a.localhost", "db.internal", "metadata.google.internal", "metadata.google.internal.", "metadata.goog",
		"user@127.0.0.1", "example.com@127.0.0.1", "127.0.0.1%00.example.com", "１２７.0.0.1",
	} {
		for _, scheme := range []string{"http", "https"} {
			target := scheme + "://" + host + "/hook"
			res := ask(
				e.api(adminToken).CreateRoute(
					t.Context(), edgeapi.RouteInput{Name: "r", Topic: "*", TargetUrl: target},
				),
			).is(t, 400)
			if _, field, message := refusal(t, res.body); field != "target_url" {
				t.Errorf("%s: the refusal names %q: %s", target, field, message)
			}
		}
	}
	for _, target := range []string{"file:///etc/passwd", "gopher://example.com/", "//example.com", "example.com", "http://"} {
		res := ask(
			e.api(adminToken).CreateRoute(t.Context(), edgeapi.RouteInput{Name: "r", Topic: "*", TargetUrl: target}),
		).is(t, 400)
		if _, field, message := refusal(t, res.body); field != "target_url" {
			t.Errorf("%s: the refusal names %q: %s", target, field, message)
		}
	}
	if routes := list[edgeapi.Route](e, "/routes"); len(routes) > 0 {
		t.Errorf("%d routes were made all the same", len(routes))
	}
	// A change is checked as the creation is.
	id := e.route("public", "https://hooks.example.com/")
	bad := "http://127.0.0.1/"
	res := ask(e.api(adminToken).PatchRoute(t.Context(), id, edgeapi.RoutePatch{TargetUrl: &bad})).is(t, 400)
	if _, field, _ := refusal(t, res.body); field != "target_url" {
		t.Errorf("the refusal of the change names %q", field)
	}
}

// privateName is a name of this machine that leads nowhere but inside.
func privateName(t *testing.T) string {
	t.Helper()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	addresses, err := net.DefaultResolver.LookupNetIP(t.Context(), "ip", name)
	if err != nil {
		t.Skipf("this machine's name %s does not resolve", name)
	}
	for _, a := range addresses {
		if (webhook.Guard{}).CheckAddr(a) == nil {
			t.Skipf("this machine's name %s resolves to a public address", name)
		}
	}
	if _, err := (webhook.Guard{}).CheckURL("http://" + name + "/"); err != nil {
		t.Skipf("this machine's name %s is not allowed in a target: %v", name, err)
	}
	return name
}

func TestANameThatLeadsInsideIsRefusedWhenDialledAndItsEventsBecomeDeadLetters(t *testing.T) {
	t.Parallel()
	name := privateName(t)
	var hits atomic.Int64
	// It listens on all addresses, so that nothing but the refusal keeps requests away.
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	inside := &httptest.Server{
		Listener: listener,
		Config:   &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) })},
	}
	inside.Start()
	t.Cleanup(inside.Close)
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	e := startEdge(t)
	site, _ := e.enroll("site")
	id := e.route("inside", "http://"+net.JoinHostPort(name, port)+"/hook")

	ask(e.api(adminToken).IngestEvent(t.Context(), event("ev", site, "1"))).is(t, 202)
	eventually(t, "the event is a dead letter", func() bool { return e.buried(id)["ev"] == 1 })
	letter := list[edgeapi.DeadLetter](e, "/deadletters?route_id="+id)[0]
	if letter.Reason != edgeapi.DeadLetterReasonPermanent || letter.Attempts != 1 || letter.LastStatus != 0 {
		t.Errorf(
			"reason %q after %d attempts, status %d; want permanent after 1, without an answer", letter.Reason,
			letter.Attempts, letter.LastStatus,
		)
	}
	trial := got[edgeapi.RouteTestResult](e.api(adminToken).TestRoute(t.Context(), id, edgeapi.RouteTest{})).is(t, 200)
	if trial.Delivered || trial.Status != 0 || trial.Error == "" {
		t.Errorf("the trial says %+v", *trial)
	}
	// Tenants read these words; they must not map the network by them.
	addresses, err := net.DefaultResolver.LookupNetIP(t.Context(), "ip", name)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range append(addresses, netip.MustParseAddr("127.0.0.1")) {
		if strings.Contains(letter.LastError, a.Unmap().String()) || strings.Contains(trial.Error, a.Unmap().String()) {
			t.Errorf("the words tell the address %s: %q, %q", a, letter.LastError, trial.Error)
		}
	}
	if hits.Load() > 0 {
		t.Errorf("%d requests came through", hits.Load())
	}
}

func TestARedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	var hits atomic.Int64
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	t.Cleanup(inside.Close)
	outside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := http.StatusFound
		if r.URL.Path == "/307" {
			status = http.StatusTemporaryRedirect
		}
		http.Redirect(w, r, inside.URL+"/secret", status)
	}))
	t.Cleanup(outside.Close)
	e := startEdge(t, "--allow-private-targets")
	site, _ := e.enroll("site")
	for _, path := range []string{"/302", "/307"} {
		id := e.route(path, outside.URL+path)
		ask(e.api(adminToken).IngestEvent(t.Context(), event("ev"+path, site, "1"))).is(t, 202)
		eventually(t, "the event is a dead letter", func() bool { return e.buried(id)["ev"+path] == 1 })
		if l := list[edgeapi.DeadLetter](e, "/deadletters?route_id="+id)[0]; l.Reason != edgeapi.DeadLetterReasonPermanent ||
			l.Attempts != 1 {
			t.Errorf("%s: reason %q after %d attempts", path, l.Reason, l.Attempts)
		}
		if trial := got[edgeapi.RouteTestResult](e.api(adminToken).TestRoute(t.Context(), id, edgeapi.RouteTest{})).is(
			t, 200,
		); trial.Delivered {
			t.Errorf("%s: the trial counts the redirect as delivered", path)
		}
	}
	if hits.Load() > 0 {
		t.Errorf("%d redirects were followed", hits.Load())
	}
}

func TestMetadataServicesAreRefusedEvenWherePrivateTargetsAreAllowed(t *testing.T) {
	t.Parallel()
	e := startEdge(t, "--allow-private-targets")
	for _, host := range []string{"169.254.169.254", "[::ffff:169.254.169.254]", "[fd00:ec2::254]", "metadata.google.internal", "2852039166", "0xa9fea9fe"} {
		target := (&url.URL{Scheme: "http", Host: host, Path: "/latest/meta-data"}).String()
		res := ask(
			e.api(adminToken).CreateRoute(t.Context(), edgeapi.RouteInput{Name: "r", Topic: "*", TargetUrl: target}),
		).is(t, 400)
		if _, field, message := refusal(t, res.body); field != "target_url" {
			t.Errorf("%s: the refusal names %q: %s", target, field, message)
		}
	}
}
