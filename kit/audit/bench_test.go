package audit_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
)

// BenchmarkAppend compares an append with one without checks, as in the previous version.
func BenchmarkAppend(b *testing.B) {
	for _, engine := range []string{"SQLite", "PostgreSQL"} {
		for _, kind := range []string{"unchecked", "checked"} {
			b.Run(engine+"/"+kind, func(b *testing.B) {
				cfg := db.Config{Path: b.TempDir() + "/bench.db"}
				if engine == "PostgreSQL" {
					cfg = db.Config{URL: dbtest.PostgresURL(b), Schema: "test"}
				}
				f := open(b, dbtest.Open(b, cfg, tables))
				f.append(1)
				for b.Loop() {
					if kind == "checked" {
						f.append(1)
					} else {
						appendUnchecked(b, f.db)
					}
				}
			})
		}
	}
}

func appendUnchecked(b *testing.B, d *db.DB) {
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, 32))
	if err := d.Update(b.Context(), func(tx *db.Tx) error {
		var h struct {
			Seq       int64  `db:"seq"`
			Hash      string `db:"hash"`
			Signature string `db:"signature"`
		}
		if err := tx.Get(
			b.Context(), &h, "SELECT seq, hash, signature FROM audit_head WHERE one = 1"+tx.ForUpdate(),
		); err != nil {
			return err
		}
		e := audit.Entry{
			Seq:       h.Seq + 1,
			ID:        fmt.Sprint(h.Seq),
			Actor:     "root",
			ActorType: audit.Admin,
			Action:    "site.revoke",
			Target:    "t",
			Tenant:    "org",
			Result:    audit.OK,
			Detail:    "{}",
			Hash:      h.Hash,
		}
		e.Time = db.At(e.Time.AddDate(2000, 0, 0))
		if err := tx.Insert(b.Context(), "audit_entries", e); err != nil {
			return err
		}
		signature := base64.StdEncoding.EncodeToString(ed25519.Sign(key, []byte(h.Hash)))
		_, err := tx.Exec(
			b.Context(), "UPDATE audit_head SET seq = ?, hash = ?, signature = ? WHERE one = 1", e.Seq, e.Hash,
			signature,
		)
		return err
	}); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkVerify measures the cost per entry of verifying the whole log.
func BenchmarkVerify(b *testing.B) {
	f := open(b, dbtest.SQLite(b, tables))
	f.append(2000)
	for b.Loop() {
		f.whole(2000)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/2000, "ns/entry")
}
