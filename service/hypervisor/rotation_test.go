//go:build linux

package hypervisor_test

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// sealedSecrets opens the secrets in the database of a daemon that is stopped, with one key. It
// returns them by table and VM.
func sealedSecrets(t *testing.T, data, key string) map[string]string {
	t.Helper()
	d, err := db.Open(t.Context(), db.Config{Path: filepath.Join(data, "state", "hypervisor.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { // the daemon starts again
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	sealer, err := record.NewSealer([]byte(key))
	if err != nil {
		t.Fatal(err)
	}
	opened := map[string]string{}
	for table, id := range map[string]string{"vms": "id", "snapshots": "vm_id"} {
		var rows []struct {
			ID     string `db:"id"`
			Secret string `db:"secret"`
		}
		if err := d.Select(t.Context(), &rows, "SELECT "+id+" AS id, secret FROM "+table); err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			if sealer.Stale(r.Secret) {
				t.Errorf("%s of %s was not sealed with the current key: %s", table, r.ID, r.Secret)
				continue
			}
			plain, err := sealer.Open(r.Secret, r.ID)
			if err != nil || len(plain) == 0 {
				t.Errorf("%s of %s: %q, %v", table, r.ID, plain, err)
			}
			opened[table+" "+r.ID] = string(plain)
		}
	}
	return opened
}

func TestASecretKeyRotatesWithTheSecretsOfVMsAndSnapshots(t *testing.T) {
	t.Parallel()
	need(t, "qemu-system-x86_64", "qemu-img")
	before, after := strings.Repeat("old-secret-key-", 3), strings.Repeat("new-secret-key-", 3)
	d := start(t, usualDocument, func(cfg *hypervisor.Config) { cfg.SecretKey = before })
	for _, name := range []string{"one", "two"} {
		d.call("POST", "/v1/vms", adminToken,
			object{"name": name, "memory_mib": 64, "disk_gib": 1, "network": object{"mode": "none"}}).Want(201)
	}
	var was map[string]string
	d.restart(func() {
		// A snapshot with memory keeps the secret that its VM had.
		tamper(t, d.cfg.Data, `INSERT INTO snapshots (vm_id, name, kind, description, memory_bytes, secret, created_at, state)
			SELECT id, 'full', 'full', '', 1, secret, 1, 'ready' FROM vms`)
		if was = sealedSecrets(t, d.cfg.Data, before); len(was) != 4 {
			t.Errorf("%q", was)
		}
		d.cfg.SecretKey = after
		if _, err := hypervisor.New(t.Context(), d.cfg, hypervisor.Deps{
			Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(), Now: time.Now,
		}); fault.From(err).Code != "wrong_secret_key" {
			t.Errorf("without the old key: %v", err)
		}
		d.cfg.AcceptedSecretKey = before
	})
	d.restart(func() {
		now := sealedSecrets(t, d.cfg.Data, after)
		if len(now) != len(was) {
			t.Errorf("%q, want %q", now, was)
		}
		for place, secret := range now {
			if secret != was[place] {
				t.Errorf("%s: %q, want %q", place, secret, was[place])
			}
		}
		d.cfg.AcceptedSecretKey = ""
	})
	v := contracttest.As[hypervisorapi.AuditVerification](d.call("GET", "/v1/audit/verify", adminToken, nil).Want(200))
	if !v.Ok || len(v.Breaks) > 0 || len(v.Segments) != 2 || v.Entries != v.Verified {
		t.Errorf("%+v", v)
	}
	entries := contracttest.As[[]hypervisorapi.AuditEntry](
		d.call("GET", "/v1/audit?action=secret-key.rotate", adminToken, nil).Want(200),
	)
	if len(entries) != 1 || entries[0].Actor == "" {
		t.Errorf("%+v", entries)
	}
}
