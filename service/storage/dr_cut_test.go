//go:build linux

package storage_test

import (
	"bytes"
	"testing"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

// The gateway reaches both sites, which do not reach each other: nothing is copied from east to west.
func TestSitesThatDoNotReachEachOther(t *testing.T) {
	t.Parallel()
	s := twoSites(t)
	const size = 8 * mib
	volume := s.done(s.call("POST", "/volumes", s.admin, object{"name": "data", "size_bytes": size, "policy": "east"}), s.admin)
	native := "vol-" + volume
	copied := fill(t, s.east, s.east.Pool+"/"+native, size)
	s.done(s.call("POST", "/volumes/"+volume+"/mirror?peer="+s.peer, s.admin, nil), s.admin)
	s.eventually("west has the volume", func() bool {
		m := s.mirrors()
		return m["west"].Role == "secondary" && m["east"].LastSyncedAt != nil && s.ready(m["west"].Id)
	})
	east, west := s.mirrors()["east"].Id, s.mirrors()["west"].Id
	s.call("POST", "/dr/mirrors/"+east+"/rpo", s.admin, object{"rpo_seconds": 5}).Want(200)

	// What is written is not copied, which shows.
	heal := s.west.Cut(t, s.east)
	fill(t, s.east, s.east.Pool+"/"+native, size)
	late := func() bool {
		st := s.status(west)
		return st.Health == "warning" && st.LagSeconds != nil && *st.LagSeconds > 5
	}
	s.eventually("the copy is too old", late)

	// A failover waits for the rest of the volume. Until it is cancelled, nobody can write; then east is primary again.
	a := s.call("POST", "/dr/failover", s.admin, object{"mirror_id": west, "confirm": true}).Want(202)
	id := contracttest.As[storageapi.MirrorAccepted](a).JobId
	s.eventually("east is demoted", func() bool { return s.status(east).Role == "secondary" })
	s.call("POST", "/jobs/"+id+"/cancel", s.admin, nil).Want(200)
	if j := s.job(id, s.admin); j.State != "failed" {
		t.Errorf("%+v", j)
	}
	if st := s.status(east); st.Role != "primary" {
		t.Errorf("the failover that was cancelled has left %+v", st)
	}
	if st := s.status(west); st.Role != "secondary" || st.PromoteReady {
		t.Errorf("%+v", st)
	}

	// When they reach each other again, the copy catches up.
	second := fill(t, s.east, s.east.Pool+"/"+native, size)
	heal()
	s.eventually("west has what was written", func() bool { return s.ready(west) && s.sent(east) })
	s.done(s.call("POST", "/dr/failover", s.admin, object{"mirror_id": west, "confirm": true}), s.admin)
	if got := content(t, s.west, native); !bytes.Equal(got, second) || bytes.Equal(got, copied) {
		t.Error("west holds something else than east did")
	}
	s.eventually("east copies from west", func() bool { return s.ready(east) })

	// Moved by force, the volume loses what was not copied. The site that had it gets the other's content.
	s.east.Cut(t, s.west) // until the end of the test
	fill(t, s.west, s.west.Pool+"/"+native, size)
	s.done(s.call("POST", "/dr/failover", s.admin, object{"mirror_id": east, "confirm": true, "force": true}), s.admin)
	if got := content(t, s.east, native); !bytes.Equal(got, second) {
		t.Error("east holds something else than what was copied to it")
	}
	if st := s.status(east); st.Role != "primary" {
		t.Errorf("%+v", st)
	}
	if st := s.status(west); st.Role != "secondary" {
		t.Errorf("%+v", st)
	}
	third := fill(t, s.east, s.east.Pool+"/"+native, size)
	s.done(s.call("POST", "/dr/mirrors/"+west+"/resync", s.admin, nil), s.admin)
	s.eventually("west has what east has", func() bool { return s.ready(west) && s.sent(east) })
	s.done(s.call("POST", "/dr/failover", s.admin, object{"mirror_id": west, "confirm": true, "force": true}), s.admin)
	if got := content(t, s.west, native); !bytes.Equal(got, third) {
		t.Error("after the resync, west holds something else than east")
	}
}
