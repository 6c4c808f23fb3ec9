package storage_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/kit/webhook"
	"github.com/mainstay-infra/mainstay/service/storage"
	"github.com/mainstay-infra/mainstay/service/storage/monitor"
)

func TestAWebhookIsToldOfAlertsUnlessTheyAreSilenced(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		told := make(chan monitor.Message, 10)
		failed := false
		target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			var m monitor.Message
			if json.Unmarshal(body, &m) != nil || err != nil || !strings.HasPrefix(r.Header.Get("webhook-signature"), "v1,") {
				g.Errorf("%v %s", r.Header, body)
			}
			if !failed { // it is told again
				failed = true
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			told <- m
		}))
		defer target.Close()
		g.stop()
		g.config.AlertWebhookURL, g.config.AlertWebhookSecret = target.URL, webhook.NewSecret()
		g.run()
		// The file system of the tests may be close to full, of which an alert tells, too.
		next := func() monitor.Message {
			for m := range told {
				if m.Data.Source == "quota_almost_used" {
					return m
				}
			}
			panic("unreachable")
		}
		limit := func(quota object) {
			g.call("PUT", "/tenants/acme", g.admin, object{"quota": quota}).Want(200)
			g.call("POST", "/alerts/evaluate", g.admin, nil).Want(200)
		}
		limit(object{})
		g.done(g.call("POST", "/volumes", g.admin, object{"name": "a", "size_bytes": mib, "tenant_id": "acme"}), g.admin)
		limit(object{"volumes": 1})
		if m := next(); m.Type != "alert.opened" || m.Data.ResourceID != "acme:volumes" || m.Data.TenantID != "acme" {
			g.Errorf("%+v", m)
		}
		ann := g.token("ann", "operator", "acme")
		first := g.alert("quota_almost_used", ann)
		limit(object{})
		if m := next(); m.Type != "alert.resolved" || m.Data.ID != first.Id {
			g.Errorf("%+v", m)
		}
		limit(object{"volumes": 1})
		second := g.alert("quota_almost_used", ann)
		if m := next(); m.Data.ID != second.Id {
			g.Errorf("%+v", m)
		}
		g.call("POST", "/alerts/"+second.Id+"/silence", ann, object{"reason": "work"}).Want(200)
		limit(object{})
		limit(object{"volumes": 1}) // neither the end of the silenced one is told nor the next one
		limit(object{"volumes": 1, "snapshots": 1})
		snapshot := "/volumes/" + contracttest.As[[]storageapi.Volume](g.call("GET", "/volumes?tenant=acme", ann, nil).Want(200))[0].Id + "/snapshots"
		g.done(g.call("POST", snapshot, ann, object{"name": "one"}), ann)
		g.call("POST", "/alerts/evaluate", g.admin, nil).Want(200)
		if m := next(); m.Data.ResourceID != "acme:snapshots" {
			g.Errorf("%+v", m)
		}
		// A tenant sees what is about it, and nothing of others.
		if all := contracttest.As[[]storageapi.Alert](g.call("GET", "/alerts", g.token("eve", "viewer", "beta"), nil).Want(200)); len(all) != 0 {
			g.Errorf("%+v", all)
		}
		g.call("POST", "/alerts/"+second.Id+"/ack", g.token("eve", "admin", "beta"), nil).Refused(404, "NOT_FOUND", "")
	})
}

// alert returns the open alert of a source that a caller sees.
func (g *gateway) alert(source, token string) storageapi.Alert {
	g.Helper()
	for _, a := range contracttest.As[[]storageapi.Alert](g.call("GET", "/alerts?state=open", token, nil).Want(200)) {
		if a.Source == source {
			return a
		}
	}
	g.Fatalf("no alert %s is open", source)
	return storageapi.Alert{}
}

func TestAWebhookThatIsNoneStopsTheStart(t *testing.T) {
	t.Parallel()
	for _, c := range []storage.Config{
		{AlertWebhookURL: "ftp://example.com"}, {AlertWebhookURL: "http://example.com", AlertWebhookSecret: "short"},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "alert-webhook-") {
			t.Errorf("%v", err)
		}
	}
}
