package vm_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/kit/mail/mailtest"
	"github.com/mainstay-infra/mainstay/kit/webhook"
	"github.com/mainstay-infra/mainstay/service/vm"
	"github.com/mainstay-infra/mainstay/service/vm/driver/drivertest"
)

// event is what a generic webhook gets.
type event struct {
	ID        string
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Data      struct {
		Version int    `json:"version"`
		Actor   string `json:"actor"`
		Message string `json:"message"`
		VM      struct {
			ID            string `json:"id"`
			Name          string `json:"name"`
			Tenant        string `json:"tenant"`
			State         string `json:"state"`
			PreviousState string `json:"previous_state"`
			Sequence      int64  `json:"sequence"`
		} `json:"vm"`
		Backup *struct {
			ID     string `json:"id"`
			Status string `json:"status"`
		} `json:"backup"`
	} `json:"data"`
	header http.Header
	body   string
}

// receiver is a target of webhooks.
type receiver struct {
	*testing.T
	url string

	mu     sync.Mutex
	answer http.HandlerFunc // nil: 204
	events []event
}

func receive(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{T: t}
	server := httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	r.url = server.URL
	return r
}

func (r *receiver) serve(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	e := event{ID: req.Header.Get(webhook.HeaderID), header: req.Header, body: string(body)}
	if err != nil || json.Unmarshal(body, &e) != nil {
		r.Errorf("what arrived is not JSON: %q, %v", body, err)
	}
	r.mu.Lock()
	r.events = append(r.events, e)
	answer := r.answer
	r.mu.Unlock()
	if answer == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	answer(w, req)
}

// answers sets what the target answers.
func (r *receiver) answers(f http.HandlerFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = f
}

func (r *receiver) got() []event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// types returns the types of what has arrived, sorted.
func (r *receiver) types() string {
	var all []string
	for _, e := range r.got() {
		all = append(all, e.Type)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// reachable lets webhooks reach this machine.
func reachable(c *vm.Config) { c.AllowPrivateTargets = true }

// enginesReachable is engines with services whose webhooks reach this machine.
func enginesReachable(t *testing.T, test func(m *manager), change ...func(*vm.Config)) {
	t.Helper()
	change = append(change, reachable)
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		test(start(t, change...))
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		url := dbtest.PostgresURL(t)
		test(start(t, append(slices.Clone(change), func(c *vm.Config) { c.Database = url })...))
	})
}

// hook creates a webhook.
func (m *manager) hook(token string, spec object) vmapi.Webhook {
	m.Helper()
	return contracttest.As[vmapi.Webhook](m.call("POST", "/api/webhooks", token, spec).Want(201))
}

// deliveries lists the deliveries of a webhook.
func (m *manager) deliveries(token string, w vmapi.Webhook) []vmapi.WebhookDelivery {
	m.Helper()
	return contracttest.As[[]vmapi.WebhookDelivery](m.call("GET", "/api/webhooks/"+w.Id+"/deliveries", token, nil).Want(200))
}

var everyEvent = []string{
	"vm.created", "vm.started", "vm.stopped", "vm.paused", "vm.resumed", "vm.failed", "vm.missing", "vm.found", "vm.deleted",
	"backup.completed", "backup.failed", "backup.damaged",
}

func TestEachChangeIsToldOnceSignedAndInOrderBySequence(t *testing.T) {
	t.Parallel()
	enginesReachable(t, func(m *manager) {
		to := receive(m.T)
		w := m.hook(m.admin, object{"url": to.url, "events": everyEvent})
		if w.Secret == nil || !w.Enabled || w.DeliveryType != "generic" || w.Tenant != nil {
			m.Fatalf("%+v", w)
		}
		m.made("web", m.admin)
		m.call("POST", "/api/vms/web/start", m.admin, nil).Want(202)
		m.settled("web", m.admin)
		m.call("POST", "/api/vms/web/pause", m.admin, nil).Want(200)
		m.call("POST", "/api/vms/web/resume", m.admin, nil).Want(200)
		m.backup(m.admin, object{"vm_name": "web"})
		m.call("POST", "/api/vms/web/stop", m.admin, nil).Want(200)
		gone := m.daemon.Forget("web")
		m.eventually("the VM is missing", func() bool { return m.vm("web", m.admin).State == "missing" })
		m.daemon.Remember(gone)
		m.eventually("the VM is back", func() bool { return m.vm("web", m.admin).State == "stopped" })
		m.call("DELETE", "/api/vms/web", m.admin, nil).Want(204)
		const want = "backup.completed vm.created vm.deleted vm.found vm.missing vm.paused vm.resumed vm.started vm.stopped"
		m.eventually("all events", func() bool { return len(to.got()) >= len(strings.Fields(want)) })
		if got := to.types(); got != want {
			m.Errorf("%s", got)
		}
		key, err := webhook.ParseSecret(*w.Secret)
		if err != nil {
			m.Fatal(err)
		}
		sequence := map[string]int64{}
		for _, e := range to.got() {
			if err := key.Verify(e.header, []byte(e.body), m.now(), webhook.DefaultTolerance); err != nil {
				m.Errorf("%s: %v", e.Type, err)
			}
			if e.Data.Version != 1 || e.Data.VM.Name != "web" || e.Timestamp.IsZero() || (e.Data.Backup != nil) != strings.HasPrefix(e.Type, "backup.") {
				m.Errorf("%s", e.body)
			}
			sequence[e.Type] = e.Data.VM.Sequence
		}
		if sequence["vm.created"] >= sequence["vm.started"] || sequence["vm.started"] >= sequence["vm.stopped"] {
			m.Errorf("%v", sequence)
		}
		for _, e := range to.got() {
			if e.Type == "vm.paused" && (e.Data.VM.State != "paused" || e.Data.VM.PreviousState != "running") {
				m.Errorf("%s", e.body)
			}
		}
		list := contracttest.As[[]vmapi.Webhook](m.call("GET", "/api/webhooks", m.admin, nil).Want(200))
		if len(list) != 1 || list[0].Secret != nil || list[0].Url != to.url {
			m.Errorf("%+v", list)
		}
	})
}

func TestAFailureIsToldWithItsReasonAndWithoutPathsOfHosts(t *testing.T) {
	t.Parallel()
	m := start(t, reachable)
	to := receive(t)
	m.hook(m.admin, object{"url": to.url, "events": []string{"vm.failed", "backup.failed"}})
	m.call("POST", "/api/vms", m.admin, object{"name": "web", "image": "missing"}).Want(201)
	m.settled("web", m.admin)
	m.made("db", m.admin)
	m.daemon.Fail(func(c drivertest.Call) *drivertest.Fault {
		if c.Operation == "CreateTransfer" {
			return &drivertest.Fault{Status: 409}
		}
		return nil
	})
	if b := m.backup(m.admin, object{"vm_name": "db"}); b.Status != "failed" {
		t.Fatalf("%+v", b)
	}
	m.daemon.Fail(nil)
	m.eventually("both events", func() bool { return len(to.got()) == 2 })
	for _, e := range to.got() {
		if e.Data.Message == "" || strings.Contains(e.body, "/var/lib") {
			t.Errorf("%s", e.body)
		}
	}
	if got := to.types(); got != "backup.failed vm.failed" {
		t.Error(got)
	}
}

func TestATenantGetsAndSeesItsOwnOnly(t *testing.T) {
	t.Parallel()
	enginesReachable(t, func(m *manager) {
		alice, bert := m.user("alice", "admin", "acme"), m.user("bert", "admin", "beta")
		mine, theirs, every, chosen := receive(m.T), receive(m.T), receive(m.T), receive(m.T)
		events := []string{"vm.created", "backup.completed"}
		w := m.hook(alice, object{"url": mine.url, "events": events})
		m.hook(bert, object{"url": theirs.url, "events": events})
		m.hook(m.admin, object{"url": every.url, "events": events})
		m.hook(m.admin, object{"url": chosen.url, "events": events, "tenant": "beta"})
		if w.Tenant == nil || *w.Tenant != "acme" {
			m.Errorf("%+v", w)
		}
		m.call("POST", "/api/webhooks", alice, object{"url": mine.url, "events": events, "tenant": "beta"}).Want(403)
		m.call("POST", "/api/webhooks", alice, object{"url": mine.url, "events": events, "tenant": ""}).Want(403)
		m.made("a", alice)
		m.made("b", bert)
		m.made("c", m.admin)
		m.backup(alice, object{"vm_name": "a"})
		m.eventually("all events", func() bool { return len(every.got()) == 4 && len(mine.got()) == 2 && len(theirs.got()) == 1 })
		m.eventually("those of the chosen tenant", func() bool { return len(chosen.got()) == 1 })
		for _, e := range mine.got() {
			if e.Data.VM.Tenant != "acme" {
				m.Errorf("%s", e.body)
			}
		}
		d := m.deliveries(alice, w)[0]
		for _, path := range []string{"", "/deliveries", "/deliveries/" + d.Id} {
			m.call("GET", "/api/webhooks/"+w.Id+path, bert, nil).Want(404)
		}
		m.call("POST", "/api/webhooks/"+w.Id+"/deliveries/"+d.Id+"/replay", bert, nil).Want(404)
		m.call("PATCH", "/api/webhooks/"+w.Id, bert, object{"enabled": false}).Want(404)
		m.call("DELETE", "/api/webhooks/"+w.Id, bert, nil).Want(404)
		m.call("POST", "/api/webhooks/test", bert, object{"webhook_id": w.Id}).Want(400)
		if a := m.call("GET", "/api/webhooks", bert, nil).Want(200); strings.Contains(a.Body, w.Id) {
			m.Error(a.Body)
		}
		// A tenant that is made anew must not find the webhooks of the one before.
		m.call("DELETE", "/api/vms/a", alice, nil).Want(204)
		for _, b := range contracttest.As[[]vmapi.Backup](m.call("GET", "/api/backups", alice, nil).Want(200)) {
			m.call("DELETE", "/api/backups/"+b.Id, alice, nil).Want(204)
		}
		m.call("DELETE", "/api/users/alice", m.admin, nil).Want(204)
		m.call("DELETE", "/api/tenants/acme", m.admin, nil).Want(204)
		m.call("GET", "/api/webhooks/"+w.Id, m.admin, nil).Want(404)
	})
}

func TestAnEventSurvivesARestartAndArrivesWhenTheTargetIsBack(t *testing.T) {
	t.Parallel()
	enginesReachable(t, func(m *manager) {
		to := receive(m.T)
		to.answers(status(503))
		w := m.hook(m.admin, object{"url": to.url, "events": []string{"vm.created"}})
		m.made("web", m.admin)
		// One that the restart breaks off before its outcome is stored does not count, and is made again.
		m.eventually("a first attempt is stored", func() bool { return m.deliveries(m.admin, w)[0].Attempts >= 1 })
		m.again()
		to.answers(nil)
		m.ahead(time.Minute)
		m.eventually("it is delivered", func() bool { return m.deliveries(m.admin, w)[0].Status == "delivered" })
		got := to.got() // the second attempt may have come before the restart
		for _, e := range got {
			if len(got) < 2 || e.ID != got[0].ID || e.body != got[0].body {
				m.Errorf("%+v", got)
			}
		}
		d := contracttest.As[vmapi.WebhookDelivery](
			m.call("GET", "/api/webhooks/"+w.Id+"/deliveries/"+got[0].ID, m.admin, nil).Want(200))
		if d.Attempts < 2 || int(d.Attempts) > len(got) || d.Log == nil || len(*d.Log) != int(d.Attempts) {
			m.Fatalf("%+v", d)
		}
		if *(*d.Log)[0].HttpStatus != 503 || (*d.Log)[d.Attempts-1].Error != "" || *d.Body != got[0].body {
			m.Errorf("%+v", d)
		}
	})
}

func TestReplicasTellEachEventOnce(t *testing.T) {
	t.Parallel()
	url := dbtest.PostgresURL(t)
	m := start(t, reachable, func(c *vm.Config) { c.Database = url })
	second := &manager{T: t, daemon: m.daemon, skew: m.skew, config: m.config}
	second.config.AuditCheckpoints = filepath.Join(t.TempDir(), "checkpoints")
	second.begin()
	to := receive(t)
	m.hook(m.admin, object{"url": to.url, "events": everyEvent})
	const vms = 8
	for i := range vms {
		name := fmt.Sprintf("vm-%d", i)
		m.made(name, m.admin)
		m.daemon.Change(name, func(vm *hypervisorapi.VM) { vm.State = "running" }) // both replicas see it
	}
	m.eventually("all events", func() bool { return len(to.got()) >= 2*vms })
	seen := map[string]int{}
	for _, e := range to.got() {
		seen[e.ID]++
		seen[e.Data.VM.Name+" "+e.Type]++
	}
	for what, n := range seen {
		if n != 1 {
			t.Errorf("%s arrived %d times", what, n)
		}
	}
}

func TestATargetThatHangsOrFloodsDelaysNobodyAndRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	m := start(t, reachable)
	hanging, flooding, redirecting, good, inside := receive(t), receive(t), receive(t), receive(t), receive(t)
	hanging.answers(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	flooding.answers(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		for page := strings.Repeat("flood ", 1000); r.Context().Err() == nil; {
			if _, err := io.WriteString(w, page); err != nil {
				return
			}
		}
	})
	redirecting.answers(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, inside.url, http.StatusTemporaryRedirect)
	})
	events := []string{"vm.created"}
	hangs := m.hook(m.admin, object{"url": hanging.url, "events": events})
	floods := m.hook(m.admin, object{"url": flooding.url, "events": events})
	redirects := m.hook(m.admin, object{"url": redirecting.url, "events": events})
	m.hook(m.admin, object{"url": good.url, "events": events})
	const vms = 12 // more than there are workers
	for i := range vms {
		m.call("POST", "/api/vms", m.admin, object{"name": fmt.Sprintf("vm-%d", i), "image": "demo"}).Want(201)
	}
	m.eventually("the good target has everything", func() bool { return len(good.got()) == vms })
	if n := len(hanging.got()); n > 2 {
		t.Errorf("a target that hangs takes %d workers", n)
	}
	for _, d := range m.deliveries(m.admin, hangs) {
		if d.Status != "pending" {
			t.Errorf("%+v", d)
		}
	}
	m.eventually("a redirect ends the delivery", func() bool { return m.deliveries(m.admin, redirects)[0].Status == "failed" })
	tested := contracttest.As[vmapi.WebhookTested](m.call("POST", "/api/webhooks/test", m.admin, object{"webhook_id": floods.Id}).Want(200))
	if tested.Status != "failed" || *tested.HttpStatus != 500 || len(tested.Error) > 1000 || !strings.Contains(tested.Error, "flood") {
		t.Errorf("%+v", tested)
	}
	if len(inside.got()) > 0 {
		t.Error("a redirect was followed")
	}
}

func TestWebhooksStayOutOfTheNetworkUnlessASettingAllowsIt(t *testing.T) {
	t.Parallel()
	m := start(t)
	inside := receive(t)
	for _, url := range []string{
		inside.url, "http://169.254.169.254/", "http://10.0.0.1/", "http://[::1]/", "http://localhost/", "http://2130706433/",
		"file:///etc/passwd", "http://user:pw@example.com/", "nonsense",
	} {
		a := m.call("POST", "/api/webhooks", m.admin, object{"url": url, "events": []string{"vm.created"}}).Want(400)
		if !strings.Contains(a.Body, "url") {
			t.Errorf("%s: %s", url, a.Body)
		}
		m.call("POST", "/api/webhooks/test", m.admin, object{"url": url}).Want(400)
	}
	w := m.hook(m.admin, object{"url": "https://example.com/hook", "events": []string{"vm.created"}, "enabled": false})
	m.call("PATCH", "/api/webhooks/"+w.Id, m.admin, object{"url": inside.url}).Want(400)
	if len(inside.got()) > 0 {
		t.Error("a request came through")
	}
}

func TestAWebhookIsCheckedChangedTestedAndReplayed(t *testing.T) {
	t.Parallel()
	enginesReachable(t, func(m *manager) {
		to := receive(m.T)
		secret := webhook.NewSecret()
		for field, spec := range map[string]object{
			"events": {"url": to.url, "events": []string{}},
			"url":    {"events": []string{"vm.created"}},
			"secret": {"url": to.url, "events": []string{"vm.created"}, "secret": "short"},
			"tenant": {"url": to.url, "events": []string{"vm.created"}, "tenant": "no tenant/"},
		} {
			if a := m.call("POST", "/api/webhooks", m.admin, spec).Want(400); !strings.Contains(a.Body, field) || strings.Contains(a.Body, "short") {
				m.Errorf("%s: %s", field, a.Body)
			}
		}
		m.call("POST", "/api/webhooks", m.admin, object{"url": to.url, "events": []string{"vm.exploded"}}).Want(400)
		m.call("POST", "/api/webhooks", m.admin, object{"url": to.url, "events": []string{"vm.created"}, "delivery_type": "smoke"}).Want(400)
		w := m.hook(m.admin, object{"url": to.url, "events": []string{"vm.created"}, "secret": secret, "description": "mine"})
		if w.Secret == nil || *w.Secret != secret {
			m.Errorf("%+v", w)
		}
		path := "/api/webhooks/" + w.Id
		if a := contracttest.As[vmapi.WebhookTested](m.call("POST", "/api/webhooks/test", m.admin, object{"webhook_id": w.Id}).Want(200)); a.Status != "delivered" || *a.HttpStatus != 204 {
			m.Errorf("%+v", a)
		}
		if a := contracttest.As[vmapi.WebhookTested](m.call("POST", "/api/webhooks/test", m.admin, object{"url": to.url, "delivery_type": "slack"}).Want(200)); a.Status != "delivered" {
			m.Errorf("%+v", a)
		}
		for _, body := range []object{{}, {"webhook_id": "none"}, {"webhook_id": w.Id, "url": to.url}} {
			m.call("POST", "/api/webhooks/test", m.admin, body).Want(400)
		}
		m.call("PATCH", path, m.admin, object{}).Want(400)
		m.call("PATCH", path, m.admin, object{"enabled": false}).Want(200)
		m.made("quiet", m.admin)
		changed := contracttest.As[vmapi.Webhook](m.call("PATCH", path, m.admin, object{"enabled": true, "events": []string{"vm.created", "vm.deleted"}}).Want(200))
		if !changed.Enabled || len(changed.Events) != 2 || changed.Description != "mine" {
			m.Errorf("%+v", changed)
		}
		m.made("loud", m.admin)
		m.eventually("it is delivered", func() bool {
			all := m.deliveries(m.admin, w)
			return all[0].Event == "vm.created" && all[0].Status == "delivered"
		})
		first := m.deliveries(m.admin, w)
		if len(first) != 2 || first[1].Event != "webhook.test" {
			m.Errorf("%+v", first)
		}
		m.call("POST", path+"/deliveries/"+first[0].Id+"/replay", m.admin, nil).Want(202)
		m.eventually("it arrives again", func() bool {
			n := 0
			for _, e := range to.got() {
				if e.ID == first[0].Id {
					n++
				}
			}
			return n == 2
		})
		m.call("GET", path+"/deliveries/none", m.admin, nil).Want(404)
		m.call("DELETE", path, m.admin, nil).Want(204)
		m.call("DELETE", path, m.admin, nil).Want(404)
	})
}

func TestChatsGetASentence(t *testing.T) {
	t.Parallel()
	m := start(t, reachable)
	slack, discord := receive(t), receive(t)
	for kind, to := range map[string]*receiver{"slack": slack, "discord": discord} {
		if w := m.hook(m.admin, object{"url": to.url, "events": []string{"vm.created"}, "delivery_type": kind}); w.Secret != nil || string(w.DeliveryType) != kind {
			t.Errorf("%+v", w)
		}
	}
	m.made("web", m.admin)
	m.eventually("both", func() bool { return len(slack.got())+len(discord.got()) == 2 })
	if got := slack.got()[0].body; got != `{"text":"VM web was created."}` {
		t.Error(got)
	}
	if got := discord.got()[0].body; !strings.Contains(got, `"content":"VM web was created."`) || !strings.Contains(got, `"allowed_mentions"`) {
		t.Error(got)
	}
}

func TestSecretsOfWebhooksSurviveARotationOfTheSecretKey(t *testing.T) {
	t.Parallel()
	enginesReachable(t, func(m *manager) {
		to := receive(m.T)
		w := m.hook(m.admin, object{"url": to.url, "events": []string{"vm.created"}})
		m.stop()
		old := m.config.SecretKey
		m.config.SecretKey, m.config.AcceptedSecretKey = strings.Repeat("n", 32), old
		m.begin()
		m.stop()
		m.config.AcceptedSecretKey = ""
		m.begin()
		m.made("web", m.admin)
		m.eventually("it is delivered", func() bool { return len(to.got()) == 1 })
		key, err := webhook.ParseSecret(*w.Secret)
		if err != nil {
			m.Fatal(err)
		}
		e := to.got()[0]
		if err := key.Verify(e.header, []byte(e.body), m.now(), webhook.DefaultTolerance); err != nil {
			m.Error(err)
		}
	}, func(c *vm.Config) { c.SecretKey = strings.Repeat("k", 32) })
}

func TestAMailServerIsToldOfFailuresOfTaggedVMs(t *testing.T) {
	t.Parallel()
	m := start(t, reachable)
	server := mailtest.New(t)
	hook := contracttest.As[vmapi.Webhook](m.call("POST", "/api/webhooks", m.admin, object{
		"url": "smtp://" + server.Addr + "?from=m@example.org&to=ops@example.org&tls=none", "delivery_type": "email",
		"events": []string{"vm.created"}, "tags": []string{"prod"},
	}).Want(201))
	if hook.Secret != nil || !slices.Equal(hook.Tags, []string{"prod"}) {
		t.Errorf("%+v", hook)
	}
	m.call("POST", "/api/vms", m.admin, object{"name": "quiet", "image": "base"}).Want(201)
	m.call("POST", "/api/vms", m.admin, object{"name": "loud", "image": "base", "tags": []string{"prod"}}).Want(201)
	m.eventually("a mail arrives", func() bool { return len(server.Mails()) > 0 })
	if got := server.Mails(); len(got) != 1 || !strings.Contains(got[0].Content, "Subject: VM loud was created") {
		t.Errorf("%+v", got)
	}
	a := m.call("POST", "/api/webhooks/test", m.admin, object{"webhook_id": hook.Id}).Want(200)
	if tested := contracttest.As[vmapi.WebhookTested](a); tested.Status != "delivered" {
		t.Errorf("%s", a.Body)
	}
	path := "/api/webhooks/" + hook.Id
	moved := object{"url": "smtp://127.0.0.2?from=m@example.org&to=a@example.org"}
	if a := m.call("PATCH", path, m.admin, moved).Want(400); !strings.Contains(a.Body, "url: must keep the server") {
		t.Errorf("%s", a.Body)
	}
	m.call("PATCH", path, m.admin, object{"tags": []string{}}).Want(200)
	m.call("POST", "/api/vms", m.admin, object{"name": "other", "image": "base"}).Want(201)
	m.eventually("a mail without the tag arrives", func() bool { return len(server.Mails()) == 3 })
	gotify := object{"url": "https://gotify.example.org", "delivery_type": "gotify", "events": []string{"vm.failed"}}
	if a := m.call("POST", "/api/webhooks", m.admin, gotify).Want(400); !strings.Contains(a.Body, "secret: must be the token") {
		t.Errorf("%s", a.Body)
	}
}
