//go:build linux

package storage_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/cephtest"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/service/storage"
)

// sites is a gateway with two clusters, east and west, whose daemons copy images to each other.
type sites struct {
	*tour
	east, west *cephtest.Cluster
	peer       string // id: west, as a peer of east
}

func twoSites(t *testing.T) *sites {
	t.Helper()
	s := &sites{east: cephtest.Start(t), west: cephtest.Start(t)}
	helper := cephtest.Helper(t)
	token := filepath.Join(t.TempDir(), "west.token")
	if err := os.WriteFile(token, []byte(s.west.PeerToken(t)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// As the guide has it: the one adds the peer, and tells daemons from clients; the other need not.
	allow(t, s.east, "allow *")
	g := start(t, func(c *storage.Config) {
		c.CephClusters = []string{"east=mainstay@" + s.east.Conf, "west=mainstay@" + s.west.Conf}
		c.CephProgram, c.MirrorPeers = helper, []string{"west=" + token}
	})
	s.tour = &tour{g, map[string]int{}}
	for _, name := range []string{"east", "west"} {
		b := contracttest.As[storageapi.Backend](g.call("POST", "/backends", g.admin, object{"name": name}).Want(201))
		g.call("POST", "/backends/"+b.Id+"/discover", g.admin, nil).Want(200)
		g.call("PUT", "/policies/"+name, g.admin, object{"backend_id": b.Id, "kind": "block"}).Want(200)
	}
	s.east.StartMirror(t)
	s.west.StartMirror(t)
	g.call("POST", "/dr/peers", g.admin, object{"name": "west", "secret_ref": "west"}).Refused(400, "VALIDATION_ERROR", "cluster")
	g.call("POST", "/dr/peers?cluster=east", g.admin, object{"name": "west", "secret_ref": "none"}).
		Refused(400, "VALIDATION_ERROR", "secret_ref")
	g.call("POST", "/dr/peers?cluster=west", g.admin, object{"name": "west", "secret_ref": "west"}).
		Refused(400, "VALIDATION_ERROR", "secret_ref")
	g.call("POST", "/dr/peers?cluster=east", g.admin, object{"name": "west", "secret_ref": "west", "remote_cluster": "east"}).
		Refused(400, "VALIDATION_ERROR", "remote_cluster")
	p := contracttest.As[storageapi.Peer](s.ok("CreatePeer", "/dr/peers?cluster=east",
		object{"name": "west", "secret_ref": "west", "remote_cluster": "west"}, 201))
	if p.State != "reachable" || p.RemoteFsid != s.west.FSID || p.RemoteClusterId == "" {
		t.Errorf("%+v", p)
	}
	g.call("POST", "/dr/peers?cluster=east", g.admin, object{"name": "again", "secret_ref": "west"}).Refused(409, "CONFLICT", "")
	s.peer = p.Id
	return s
}

// eventually tries something until it holds: daemons of Ceph do it. Before each try, the gateway asks the clusters.
func (s *sites) eventually(what string, holds func() bool) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 90*time.Second)
	defer cancel()
	for {
		if err := s.service.DR().Pass(ctx); err != nil && ctx.Err() == nil {
			s.Fatal(err)
		}
		if holds() {
			return
		}
		select {
		case <-ctx.Done():
			s.Fatalf("never happened: %s; %s; %s; %s", what, s.call("GET", "/jobs?limit=4", s.admin, nil).Body, s.call("GET", "/dr/mirrors", s.admin, nil).Body,
				s.call("GET", "/dr/preflight", s.admin, nil).Body)
		case <-time.After(300 * time.Millisecond):
		}
	}
}

// mirrors returns the mirrors by the names of their clusters.
func (s *sites) mirrors() map[string]storageapi.Mirror {
	s.Helper()
	out := map[string]storageapi.Mirror{}
	for _, name := range []string{"east", "west"} {
		for _, m := range contracttest.As[[]storageapi.Mirror](s.call("GET", "/dr/mirrors?cluster="+name, s.admin, nil).Want(200)) {
			out[name] = m
		}
	}
	return out
}

func (s *sites) status(mirror string) storageapi.MirrorStatus {
	s.Helper()
	return contracttest.As[storageapi.MirrorStatus](s.call("GET", "/dr/mirrors/"+mirror+"/status", s.admin, nil).Want(200))
}

// content returns what an image holds.
func content(t *testing.T, c *cephtest.Cluster, volume string) []byte {
	t.Helper()
	return rbd(t, c, "export", c.Pool+"/"+volume, "-")
}

func TestAVolumeFailsOverAndBack(t *testing.T) {
	t.Parallel()
	s := twoSites(t)
	s.call("PUT", "/tenants/acme", s.admin, object{}).Want(200)
	const size = 16 * mib
	volume := s.done(s.call("POST", "/volumes", s.admin, object{
		"name": "data", "size_bytes": size, "policy": "east", "tenant_id": "acme",
	}), s.admin)
	native := "vol-" + volume
	first := fill(t, s.east, s.east.Pool+"/"+native, size)
	operator := s.token("otto", "operator", "acme")
	s.call("POST", "/volumes/"+volume+"/mirror?peer=none", s.admin, nil).Refused(400, "VALIDATION_ERROR", "peer")
	s.call("DELETE", "/volumes/"+volume+"/mirror", s.admin, nil).Refused(404, "NOT_FOUND", "")
	if id := s.done(s.ok("EnableMirror", "/volumes/"+volume+"/mirror?peer="+s.peer, nil, 202), s.admin); id == "" {
		t.Fatal("the job is about nothing")
	}
	s.call("POST", "/volumes/"+volume+"/mirror?peer="+s.peer, operator, nil).Refused(409, "CONFLICT", "")
	s.call("DELETE", "/volumes/"+volume, s.admin, nil).Refused(409, "CONFLICT", "")
	s.call("DELETE", "/dr/peers/"+s.peer, s.admin, nil).Refused(409, "CONFLICT", "")
	s.eventually("both sites have the volume", func() bool {
		m := s.mirrors()
		return m["west"].Role == "secondary" && m["east"].Role == "primary" && m["east"].LastSyncedAt != nil
	})
	m := s.mirrors()
	east, west := m["east"], m["west"]
	if east.Mode != "snapshot" || east.RpoSeconds != 900 || west.TenantId != "acme" || west.PeerId != s.peer || west.Image != native {
		t.Errorf("%+v, %+v", east, west)
	}
	copied := contracttest.As[storageapi.Volume](s.call("GET", "/volumes/"+west.VolumeId, operator, nil).Want(200))
	if copied.Name != "data-west" || !copied.Managed || copied.SizeBytes != size {
		t.Errorf("%+v", copied)
	}
	s.call("POST", "/volumes/"+west.VolumeId+"/snapshots", operator, object{"name": "one"}).Refused(409, "CONFLICT", "")
	s.call("POST", "/volumes/"+west.VolumeId+"/expand", operator, object{"new_size_bytes": 2 * size}).Refused(409, "CONFLICT", "")
	s.call("DELETE", "/volumes/"+west.VolumeId+"/mirror", s.admin, nil).Refused(409, "CONFLICT", "")
	s.call("GET", "/dr/mirrors/"+west.Id+"/status", s.token("bob", "admin", "other"), nil).Refused(404, "NOT_FOUND", "")

	// The copy is what the original was.
	if st := contracttest.As[storageapi.MirrorStatus](s.ok("GetMirrorStatus", "/dr/mirrors/"+west.Id+"/status", nil, 200)); st.PromoteReady ||
		!strings.Contains(st.PromoteBlocker, "primary at the other site") || st.LagSeconds == nil || len(st.Sites) == 0 {
		t.Errorf("%+v", st)
	}
	s.call("POST", "/dr/mirrors/"+west.Id+"/promote", s.admin, nil).Refused(409, "CONFLICT", "")
	s.call("POST", "/dr/mirrors/"+east.Id+"/promote", s.admin, nil).Refused(409, "CONFLICT", "")
	s.call("POST", "/dr/mirrors/"+east.Id+"/resync", s.admin, nil).Refused(409, "CONFLICT", "")
	s.call("POST", "/dr/mirrors/"+west.Id+"/demote", s.admin, nil).Refused(409, "CONFLICT", "")
	s.call("POST", "/dr/failover", s.admin, object{"mirror_id": east.Id, "confirm": true}).Refused(409, "CONFLICT", "")
	s.call("POST", "/dr/failover", s.admin, object{"mirror_id": west.Id}).Refused(400, "VALIDATION_ERROR", "confirm")
	s.done(s.ok("RehearseFailover", "/dr/mirrors/"+east.Id+"/rehearse", nil, 202), s.admin)
	for name, m := range s.mirrors() {
		if r := m.LastRehearsal; r == nil || !r.Ok || !strings.Contains(r.Detail, "are those of the original") || r.JobId == "" {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if left := rbd(t, s.west, "ls", s.west.Pool); strings.TrimSpace(string(left)) != native {
		t.Errorf("the rehearsal has left %s", left)
	}
	pre := contracttest.As[storageapi.DRPreflight](s.ok("GetDRPreflight", "/dr/preflight", nil, 200))
	if !pre.Ready || len(pre.Steps) == 0 {
		t.Errorf("%+v", pre)
	}
	if p := contracttest.As[storageapi.PoolMirroring](s.ok("GetPoolMirroring", "/dr/pools/"+s.east.Pool+"/mirroring?cluster=east", nil, 200)); p.Mode != "image" {
		t.Errorf("%+v", p)
	}
	s.call("GET", "/dr/pools/"+s.east.Pool+"/mirroring", s.admin, nil).Refused(400, "VALIDATION_ERROR", "cluster")
	s.call("GET", "/dr/pools/none/mirroring", s.admin, nil).Refused(404, "NOT_FOUND", "")
	s.call("PUT", "/dr/pools/"+s.east.Pool+"/mirroring?cluster=east", s.admin, object{"mode": "disabled"}).Refused(409, "CONFLICT", "")
	s.ok("SetPoolMirroring", "/dr/pools/"+s.east.Pool+"/mirroring?cluster=east", object{"mode": "image"}, 200)

	// Over.
	s.done(s.ok("FailOver", "/dr/failover", object{"mirror_id": west.Id, "confirm": true}, 202), s.admin)
	s.eventually("west is primary", func() bool {
		m := s.mirrors()
		return m["west"].Role == "primary" && m["east"].Role == "secondary"
	})
	if got := content(t, s.west, native); !bytes.Equal(got, first) {
		t.Error("the copy holds something else")
	}
	second := fill(t, s.west, s.west.Pool+"/"+native, size)
	s.ok("SetRPO", "/dr/mirrors/"+west.Id+"/rpo", object{"rpo_seconds": 1}, 200)
	s.eventually("east has what was written", func() bool { return s.mirrors()["east"].RpoSeconds == 1 && s.sent(west.Id) })

	// And back.
	s.done(s.call("POST", "/dr/failover", s.admin, object{"mirror_id": east.Id, "confirm": true}), s.admin)
	if got := content(t, s.east, native); !bytes.Equal(got, second) {
		t.Error("what came back holds something else")
	}

	// Step by step. Until west copies from east again, a demotion would leave no site that could take over.
	s.eventually("west copies from east", func() bool { return s.ready(east.Id) })
	s.done(s.ok("DemoteMirror", "/dr/mirrors/"+east.Id+"/demote", nil, 202), s.admin)
	s.eventually("west is ready", func() bool { return s.status(west.Id).PromoteReady })
	s.done(s.ok("PromoteMirror", "/dr/mirrors/"+west.Id+"/promote", nil, 202), s.admin)

	s.interrupted(west.Id, east.Id)

	// A split brain, and out of it.
	s.done(s.call("POST", "/dr/mirrors/"+east.Id+"/promote?force=1", s.admin, nil), s.admin)
	fill(t, s.east, s.east.Pool+"/"+native, size)
	if s.ready(east.Id) {
		t.Error("a failover would work in a split brain")
	}
	pre = contracttest.As[storageapi.DRPreflight](s.call("GET", "/dr/preflight?mirror_id="+east.Id, s.admin, nil).Want(200))
	if pre.Ready || len(pre.Steps) != 4 || s.status(east.Id).Health != "error" {
		t.Errorf("%+v", pre)
	}
	s.eventually("the lists show the split brain", func() bool {
		n := contracttest.As[storageapi.DRStatus](s.call("GET", "/dr/status", s.admin, nil).Want(200))
		return n.Error == 2
	})
	a := s.call("POST", "/dr/mirrors/"+east.Id+"/rehearse", s.admin, nil).Want(202)
	if j := s.job(contracttest.As[storageapi.MirrorAccepted](a).JobId, s.admin); j.Error == nil || !strings.Contains(j.Error.Message, "at both sites") {
		t.Errorf("%+v %+v", j, j.Error)
	}
	snapshot := s.done(s.call("POST", "/volumes/"+volume+"/snapshots", s.admin, object{"name": "theirs"}), s.admin)
	s.done(s.call("POST", "/dr/mirrors/"+east.Id+"/demote", s.admin, nil), s.admin)
	pre = contracttest.As[storageapi.DRPreflight](s.call("GET", "/dr/preflight?mirror_id="+east.Id, s.admin, nil).Want(200))
	if pre.Ready || len(pre.Steps) != 1 || !strings.Contains(pre.Steps[0].Command, "resync") {
		t.Errorf("%+v", pre)
	}
	s.done(s.ok("ResyncMirror", "/dr/mirrors/"+east.Id+"/resync", nil, 202), s.admin)
	s.call("GET", "/snapshots/"+snapshot, s.admin, nil).Refused(404, "NOT_FOUND", "")
	s.eventually("east has what west has", func() bool { return s.ready(east.Id) })
	s.done(s.call("POST", "/dr/failover", s.admin, object{"mirror_id": east.Id, "confirm": true}), s.admin)
	if got := content(t, s.east, native); !bytes.Equal(got, second) {
		t.Error("after the split brain, east holds something else than west")
	}
	n := contracttest.As[storageapi.DRStatus](s.ok("GetDRStatus", "/dr/status?cluster=east", nil, 200))
	if n.Peers != 1 || n.Mirrors != 1 || n.PeersUnreachable != 0 {
		t.Errorf("%+v", n)
	}
	s.ok("ListPeers", "/dr/peers?cluster=west", nil, 200)
	s.ok("ListMirrors", "/dr/mirrors?tenant=acme", nil, 200)

	s.eventually("west copies from east", func() bool { return s.ready(east.Id) })
	s.siteLost(east.Id, west.Id, native, second)
	s.done(s.ok("DisableMirror", "/volumes/"+volume+"/mirror", nil, 202), s.admin)
	s.eventually("the copy has gone", func() bool { return len(s.mirrors()) == 0 })
	s.call("GET", "/volumes/"+west.VolumeId, s.admin, nil).Refused(404, "NOT_FOUND", "")
	s.call("GET", "/volumes/"+volume, s.admin, nil).Want(200)
	s.ok("DeletePeer", "/dr/peers/"+s.peer, nil, 200)
}

// interrupted fails over from one mirror to the other, which does not get what it waits for: once the failover is
// cancelled, then the service ends in the middle of it. At the end, the first one is primary as before.
func (s *sites) interrupted(primary, secondary string) {
	s.Helper()
	begin := func() string {
		s.Helper()
		s.eventually("it copies", func() bool { return s.ready(primary) })
		s.east.PauseMirror(s.T)
		a := s.call("POST", "/dr/failover", s.admin, object{"mirror_id": secondary, "confirm": true}).Want(202)
		s.eventually("the one is demoted", func() bool { return s.status(primary).Role == "secondary" })
		return contracttest.As[storageapi.MirrorAccepted](a).JobId
	}
	id := begin()
	for _, mirror := range []string{primary, secondary} {
		s.call("POST", "/dr/mirrors/"+mirror+"/rehearse", s.admin, nil).Refused(409, "CONFLICT", "")
	}
	s.call("POST", "/jobs/"+id+"/cancel", s.admin, nil).Want(200)
	if j := s.job(id, s.admin); j.State != "failed" {
		s.Errorf("%+v", j)
	}
	if st := s.status(primary); st.Role != "primary" {
		s.Errorf("a failover that was cancelled left %+v: %s", st, s.call("GET", "/dr/mirrors", s.admin, nil).Body)
	}
	s.east.ResumeMirror(s.T)

	id = begin()
	s.stop()
	s.run()
	s.east.ResumeMirror(s.T)
	if j := s.job(id, s.admin); j.State != "succeeded" {
		s.Errorf("%+v %+v", j, j.Error)
	}
	if st := s.status(secondary); st.Role != "primary" {
		s.Errorf("a failover that was interrupted left %+v", st)
	}
	s.eventually("it copies back", func() bool { return s.ready(primary) })
	s.done(s.call("POST", "/dr/failover", s.admin, object{"mirror_id": primary, "confirm": true}), s.admin)
}

// siteLost has the primary site hang, and moves the work to the other one. When it is back, it gets what was written
// meanwhile, and the work.
func (s *sites) siteLost(primary, secondary, native string, content1 []byte) {
	s.Helper()
	for _, daemon := range []string{"ceph-mon", "ceph-osd"} {
		s.east.Signal(s.T, daemon, syscall.SIGSTOP)
	}
	body := object{"mirror_id": secondary, "confirm": true}
	s.call("POST", "/dr/failover", s.admin, body).Refused(409, "CONFLICT", "")
	pre := contracttest.As[storageapi.DRPreflight](s.call("GET", "/dr/preflight?mirror_id="+secondary, s.admin, nil).Want(200))
	if pre.Ready || len(pre.Steps) != 3 || !strings.Contains(pre.Steps[1].Command, "--force") {
		s.Errorf("%+v", pre)
	}
	body["force"] = true
	s.done(s.call("POST", "/dr/failover", s.admin, body), s.admin)
	if got := content(s.T, s.west, native); !bytes.Equal(got, content1) {
		s.Error("the copy of a site that is lost holds something else")
	}
	for _, daemon := range []string{"ceph-mon", "ceph-osd"} {
		s.east.Signal(s.T, daemon, syscall.SIGCONT)
	}
	var demotion answer
	s.eventually("the site is back", func() bool {
		demotion = s.call("POST", "/dr/mirrors/"+primary+"/demote", s.admin, nil)
		return demotion.Status == 202
	})
	s.done(demotion, s.admin)
	s.done(s.call("POST", "/dr/mirrors/"+primary+"/resync", s.admin, nil), s.admin)
	s.eventually("it is a copy", func() bool { return s.ready(primary) })
	s.done(s.call("POST", "/dr/failover", s.admin, object{"mirror_id": primary, "confirm": true}), s.admin)
	s.eventually("it is followed", func() bool { return s.ready(primary) })
}

// sent reports whether the other site has the newest of a mirror that is primary.
func (s *sites) sent(mirror string) bool {
	s.Helper()
	at := s.status(mirror).LastSyncedAt
	return at != nil && time.Since(*at) < 3*time.Second
}

// ready reports whether the site of a mirror could take over.
func (s *sites) ready(mirror string) bool {
	s.Helper()
	p := contracttest.As[storageapi.DRPreflight](s.call("GET", "/dr/preflight?mirror_id="+mirror, s.admin, nil).Want(200))
	return p.Ready
}
