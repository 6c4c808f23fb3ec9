package storage_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

// Events come from three lists. Their pages hold each event once, in the order of time, whatever their size.
func TestPagesOfEventsHoldEachEventOnce(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		g.call("PUT", "/tenants/acme", g.admin, object{"quota": object{"volumes": 5}}).Want(200)
		ann, bob := g.token("ann", "operator", "acme"), g.token("bob", "viewer", "beta")
		for i := range 5 {
			g.done(g.call("POST", "/volumes", ann, object{"name": fmt.Sprintf("v-%d", i), "size_bytes": mib}), ann)
		}
		g.call("POST", "/alerts/evaluate", g.admin, nil).Want(200)
		all := contracttest.As[[]storageapi.Event](g.call("GET", "/events?limit=1000&tenant=acme", g.admin, nil).Want(200))
		types := map[storageapi.EventType]int{}
		for _, e := range all {
			types[e.Type]++
		}
		if types["audit"] != 6 || types["job"] != 5 || types["alert"] != 1 {
			g.Fatalf("%v: %+v", types, all)
		}
		for _, size := range []int{1, 2, 5} {
			var paged []storageapi.Event
			for path := fmt.Sprintf("/events?limit=%d", size); path != ""; {
				a := g.call("GET", path, ann, nil).Want(200)
				paged = append(paged, contracttest.As[[]storageapi.Event](a)...)
				path, _, _ = strings.Cut(strings.TrimPrefix(a.Header.Get("Link"), "<"+base), ">")
			}
			if !slices.Equal(paged, all) {
				g.Errorf("pages of %d: %d events, want %d", size, len(paged), len(all))
			}
		}
		for filter, want := range map[string]int{"type=alert": 1, "type=job": 5, "resource=" + all[len(all)-2].ResourceId: 2} {
			if n := len(contracttest.As[[]storageapi.Event](g.call("GET", "/events?"+filter, ann, nil).Want(200))); n != want {
				g.Errorf("%s: %d events, want %d", filter, n, want)
			}
		}
		if others := contracttest.As[[]storageapi.Event](g.call("GET", "/events", bob, nil).Want(200)); len(others) != 0 {
			g.Errorf("%+v", others)
		}
		g.call("GET", "/events?tenant=acme", bob, nil).Refused(403, "DENIED", "")
		g.call("GET", "/volumes/"+all[len(all)-2].ResourceId+"/events", bob, nil).Refused(404, "NOT_FOUND", "")
		g.call("GET", "/upgrade/preflight", bob, nil).Refused(403, "DENIED", "")
		g.call("GET", "/events?cursor=eA", ann, nil).Refused(400, "VALIDATION_ERROR", "cursor")
	})
}
