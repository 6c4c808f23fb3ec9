package audit_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
)

// TestALogVerifiesIfAndOnlyIfNothingWasTamperedWith applies random actions.
func TestALogVerifiesIfAndOnlyIfNothingWasTamperedWith(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
				r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test that repeats
				f := open(t, d)
				f.append(3)
				tampered, last := false, ""
				key, rotations := byte(7), 0
				for step := range 12 {
					switch what := r.IntN(7); what {
					case 0, 1:
						f.append(1 + r.IntN(4))
					case 2:
						f.checkpoint()
					case 3:
						f.checkpoint() // what is not in the file, a restart cannot know
						f = f.again()
					case 4:
						f.inspect()
					case 5:
						f.checkpoint()
						f = f.with(key+1, key)
						f.rotate()
						key, rotations = key+1, rotations+1
					default:
						if !tampered && step < 6 {
							break
						}
						last = randomTampering(r, f)
						f.exec(last)
						tampered = true
					}
					v := f.verify()
					if v.OK == tampered {
						t.Fatalf("step %d, after %q: %+v", step, last, v)
					}
					if v.Verified > v.Entries || !tampered && v.Verified != v.Entries {
						t.Fatalf("step %d: %+v", step, v)
					}
				}
				// Whatever happened, the log settles: nothing is found twice, and an
				// acknowledgement ends the alarm.
				f.append(1)
				first := f.inspect()
				f.append(1)
				if second := f.inspect(); len(second.Breaks) != len(first.Breaks) {
					t.Fatalf("found again:\n%+v\n%+v", first.Breaks, second.Breaks)
				}
				if !tampered {
					f.sound(first.Entries+1, 1+rotations)
					f.with(key).sound(first.Entries+1, 1+rotations)
					return
				}
				var through int64
				for _, b := range first.Breaks {
					through = max(through, b.Recorded)
				}
				f.acknowledge(through)
				if v := f.inspect(); !v.OK {
					t.Errorf("acknowledged: %+v", v.Breaks)
				}
			})
		})
	}
}

// randomTampering returns a statement that changes something.
func randomTampering(r *rand.Rand, f *fixture) string {
	v := f.verify()
	seq := 1 + r.Int64N(max(v.HeadSeq, 1))
	return []string{
		fmt.Sprintf("UPDATE audit_entries SET message = message || 'x' WHERE seq = (SELECT MIN(seq) FROM audit_entries WHERE seq >= %d)", seq),
		fmt.Sprintf("DELETE FROM audit_entries WHERE seq = (SELECT MIN(seq) FROM audit_entries WHERE seq >= %d)", seq),
		fmt.Sprintf("DELETE FROM audit_entries WHERE seq >= %d", seq),
		"UPDATE audit_head SET seq = seq - 1, hash = (SELECT hash FROM audit_entries WHERE seq = audit_head.seq - 1) WHERE EXISTS (SELECT 1 FROM audit_entries WHERE seq = audit_head.seq - 1)",
		"UPDATE audit_head SET signature = ''",
		"DELETE FROM audit_head",
		"DELETE FROM audit_segments WHERE number = (SELECT MAX(number) FROM audit_segments)",
		"UPDATE audit_segments SET first = first + 1 WHERE number = (SELECT MIN(number) FROM audit_segments)",
		"INSERT INTO audit_entries SELECT MAX(seq) + 3, 'x', 1, '', '', '', '', '', '', '', '', '{}', 'x' FROM audit_entries",
	}[r.IntN(9)]
}
