package edge_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/edge"
)

// refusesToStart tries to open a control plane and returns why that failed.
func refusesToStart(t *testing.T, dir string, change ...func(*edge.Config)) error {
	t.Helper()
	cfg := defaults(t, dir)
	for _, f := range change {
		f(&cfg)
	}
	svc, err := edge.New(t.Context(), cfg, deps(t))
	if err == nil {
		t.Error("it starts")
		if err := svc.Close(); err != nil {
			t.Error(err)
		}
	}
	return err
}

func TestALostKeyStopsTheStartAndCanBeReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	inDir := func(cfg *edge.Config) { cfg.Data = dir }
	c := start(t, inDir)
	tg := newTarget(t, nil)
	r := c.route(tg, nil)
	c.stop()

	key := filepath.Join(dir, "secret.key")
	if err := os.Rename(key, key+".away"); err != nil {
		t.Fatal(err)
	}
	if err := refusesToStart(t, dir); fault.From(err).Code != "secret_key_missing" {
		t.Errorf("without its key: %v", err)
	}
	if _, err := os.Stat(key); err == nil {
		t.Error("another key was made")
	}
	other := func(cfg *edge.Config) { cfg.SecretKey = strings.Repeat("k", 32) }
	if err := refusesToStart(t, dir, other); fault.From(err).Code != "wrong_secret_key" {
		t.Errorf("with another key: %v", err)
	}

	c = start(t, inDir, other, func(cfg *edge.Config) { cfg.ReplaceLostKeys = true })
	if got := contracttest.As[edgeapi.Route](c.call("GET", "/routes/"+r.Id, adminToken, nil).Want(200)); got.Enabled ||
		!strings.Contains(ptr(got.DisabledReason), "a key that is lost") {
		t.Errorf("%+v", got)
	}
	c.call("PATCH", "/routes/"+r.Id, adminToken, object{"enabled": true}).Refused(400, "secret_lost", "secret")
	c.call(
		"PATCH", "/routes/"+r.Id, adminToken,
		object{"enabled": true, "secret": "whsec_" + strings.Repeat("c2VjcmV0", 4)},
	).Want(200)
	site, agent := c.site("plant", enrollmentToken)
	c.send(agent, site, "one", "t")
	c.eventually("delivery with the new secret", func() bool { return len(tg.got()) == 1 })
	c.stop()
	start(t, inDir, other) // from now on it is the right one
}

func TestAnotherCertificateAuthorityStopsTheStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start(t, func(cfg *edge.Config) { cfg.Data = dir }).stop()
	if err := os.Rename(filepath.Join(dir, "pki"), filepath.Join(dir, "away")); err != nil {
		t.Fatal(err)
	}
	if err := refusesToStart(t, dir); fault.From(err).Code != "authority_missing" {
		t.Errorf("without its authority: %v", err)
	}
	another := t.TempDir()
	start(t, func(cfg *edge.Config) { cfg.PKIDir = another }).stop()
	if err := refusesToStart(t, dir, func(cfg *edge.Config) { cfg.PKIDir = another }); fault.From(
		err,
	).Code != "wrong_authority" {
		t.Errorf("with another authority: %v", err)
	}
	start(t, func(cfg *edge.Config) { cfg.Data, cfg.PKIDir, cfg.ReplaceLostKeys = dir, another, true })
}

func TestARouteThatCannotBeUsedIsAnAlertUntilItCan(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		tg := newTarget(c.T, nil)
		site, agent := c.site("plant", enrollmentToken)
		r := c.route(tg, nil)
		set := func(secret string) (was string) {
			if err := c.service.DB().Update(c.Context(), func(tx *db.Tx) error {
				if err := tx.Get(c.Context(), &was, "SELECT secret FROM routes WHERE id = ?", r.Id); err != nil {
					return err
				}
				_, err := tx.Exec(c.Context(), "UPDATE routes SET secret = ? WHERE id = ?", secret, r.Id)
				return err
			}); err != nil {
				c.Fatal(err)
			}
			return was
		}
		good := set("damaged")
		c.service.Reread(r.Id) // its worker may still hold what it read when the route was created
		c.send(agent, site, "one", "t")
		firing := func() bool {
			c.maintain()
			for _, a := range contracttest.As[[]edgeapi.Alert](c.call("GET", "/alerts?status=firing", adminToken, nil).Want(200)) {
				if a.Kind == "delivery_blocked" && a.Subject == r.Id &&
					strings.Contains(a.Message, "secret cannot be opened") {
					return true
				}
			}
			return false
		}
		c.eventually("an alert", firing)
		c.call("POST", "/routes/"+r.Id+"/test", adminToken, object{}).Refused(409, "secret_lost", "")
		set(good)
		c.service.Reread(r.Id)
		c.eventually("delivery", func() bool { return len(tg.got()) == 1 })
		c.eventually("the end of the alert", func() bool { return !firing() })
	})
}
