package audit_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
)

var auditTables = []string{"audit_entries", "audit_head", "audit_segments", "audit_breaks"}

// backUp stores a copy of the log in the database.
func (f *fixture) backUp() {
	f.t.Helper()
	for _, table := range auditTables {
		f.exec("CREATE TABLE copy_of_" + table + " AS SELECT * FROM " + table)
	}
}

// putBack restores the copy.
func (f *fixture) putBack() {
	f.t.Helper()
	for _, table := range auditTables {
		f.exec("DELETE FROM "+table, "INSERT INTO "+table+" SELECT * FROM copy_of_"+table)
	}
}

// wipe restores the state after the migrations.
func (f *fixture) wipe() {
	f.t.Helper()
	f.exec("DELETE FROM audit_entries", "DELETE FROM audit_segments", "DELETE FROM audit_breaks",
		"UPDATE audit_head SET segment = 0, seq = 0, hash = '"+strings.Repeat("0", 64)+"', signature = ''")
}

// forge creates entries 4 and 5 from public data, and a head for them signed with another key.
func (f *fixture) forge(signature string) {
	f.t.Helper()
	f.exec(
		"DELETE FROM audit_entries WHERE seq > 3",
		"UPDATE audit_head SET seq = 3, hash = (SELECT hash FROM audit_entries WHERE seq = 3), signature = '"+signature+"'",
	)
}

func otherKey() string {
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{9}, 32))
	return base64.StdEncoding.EncodeToString(ed25519.Sign(key, []byte("mainstay audit head 3 aa")))
}

// attacks are applied to a log of five entries whose end is in a checkpoint. reason is what the log
// must report after the next append.
var attacks = map[string]struct {
	attack func(f *fixture)
	reason string
	// late means that the end of the log is unchanged, so that only a verification finds the
	// attack.
	late bool
}{
	"a cut tail": {
		func(f *fixture) { f.exec("DELETE FROM audit_entries WHERE seq > 3") },
		"entry 5, which",
		false,
	},
	"a cut tail and a head without key": {func(f *fixture) { f.forge("") }, "not signed by this service", false},
	"a cut tail and a head of another key": {
		func(f *fixture) { f.forge(otherKey()) },
		"not signed by this service",
		false,
	},
	"a moved head": {
		func(f *fixture) { f.exec("UPDATE audit_head SET seq = 3") },
		"not signed by this service",
		false,
	},
	"a removed head": {
		func(f *fixture) { f.exec("DELETE FROM audit_head") },
		"not signed by this service",
		false,
	},
	"a head of the old form": {
		func(f *fixture) { f.exec("UPDATE audit_head SET segment = 0") },
		"not signed by this service",
		false,
	},
	"a wiped log": {func(f *fixture) { f.wipe() }, "emptied", false},
	"entries beyond the head": {
		func(f *fixture) { f.exec(copyOf(5, 6)) },
		"entry 6 was not written by this service",
		false,
	},
	"a changed last entry": {
		func(f *fixture) { f.exec("UPDATE audit_entries SET actor = 'nobody' WHERE seq = 5") },
		"entry 5 was changed",
		true,
	},
	"a rewritten last hash": {
		func(f *fixture) { f.exec("UPDATE audit_entries SET hash = 'ff' WHERE seq = 5") },
		"entry 5 ",
		false,
	},
	"a changed field": {
		func(f *fixture) { f.exec("UPDATE audit_entries SET actor = 'nobody' WHERE seq = 3") },
		"entry 3 was changed",
		true,
	},
	"a removed entry": {
		func(f *fixture) { f.exec("DELETE FROM audit_entries WHERE seq = 3") },
		"entry 3 is missing",
		true,
	},
	"a hash that is not hex": {
		func(f *fixture) { f.exec("UPDATE audit_entries SET hash = 'zz' WHERE seq = 3") },
		"entries 3 to 4 were changed",
		true,
	},
	"a time out of range": {
		func(f *fixture) { f.exec("UPDATE audit_entries SET time = 9000000000000000000 WHERE seq = 3") },
		"entry 3 was changed",
		true,
	},
	"an entry before the first": {
		func(f *fixture) { f.exec(copyOf(1, 0)) },
		"entries lie outside of what is signed: 1",
		true,
	},
	"an entry with the highest number": {
		func(f *fixture) { f.exec(copyOf(1, 9223372036854775807)) },
		"entries lie outside of what is signed: 1",
		true,
	},
	"a forged segment": {
		func(f *fixture) { f.exec(copyOfSegment(1, 2)) },
		"segment 2 is not signed",
		true,
	},
	"a segment with the highest number": {
		func(f *fixture) { f.exec(copyOfSegment(1, 9223372036854775807)) },
		"is not signed",
		true,
	},
	"a changed segment": {
		func(f *fixture) { f.exec("UPDATE audit_segments SET first = 2") },
		"nothing that this service signed is left",
		true,
	},
	"a removed segment": {
		func(f *fixture) { f.exec("DELETE FROM audit_segments") },
		"nothing that this service signed is left",
		true,
	},
	"a head that moved on without a chain": {
		func(f *fixture) { f.exec(copyOf(5, 6), "UPDATE audit_head SET seq = 6") },
		"not signed by this service",
		false,
	},
	"a line in the file that was not ours": {
		func(f *fixture) { f.edit(`"seq":5`, `"seq":4`) },
		"file of checkpoints holds a line",
		true,
	},
	"entries from 3 on under the same head": {
		func(f *fixture) { f.exec("UPDATE audit_entries SET detail = '{}' WHERE seq >= 3") },
		"entries 3 to 5 were changed",
		true,
	},
}

func copyOf(seq, as int64) string {
	return fmt.Sprintf(
		"INSERT INTO audit_entries SELECT %d, id, time, actor, actor_type, action, target, tenant, site, result, message, detail, hash FROM audit_entries WHERE seq = %d",
		as, seq,
	)
}

func copyOfSegment(number, as int64) string {
	return fmt.Sprintf(
		"INSERT INTO audit_segments SELECT %d, id, log, time, first, start, after_segment, after_seq, after_hash, signature FROM audit_segments WHERE number = %d",
		as, number,
	)
}

// edit changes the checkpoint file.
func (f *fixture) edit(from, to string) {
	f.t.Helper()
	text, err := os.ReadFile(f.cfg.Checkpoints)
	if err != nil || !strings.Contains(string(text), from) {
		f.t.Fatalf("%s: %v", text, err)
	}
	if err := os.WriteFile(f.cfg.Checkpoints, []byte(strings.ReplaceAll(string(text), from, to)), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// alarmed fails the test unless the reason is recorded and the alarm is active.
func (f *fixture) alarmed(reason string) audit.Verification {
	f.t.Helper()
	v := f.inspect()
	if v.OK || v.Reason == "" {
		f.t.Fatalf("the log verifies: %+v", v)
	}
	found := false
	for _, b := range v.Breaks {
		found = found ||
			strings.Contains(b.Reason, reason) && b.Recorded > 0 && !b.FoundAt.IsZero() && b.AcknowledgedAt.IsZero()
	}
	if !found {
		f.t.Errorf("want a break %q, got %+v", reason, v.Breaks)
	}
	if f.broken() != 1 || !strings.Contains(f.out.String(), "level=ERROR") {
		f.t.Errorf("audit_broken is %v, log:\n%s", f.broken(), f.out)
	}
	return v
}

// settled fails the test unless no break is found or recorded twice, the chain grows, the
// acknowledgement ends the alarm, and later tampering is still found.
func (f *fixture) settled() {
	f.t.Helper()
	before := f.inspect()
	f.append(2)
	if v := f.inspect(); len(v.Breaks) != len(before.Breaks) || len(v.Segments) != len(before.Segments) {
		f.t.Fatalf("the same was found again:\n%+v\n%+v", before, v)
	}
	var through int64
	for _, b := range before.Breaks {
		through = max(through, b.Recorded)
	}
	f.acknowledge(through)
	if v := f.inspect(); !v.OK || len(v.Breaks) != len(before.Breaks) || v.Breaks[0].AcknowledgedBy != "root" ||
		v.Breaks[0].Note != "seen" ||
		f.broken() != 0 {
		f.t.Errorf("acknowledged: %+v", v)
	}
	f.checkpoint()
	f.append(2)
	next := f.verify().HeadSeq - 1
	f.exec(fmt.Sprintf("UPDATE audit_entries SET actor = 'nobody' WHERE seq = %d", next))
	if v := f.inspect(); v.OK || v.Reason != fmt.Sprintf("entry %d was changed", next) ||
		len(v.Breaks) != len(before.Breaks)+1 {
		f.t.Errorf("tampering after it: %q %+v", v.Reason, v.Breaks)
	}
}

func (f *fixture) acknowledge(through int64) {
	f.t.Helper()
	if err := f.db.Update(context.Background(), func(tx *db.Tx) error {
		return f.Acknowledge(
			context.Background(), tx, through, audit.Entry{Actor: "root", ActorType: audit.Admin, Message: "seen"},
		)
	}); err != nil {
		f.t.Fatal(err)
	}
}

func TestEveryKindOfTamperingIsFoundWhileTheServiceRuns(t *testing.T) {
	t.Parallel()
	for name, tt := range attacks {
		if strings.Contains(name, "in the file") {
			continue // the file is read at start
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
				f := open(t, d)
				f.append(5)
				f.checkpoint()
				tt.attack(f)
				if v := f.verify(); v.OK {
					t.Errorf("before the next append: %+v", v)
				}
				f.append(1) // is not refused
				if f.broken() != 1 && !tt.late {
					t.Error("the append did not see it")
				}
				f.alarmed(tt.reason)
				f.settled()
			})
		})
	}
}

func TestEveryKindOfTamperingIsFoundAfterARestart(t *testing.T) {
	t.Parallel()
	for name, tt := range attacks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
				f := open(t, d)
				f.append(5)
				f.checkpoint()
				tt.attack(f)
				f = f.again()
				if f.broken() != 1 && !tt.late {
					t.Error("the start did not see it")
				}
				f.append(1)
				f.alarmed(tt.reason)
				f.settled()
			})
		})
	}
}

func TestARestoredDatabaseIsSaidInPlainWords(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]bool{"while the service runs": false, "between runs": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
				f := open(t, d)
				f.append(3)
				f.checkpoint()
				f.backUp()
				f.append(4)
				f.checkpoint()
				f.putBack()
				if restart {
					f = f.again()
				}
				f.append(1)
				v := f.alarmed(
					"the log ends with entry 3, and was known to reach entry 7: the database was put back to an earlier state, as by restoring a backup",
				)
				if last := v.Segments[len(v.Segments)-1]; last.First != 8 || v.Segments[0].Verified != 3 {
					t.Errorf("numbers were used again, or what is left does not count: %+v", v.Segments)
				}
				f.settled()
			})
		})
	}
}

func TestADatabaseOfAnotherLogIsABreak(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		f := open(t, d)
		f.append(2)
		f.backUp()
		f.wipe()
		f = open(t, d) // with another file: this is a new log
		f.append(3)
		f.checkpoint()
		f.putBack()
		f = f.again()
		f.append(1)
		f.alarmed("another audit log")
		f.settled()
	})
}

func TestSegmentsCannotBeRemovedOrForged(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ statement, reason string }{
		"a removed segment":           {"DELETE FROM audit_segments WHERE number = 2", "segment 2 is missing"},
		"the entries of a segment":    {"DELETE FROM audit_entries WHERE seq BETWEEN 6 AND 9", "entries 6 to 9 are missing"},
		"a forged entry in a segment": {"UPDATE audit_entries SET message = 'nothing happened' WHERE seq = 6", "entry 6 was changed"},
		"a changed segment":           {"UPDATE audit_segments SET first = 5 WHERE number = 2", "segment 2 is not signed"},
		"a removed first segment":     {"DELETE FROM audit_segments WHERE number = 1", "segment 1 is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
				f := open(t, d)
				f.append(5) // 1 to 5
				f.exec("UPDATE audit_head SET signature = ''")
				f.append(3) // break 6, then 7 to 9
				f.exec("UPDATE audit_head SET signature = ''")
				f.append(3) // break 10, then 11 to 13
				if v := f.verify(); len(v.Segments) != 3 || len(v.Breaks) != 2 || v.Verified != 13 {
					t.Fatalf("%+v", v)
				}
				f.acknowledge(10)
				f.exec(tt.statement)
				f.append(1)
				f.alarmed(tt.reason)
			})
		})
	}
}

func TestAnAcknowledgementNamesABreak(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		f := open(t, d)
		f.append(2)
		ack := func(through int64) error {
			return d.Update(
				t.Context(),
				func(tx *db.Tx) error { return f.Acknowledge(t.Context(), tx, through, audit.Entry{Actor: "root"}) },
			)
		}
		if err := ack(2); err == nil || !strings.Contains(err.Error(), "through") {
			t.Errorf("without a break: %v", err)
		}
		f.exec("UPDATE audit_head SET signature = ''")
		f.append(1)
		if err := ack(3); err != nil {
			t.Error(err)
		}
		if err := ack(3); err == nil || !strings.Contains(err.Error(), "already") {
			t.Errorf("twice: %v", err)
		}
	})
}

func TestAnotherSecretKeyIsABreakThatCanBeAcknowledged(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		f := open(t, d)
		f.append(3)
		f.checkpoint()
		f.cfg.Seed = bytes.Repeat([]byte{8}, 32)
		f = f.again()
		f.append(1)
		v := f.alarmed("or the secret key was replaced")
		if v.Verified != v.Entries || v.Segments[0].First != 4 {
			t.Errorf("what the new key signed: %+v", v)
		}
		f.settled()
	})
}

// A replica that has seen more than the one that recorded a break reports what is missing.
func TestEachReplicaKnowsWhatItHasSeen(t *testing.T) {
	t.Parallel()
	url := dbtest.PostgresURL(t)
	one := open(t, dbtest.Open(t, db.Config{URL: url, Schema: "test"}, tables))
	two := open(t, dbtest.Open(t, db.Config{URL: url, Schema: "test"}, tables))
	one.append(2)
	one.backUp()
	one.append(4)
	one.checkpoint()
	two.append(3) // 7 to 9, which the first has not seen
	one.putBack()
	one.append(1) // a break at 7, then 8
	two.append(1)
	if v := two.alarmed(
		"entries 7 to 9 were known, and others have their numbers now",
	); v.Segments[len(v.Segments)-1].First < 10 {
		t.Errorf("%+v", v.Segments)
	}
	one.append(1)
	if v := one.inspect(); v.OK {
		t.Errorf("%+v", v)
	}
	two.settled()
}

func TestNobodyEndsTheAlarmByWritingToTheDatabase(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		f := open(t, d)
		f.append(5)
		f.exec("DELETE FROM audit_entries WHERE seq > 3")
		f.append(1)
		v := f.alarmed("entry 5, which")
		for _, forged := range []string{
			"UPDATE audit_breaks SET acknowledged = 'true'",
			"UPDATE audit_breaks SET acknowledged = '" + otherKey() + "'",
			"DELETE FROM audit_breaks",
		} {
			f.exec(forged)
			if err := f.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			if message, err := f.Alarm(t.Context()); f.broken() != 1 || message == "" || err != nil {
				t.Errorf("%s: the metric is %v, the alarm %q, %v", forged, f.broken(), message, err)
			}
		}
		f.acknowledge(v.Breaks[len(v.Breaks)-1].Recorded)
		f.exec("DELETE FROM audit_breaks") // what is made from the entries comes back with them
		f.inspect()
		if message, err := f.Alarm(t.Context()); f.broken() != 0 || message != "" || err != nil {
			t.Errorf("acknowledged: the metric is %v, the alarm %q, %v", f.broken(), message, err)
		}
	})
}
