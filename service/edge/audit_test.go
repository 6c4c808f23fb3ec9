package edge_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/service/edge"
)

// tamper changes the database behind the service's back.
func tamper(c *control, statement string) {
	c.Helper()
	if err := c.service.DB().Update(c.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(c.Context(), statement)
		return err
	}); err != nil {
		c.Fatal(err)
	}
}

func TestATamperedAuditLogIsAnAlertUntilSomebodyAcknowledgesIt(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		c.site("plant", enrollmentToken)
		c.site("plant-2", enrollmentToken)
		verify := func() edgeapi.AuditVerification {
			return contracttest.As[edgeapi.AuditVerification](c.call("GET", "/audit/verify", viewerToken, nil).Want(http.StatusOK))
		}
		whole := verify()
		if !whole.Ok || len(whole.Breaks) > 0 || len(whole.Segments) != 1 {
			t.Fatalf("%+v", whole)
		}
		tamper(c, "DELETE FROM audit_entries WHERE seq = (SELECT MAX(seq) FROM audit_entries)")
		tamper(
			c,
			"UPDATE audit_head SET seq = seq - 1, hash = (SELECT hash FROM audit_entries WHERE seq = audit_head.seq - 1)",
		)
		site, _ := c.site("plant-3", enrollmentToken) // changes continue
		c.maintain()
		if got := c.alerts(
			"audit_broken",
		); len(got) != 1 || got[0].Severity != "critical" || got[0].Status != "firing" ||
			!strings.Contains(got[0].Message, "not signed by this service") {
			t.Fatalf("%+v", got)
		}
		v := verify()
		if v.Ok || v.Reason == "" || len(v.Segments) != 2 || v.Segments[0].Verified != whole.Entries-1 {
			t.Fatalf("%+v", v)
		}
		through := v.Breaks[len(v.Breaks)-1].Recorded
		c.call("POST", "/audit/acknowledge", adminToken, map[string]any{"through": site, "note": "x"}).Want(
			http.StatusBadRequest,
		)
		c.call("POST", "/audit/acknowledge", adminToken, map[string]any{"through": 1, "note": "x"}).Refused(
			http.StatusBadRequest, "invalid", "through",
		)
		c.call("POST", "/audit/acknowledge", adminToken, map[string]any{"through": through, "note": "a drill"}).Want(
			http.StatusNoContent,
		)
		c.call("POST", "/audit/acknowledge", adminToken, map[string]any{"through": through, "note": "a drill"}).Refused(
			http.StatusConflict, "nothing_to_acknowledge", "",
		)
		c.maintain()
		if got := c.alerts("audit_broken"); len(got) != 0 {
			t.Errorf("the alert goes on: %+v", got)
		}
		if v := verify(); !v.Ok || len(v.Breaks) == 0 || v.Breaks[0].AcknowledgedAt == nil ||
			v.Breaks[0].Note != "a drill" ||
			v.Breaks[0].AcknowledgedBy == "" {
			t.Errorf("%+v", v)
		}
	})
}

func TestADatabaseThatWasPutBackIsNoticedAtStart(t *testing.T) {
	t.Parallel()
	dir, points := t.TempDir(), filepath.Join(t.TempDir(), "elsewhere", "points.jsonl")
	run := func() *control {
		return start(t, func(cfg *edge.Config) { cfg.Data, cfg.AuditCheckpoints = dir, points })
	}
	c := run()
	c.site("plant", enrollmentToken)
	c.stop()
	files := []string{"edge.db", "edge.db-wal", "edge.db-shm"}
	kept := map[string][]byte{}
	for _, name := range files {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			kept[name] = b
		}
	}
	c = run()
	c.site("plant-2", enrollmentToken)
	c.stop()
	if info, err := os.Stat(points); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the file of checkpoints: %v, %v", info, err)
	}
	for _, name := range files {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if b, ok := kept[name]; ok {
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	c = run()
	v := contracttest.As[edgeapi.AuditVerification](c.call("GET", "/audit/verify", adminToken, nil).Want(http.StatusOK))
	if v.Ok || !strings.Contains(v.Reason, "the database was put back to an earlier state") ||
		v.Checkpoints.Count == 0 {
		t.Errorf("%+v", v)
	}
}

// Each request has a long id, which the log once kept in full.
func TestAFloodOfDeniedRequestsLeavesFewEntries(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		long := strings.Repeat("x", 4000)
		for i := range 100 {
			c.call("DELETE", fmt.Sprintf("/sites/%d%s", i, long), viewerToken, nil).Want(http.StatusForbidden)
		}
		entries := contracttest.As[[]edgeapi.AuditEntry](
			c.call("GET", "/audit?limit=1000&action=site.delete", adminToken, nil).Want(http.StatusOK),
		)
		if len(entries) != 60 || len(entries[0].Target) != 256 {
			t.Errorf("%d entries, the first has a target of %d bytes", len(entries), len(entries[0].Target))
		}
		c.stop() // what was only counted is recorded
	})
}
