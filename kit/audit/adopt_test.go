package audit_test

import (
	"context"
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
)

// firstVersion returns the tables as they were before segments existed.
func firstVersion(t *testing.T) fs.FS {
	t.Helper()
	text, err := fs.ReadFile(audit.Migrations(), "0001_audit.sql")
	if err != nil {
		t.Fatal(err)
	}
	return fstest.MapFS{"0001_audit.sql": {Data: text}}
}

// oldLog is a log that the previous version wrote with the tests' key: two entries and their head.
var oldLog = []string{
	`INSERT INTO audit_entries VALUES (1, 'id-1', 1700000000000000, 'root', 'admin', 'site.revoke', 'a', '', '', 'ok', '', '{}', '` + oldHash1 + `')`,
	`INSERT INTO audit_entries VALUES (2, 'id-2', 1700000001000000, 'root', 'admin', 'site.revoke', 'b', '', '', 'ok', '', '{}', '` + oldHash2 + `')`,
	`UPDATE audit_head SET seq = 2, hash = '` + oldHash2 + `', signature = '` + oldSignature + `'`,
}

const (
	oldHash1     = "789feb323effefd9ecc3b951bd921b146a908adf79575e7bf51249625b2cfc89"
	oldHash2     = "25e9dc9ec7ee149200a70090856fdaf4a14c26b6a1e1b902edb30826c8328b04"
	oldSignature = "EYnkUDiAr99iUUD3asvb1ak+vzOQCOffMkRCmoBbnrlKMw3B0Wp/r93PU/NjUr9P3jMYLRoWEufQ61RsFeszDw=="
)

func TestALogOfTheVersionBeforeIsAdoptedIfItVerifies(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		tamper string
		breaks bool
		whole  bool
	}{
		"as it was":            {"UPDATE audit_head SET seq = seq", false, true},
		"with another head":    {"UPDATE audit_head SET signature = 'AAAA'", true, false},
		"with a changed end":   {"UPDATE audit_entries SET actor = 'x' WHERE seq = 2", true, false},
		"with a cut end":       {"DELETE FROM audit_entries WHERE seq = 2", true, false},
		"with entries beyond":  {copyOf(2, 3), true, false},
		"with a changed start": {"UPDATE audit_entries SET actor = 'x' WHERE seq = 1", false, false}, // the rest is told by Verify
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, nil, func(t *testing.T, d *db.DB) {
				if err := d.Migrate(context.Background(), "audit", firstVersion(t)); err != nil {
					t.Fatal(err)
				}
				(&fixture{t: t, db: d}).exec(append(append([]string{}, oldLog...), tt.tamper)...)
				if err := d.Migrate(context.Background(), "audit", audit.Migrations()); err != nil {
					t.Fatal(err)
				}
				f := open(t, d)
				if got := f.broken() == 1; got != tt.breaks {
					t.Errorf("a break: %v, want %v\n%s", got, tt.breaks, f.out)
				}
				f.append(2)
				if v := f.verify(); v.OK != tt.whole {
					t.Errorf("%+v", v)
				}
				if tt.whole {
					f.whole(4)
					f.again().whole(4)
				}
			})
		})
	}
}
