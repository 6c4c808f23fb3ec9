package audit_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
)

func seed(n byte) []byte { return bytes.Repeat([]byte{n}, 32) }

// with opens the log like a new process, with a current key and accepted ones.
func (f *fixture) with(current byte, accepted ...byte) *fixture {
	f.t.Helper()
	cfg := f.cfg
	cfg.Seed, cfg.Accepted = seed(current), nil
	for _, other := range accepted {
		cfg.Accepted = append(cfg.Accepted, seed(other))
	}
	return openWith(f.t, cfg)
}

func (f *fixture) rotate() {
	f.t.Helper()
	if err := f.db.Update(context.Background(), func(tx *db.Tx) error { return f.Rotate(context.Background(), tx) }); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) forgeWith(forgery audit.Forgery) {
	f.t.Helper()
	if err := f.db.Update(context.Background(), func(tx *db.Tx) error { return forgery.Apply(context.Background(), tx) }); err != nil {
		f.t.Fatal(err)
	}
}

// sound fails the test unless the log verifies without breaks, in so many segments.
func (f *fixture) sound(entries int64, segments int) {
	f.t.Helper()
	if v := f.verify(); !v.OK || len(v.Breaks) > 0 || v.Entries != entries || v.Verified != entries ||
		len(v.Segments) != segments {
		f.t.Errorf("%+v", v)
	}
	if f.broken() != 0 || strings.Contains(f.out.String(), "ERROR") {
		f.t.Errorf("a false alarm: %s", f.out)
	}
}

func TestARotatedLogVerifiesWithTheNewKeyAlone(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		f := open(t, d)
		f.append(5)
		f.checkpoint()
		f.append(1)
		f = f.with(8, 7)
		f.sound(6, 1)
		f.append(1)
		f.sound(7, 1) // it continues with its key until Rotate
		f.rotate()
		f.rotate() // does nothing
		f.sound(8, 2)
		f.append(2)
		f.checkpoint()
		f.sound(10, 2)
		f = f.with(8)
		f.sound(10, 2)
		if v := f.verify(); v.Checkpoints.Count != 2 || v.Checkpoints.Newest.Seq != 10 || v.Segments[0].Last != 7 {
			t.Errorf("%+v", v)
		}
		entries, err := f.List(t.Context(), d, audit.Filter{Limit: 9, Action: audit.ActionKey})
		if err != nil || len(entries) != 1 || entries[0].Seq != 8 || !strings.Contains(entries[0].Detail, "old_public_key") {
			t.Errorf("%+v, %v", entries, err)
		}
		f.append(1)
		f = f.with(9, 8)
		f.rotate()
		f.append(1)
		f.checkpoint()
		f = f.with(9) // the file has checkpoints by three keys
		f.append(1)
		f.sound(14, 3)
		if v := f.verify(); v.Checkpoints.Count != 3 {
			t.Errorf("%+v", v.Checkpoints)
		}
		f.with(8).alarmed("nothing that this service signed is left")
	})
}

func TestAnEmptyLogAndOneOfTheFirstVersionRotate(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		open(t, d)
		f := open(t, d).with(8, 7)
		f.rotate()
		f = f.with(8)
		f.append(1)
		f.sound(2, 2)
	})
	dbtest.Each(t, nil, func(t *testing.T, d *db.DB) {
		if err := d.Migrate(context.Background(), "audit", firstVersion(t)); err != nil {
			t.Fatal(err)
		}
		(&fixture{t: t, db: d}).exec(oldLog...)
		if err := d.Migrate(context.Background(), "audit", audit.Migrations()); err != nil {
			t.Fatal(err)
		}
		f := open(t, d, func(c *audit.Config) { c.Seed, c.Accepted = seed(8), [][]byte{seed(7)} })
		f.rotate()
		f = f.with(8)
		f.append(1)
		f.sound(4, 2)
	})
}

func TestARotationThatIsNotCommittedLeavesTheOldKey(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		f := open(t, d)
		f.append(2)
		f = f.with(8, 7)
		killed := errors.New("killed")
		if err := d.Update(t.Context(), func(tx *db.Tx) error {
			return errors.Join(f.Rotate(t.Context(), tx), killed)
		}); !errors.Is(err, killed) {
			t.Fatal(err)
		}
		f.append(1)
		f.sound(3, 1)
		f.with(7).sound(3, 1)
	})
}

func TestAnAcknowledgedBreakStaysSoAfterARotation(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		f := open(t, d)
		f.append(5)
		f.exec("DELETE FROM audit_entries WHERE seq > 3")
		f.append(1)
		v := f.alarmed("entry 5, which")
		f.acknowledge(v.Breaks[len(v.Breaks)-1].Recorded)
		f = f.with(8, 7)
		f.rotate()
		for name, f := range map[string]*fixture{"at once": f, "after a restart": f.with(8)} {
			if message, err := f.Alarm(t.Context()); message != "" || err != nil {
				t.Errorf("%s: the alarm is %q, %v", name, message, err)
			}
			if v := f.inspect(); !v.OK || len(v.Breaks) != 2 {
				t.Errorf("%s: %+v", name, v)
			}
		}
	})
}

func TestARotationRecordsABreakThatItFinds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ tamper, reason string }{
		"a cut tail":       {"DELETE FROM audit_entries WHERE seq > 3", "entry 5, which"},
		"a forged segment": {copyOfSegment(1, 2), "is not signed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
				f := open(t, d)
				f.append(5)
				f = f.with(8, 7)
				f.exec(tt.tamper)
				f.rotate()
				f = f.with(8)
				f.append(1)
				f.brokenBy(tt.reason)
				f.settled()
			})
		})
	}
}

// brokenBy is alarmed for a break that another process has logged.
func (f *fixture) brokenBy(reason string) {
	f.t.Helper()
	v := f.inspect()
	if v.OK || !strings.Contains(v.Reason, reason) || f.broken() != 1 {
		f.t.Errorf("want a break %q, got %+v", reason, v)
	}
}

func TestWhoeverStoleTheOldKeyCannotForgeWhatItSigned(t *testing.T) {
	t.Parallel()
	for name, forgery := range map[string]audit.Forgery{ // with the old key
		"an entry and the chain after it": {Entry: 2},
		"the whole log":                   {Entry: 2, Segments: true, Head: true},
		"the segments alone":              {Segments: true},
		"the head alone":                  {Head: true},
		"an entry and the head":           {Entry: 2, Head: true},
		"a further segment":               {Additional: true, Head: true},
		"everything, and a further one":   {Entry: 2, Segments: true, Additional: true, Head: true},
	} {
		forgery.Seed = seed(7)
		for how, run := range map[string]func(f *fixture) *fixture{
			"while the service runs":          func(f *fixture) *fixture { return f },
			"after a restart":                 func(f *fixture) *fixture { return f.with(8) },
			"with the old key still accepted": func(f *fixture) *fixture { return f.with(8, 7) },
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				f := open(t, dbtest.SQLite(t, tables))
				f.append(5)
				f.checkpoint()
				f = f.with(8, 7)
				f.rotate()
				f.append(3)
				f.checkpoint()
				f.forgeWith(forgery)
				f = run(f)
				f.append(1)
				if v := f.inspect(); v.OK {
					t.Fatalf("the forgery verifies: %+v", v)
				}
				if message, err := f.Alarm(t.Context()); message == "" || err != nil || f.broken() != 1 {
					t.Errorf("the alarm is %q, %v", message, err)
				}
				f.settled()
			})
		}
	}
}

// The thief of the old key can append to the file of checkpoints, but not remove lines, as on
// append-only storage.
func TestCheckpointsOfARetiredKeyCountForItsSegmentsOnly(t *testing.T) {
	t.Parallel()
	f := open(t, dbtest.SQLite(t, tables))
	f.append(5)
	f.checkpoint()
	f = f.with(8, 7)
	f.rotate()
	f.backUp()
	f.append(3)
	f.checkpoint()
	text, err := os.ReadFile(f.cfg.Checkpoints)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	add := func(segment int64) {
		t.Helper()
		line, err := audit.ForgeCheckpoint(lines[0], seed(7), segment)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f.cfg.Checkpoints, append(bytes.Clone(text), line...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	add(1)
	for _, f := range []*fixture{f.with(8), f.with(8, 7)} {
		f.sound(9, 2)
		if v := f.verify(); v.Checkpoints.Count != 3 || v.Checkpoints.Newest.Seq != 9 {
			t.Errorf("a line of the old key replaces the newest checkpoint: %+v", v.Checkpoints)
		}
	}
	add(2)
	f.with(8).alarmed("file of checkpoints holds a line")
	add(1)
	for _, accepted := range [][]byte{nil, {7}} {
		f.putBack()
		f.with(8, accepted...).brokenBy("the log ends with entry 6, and was known to reach entry 9")
	}
	add(2) // which counts as long as the old key is accepted and its row is gone
	f.putBack()
	f.exec("DELETE FROM audit_retired_keys")
	f.with(8, 7).brokenBy("the log ends with entry 6, and was known to reach entry 9")
}

func TestTamperingWithTheRetiredKeysIsFound(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ tamper, reason string }{
		"removed": {"DELETE FROM audit_retired_keys", "file of checkpoints holds a line"},
		"bent":    {"UPDATE audit_retired_keys SET last_segment = 9", "retired keys of the log are not signed"},
		"added":   {"INSERT INTO audit_retired_keys VALUES ('AAAA', 9, 'AAAA')", "retired keys of the log are not signed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
				f := open(t, d)
				f.append(5)
				f.checkpoint()
				f = f.with(8, 7)
				f.rotate()
				f.checkpoint()
				f.exec(tt.tamper)
				f = f.with(8)
				f.alarmed(tt.reason)
				f.settled()
			})
		})
	}
}

// The replica that still has the old key as its current one signs with the key of the log.
func TestReplicasShareTheLogWhileTheKeyRotates(t *testing.T) {
	t.Parallel()
	url := dbtest.PostgresURL(t)
	replica := func(current, other byte) *fixture {
		return open(t, dbtest.Open(t, db.Config{URL: url, Schema: "test"}, tables), func(c *audit.Config) {
			c.Seed, c.Accepted = seed(current), [][]byte{seed(other)}
		})
	}
	late := replica(7, 8)
	late.append(3)
	first := replica(8, 7)
	var all sync.WaitGroup
	all.Go(func() { first.append(5); first.rotate(); first.append(5) })
	for range 2 {
		all.Go(func() { late.append(10) })
		all.Go(func() {
			for range 10 {
				late.checkpoint()
				if err := late.Check(context.Background()); err != nil {
					t.Error(err)
				}
				if v := late.verify(); !v.OK {
					t.Errorf("while the key rotates: %+v", v)
				}
			}
		})
	}
	all.Wait()
	late.append(1)
	for _, f := range []*fixture{first, late} {
		f.sound(35, 2)
		f.checkpoint()
		f.again().sound(35, 2)
		f.with(8).sound(35, 2)
	}
}
