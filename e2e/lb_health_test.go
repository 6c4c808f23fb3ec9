//go:build linux

package e2e

import (
	"net/http"
	"sync/atomic"
	"testing"

	lbapi "github.com/mainstay-infra/mainstay/api/lb"
)

func TestLoadBalancerAvoidsABackendThatFailedUntilItIsBack(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"nat", "dsr"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			n := newLBNetwork(t, 3, mode, "10.99.9.9")
			for _, b := range n.backends {
				b.listen(80)
			}
			d := startLB(
				t, n.balancer, lbDocument([]lbVIP{{address: "10.99.9.9", port: 80, mode: mode, backends: n.backends}}),
			)
			const vip = "10.99.9.9:80"
			failing, other := n.backends[1], n.backends[0]
			lost, kept := n.connectTo(failing, "tcp", vip), n.connectTo(other, "tcp", vip)

			failing.refuse(80)
			d.becomes(failing, lbapi.BackendStateDown)
			if detail := d.row(failing).Detail; detail == "" {
				t.Error("nothing tells why it is down")
			}
			if homes := n.spread(vip, 100); homes[failing.name] != 0 || len(homes) != 2 {
				t.Errorf("while %s is down, connections are at %v", failing.name, homes)
			}
			n.goesOn("after another backend failed", kept)
			// Its packets go elsewhere, where nobody knows of it: the client learns at once.
			if err := lost.ask(dialLimit); err == nil || isTimeout(err) {
				t.Errorf("the connection to %s: %v, want a reset", failing.name, err)
			}

			failing.listen(80)
			d.becomes(failing, lbapi.BackendStateHealthy)
			if homes := n.spread(vip, 100); homes[failing.name] == 0 {
				t.Errorf("%s is back, and connections are at %v", failing.name, homes)
			}
			n.goesOn("after another backend came back", kept)
			d.process.stop()
		})
	}
}

func TestLoadBalancerTakesABackendOutWhoseHTTPCheckAnswersAnError(t *testing.T) {
	t.Parallel()
	n := newLBNetwork(t, 2, "nat")
	var status atomic.Int64
	status.Store(http.StatusNoContent)
	for _, b := range n.backends {
		b.listen(80)
		b.serveHTTP(8080, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path != "/ready" || r.Host != "backend.test":
				w.WriteHeader(http.StatusTeapot)
			case b == n.backends[0]:
				w.WriteHeader(int(status.Load()))
			}
		}))
	}
	d := startLB(t, n.balancer, lbDocument([]lbVIP{
		{
			address:  "10.99.9.9",
			port:     80,
			backends: n.backends,
			check:    "{type: http, port: 8080, path: /ready, host: backend.test, status: 200-299, interval: 100ms, timeout: 10s, rise: 1, fall: 2}",
		},
	}))
	status.Store(http.StatusServiceUnavailable)
	d.becomes(n.backends[0], lbapi.BackendStateDown)
	if homes := n.spread("10.99.9.9:80", 50); homes["b1"] != 0 {
		t.Errorf("connections are at %v", homes)
	}
	status.Store(http.StatusOK)
	d.becomes(n.backends[0], lbapi.BackendStateHealthy)
	if homes := n.spread("10.99.9.9:80", 100); homes["b1"] == 0 {
		t.Errorf("connections are at %v", homes)
	}
}
