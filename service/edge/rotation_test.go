package edge_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/webhook"
	"github.com/mainstay-infra/mainstay/service/edge"
)

const nextSecretKey = "bmV4dCBzZWNyZXQgbmV4dCBzZWNyZXQgbmV4dCAhISEh"

// verifiedTarget is a target that checks signatures with the route's secret.
func verifiedTarget(t *testing.T, text string) *target {
	t.Helper()
	secret, err := webhook.ParseSecret(text)
	if err != nil {
		t.Fatal(err)
	}
	return newTarget(t, func(_ int, r *http.Request, body []byte) int {
		if err := secret.Verify(r.Header, body, time.Now(), webhook.DefaultTolerance); err != nil {
			t.Errorf("the signature: %v", err)
		}
		return http.StatusOK
	})
}

// whole fails the test unless the audit log verifies without breaks. It returns the number of
// segments.
func (c *control) whole() int {
	c.Helper()
	v := contracttest.As[edgeapi.AuditVerification](c.call("GET", "/audit/verify", viewerToken, nil).Want(200))
	if !v.Ok || len(v.Breaks) > 0 || v.Entries != v.Verified {
		c.Errorf("%+v", v)
	}
	return len(v.Segments)
}

// delivers fails the test unless an event reaches the target.
func (c *control) delivers(tg *target, agent, site, event string) {
	c.Helper()
	c.send(agent, site, event, "t")
	c.eventually("delivery of "+event, func() bool {
		for _, r := range tg.got() {
			if strings.Contains(string(r.body), `"`+event+`"`) {
				return true
			}
		}
		return false
	})
}

func (c *control) rotations() int {
	c.Helper()
	return len(contracttest.As[[]edgeapi.AuditEntry](c.call("GET", "/audit?action=secret-key.rotate", adminToken, nil).Want(200)))
}

func TestASecretKeyRotatesAndTheOldOneIsNeededNoMore(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, database string) {
		t.Parallel()
		dir, text := t.TempDir(), webhook.NewSecret()
		keys := func(current, accepted string) func(cfg *edge.Config) {
			return func(cfg *edge.Config) {
				cfg.Data, cfg.Database, cfg.SecretKey, cfg.AcceptedSecretKey = dir, database, current, accepted
			}
		}
		tg := verifiedTarget(t, text)
		c := start(t, keys(secretKey, ""))
		c.route(tg, object{"secret": text})
		site, agent := c.site("plant", enrollmentToken)
		c.delivers(tg, agent, site, "before")
		c.stop()

		if err := refusesToStart(t, dir, keys(nextSecretKey, "")); fault.From(err).Code != "wrong_secret_key" ||
			!strings.Contains(err.Error(), "accepted-secret-key") {
			t.Errorf("with another key: %v", err)
		}
		c = start(t, keys(nextSecretKey, secretKey))
		c.delivers(tg, agent, site, "during")
		if segments := c.whole(); segments != 2 {
			t.Errorf("%d segments", segments)
		}
		c.stop()

		c = start(t, keys(nextSecretKey, ""))
		c.delivers(tg, agent, site, "after")
		c.maintain()
		if segments := c.whole(); segments != 2 || c.rotations() != 1 || len(c.alerts("audit_broken")) > 0 {
			t.Errorf("%d segments, %d rotations, alerts %+v", segments, c.rotations(), c.alerts("audit_broken"))
		}
		c.stop()
		if err := refusesToStart(t, dir, keys(secretKey, "")); fault.From(err).Code != "wrong_secret_key" {
			t.Errorf("with the old key: %v", err)
		}
	}
	t.Run("SQLite", func(t *testing.T) { test(t, "") })
	t.Run("PostgreSQL", func(t *testing.T) { test(t, dbtest.PostgresURL(t)) })
}

func TestRenamingTheKeyFileRotatesTheSecretKey(t *testing.T) {
	t.Parallel()
	dir, text := t.TempDir(), webhook.NewSecret()
	inDir := func(cfg *edge.Config) { cfg.Data = dir }
	tg := verifiedTarget(t, text)
	c := start(t, inDir)
	c.route(tg, object{"secret": text})
	site, agent := c.site("plant", enrollmentToken)
	c.stop()
	if err := os.Rename(filepath.Join(dir, "secret.key"), filepath.Join(dir, "secret.key.previous")); err != nil {
		t.Fatal(err)
	}
	start(t, inDir).stop()
	if err := os.Remove(filepath.Join(dir, "secret.key.previous")); err != nil {
		t.Fatal(err)
	}
	c = start(t, inDir)
	c.delivers(tg, agent, site, "after")
	if segments := c.whole(); segments != 2 || c.rotations() != 1 {
		t.Errorf("%d segments, %d rotations", segments, c.rotations())
	}
}

// Each replica gets the next key as an accepted one first, and then as its key. At no time can one
// of them not start, deliver or verify.
func TestReplicasRotateTheSecretKeyOneByOne(t *testing.T) {
	t.Parallel()
	url, pki, text := dbtest.PostgresURL(t), t.TempDir(), webhook.NewSecret()
	dirs := [2]string{t.TempDir(), t.TempDir()}
	replica := func(i int, current, accepted string) *control {
		t.Helper()
		return start(t, func(cfg *edge.Config) {
			cfg.Data, cfg.Database, cfg.PKIDir = dirs[i], url, pki
			cfg.SecretKey, cfg.AcceptedSecretKey = current, accepted
		})
	}
	tg := verifiedTarget(t, text)
	c := [2]*control{replica(0, secretKey, ""), replica(1, secretKey, "")}
	route := c[0].route(tg, object{"secret": text})
	site, agent := c[0].site("plant", enrollmentToken)
	events := 0
	works := func(segments int) {
		t.Helper()
		for _, c := range c {
			events++
			c.call("PATCH", "/routes/"+route.Id, adminToken, object{"secret": text}).Want(200)
			c.delivers(tg, agent, site, "event-"+strings.Repeat("x", events))
		}
		for _, c := range c {
			c.maintain()
			if n := c.whole(); n != segments || len(c.alerts("audit_broken")) > 0 {
				t.Errorf("%d segments, want %d; alerts %+v", n, segments, c.alerts("audit_broken"))
			}
		}
	}
	works(1)
	for _, step := range []struct {
		current, accepted string
		segments          [2]int // after the first and the second replica
	}{
		{secretKey, nextSecretKey, [2]int{1, 1}},
		{nextSecretKey, secretKey, [2]int{2, 2}},
		{nextSecretKey, "", [2]int{2, 2}},
	} {
		for i := range c {
			c[i].stop()
			c[i] = replica(i, step.current, step.accepted)
			works(step.segments[i])
		}
	}
}
