package repository

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

func TestATableFindsAllRecordsAfterItsRunsWereMerged(t *testing.T) {
	t.Parallel()
	table := newTable(t.TempDir())
	table.limit = 1000
	random := rand.New(rand.NewPCG(1, 1))
	const n = 70_000
	ids := make([]blobID, n)
	for i := range ids {
		for at := 0; at < len(ids[i]); at += 8 {
			binary.BigEndian.PutUint64(ids[i][at:], random.Uint64())
		}
		if err := table.add(ids[i], location{pack: uint32(i), offset: 1, length: 2, raw: 3}); err != nil {
			t.Fatal(err)
		}
	}
	// Some have a second place.
	for i := 0; i < n; i += n / 5 {
		if err := table.add(ids[i], location{pack: n + 1}); err != nil {
			t.Fatal(err)
		}
	}
	if len(table.tiers) < 3 || len(table.recent) > table.limit {
		t.Errorf("%d tiers, and %d records in memory", len(table.tiers), len(table.recent))
	}
	for i := 0; i < n; i += 7 {
		found, err := table.find(ids[i])
		if err != nil || len(found) != 1 && i%(n/5) != 0 || len(found) != 2 && i%(n/5) == 0 {
			t.Fatalf("%d: %v, %v", i, found, err)
		}
		if found[0].pack != uint32(i) && found[len(found)-1].pack != uint32(i) {
			t.Fatalf("%d: %v", i, found)
		}
		other := ids[i]
		other[31]++
		if has, err := table.has(other); has || err != nil {
			t.Fatalf("an id that was not added: %v, %v", has, err)
		}
	}
	if err := table.close(); err != nil {
		t.Error(err)
	}
}
