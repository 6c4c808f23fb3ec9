package httpapi

import (
	"context"
	"time"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/dr"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/record"
)

// apiPeer returns a peer, without what only those need to know who see all tenants.
func apiPeer(ctx context.Context, p record.Peer) storageapi.Peer {
	out := storageapi.Peer{
		Id: p.ID, Name: p.Name, ClusterId: p.ClusterID, RemoteClusterId: p.RemoteID, RemoteFsid: p.FSID,
		Direction: storageapi.PeerDirectionRxTx, State: storageapi.PeerState(p.State), CreatedAt: p.CreatedAt.Time,
	}
	if caller.From(ctx).SeesAll() {
		out.SecretRef, out.LastError = p.SecretRef, p.LastError
	}
	if p.OneWay {
		out.Direction = storageapi.PeerDirectionRxOnly
	}
	return out
}

// ListPeers lists the clusters that volumes can be mirrored to.
func (a *API) ListPeers(
	ctx context.Context, req storageapi.ListPeersRequestObject,
) (storageapi.ListPeersResponseObject, error) {
	cluster, err := a.clusterOf(ctx, req.Params.Cluster)
	if err != nil {
		return nil, err
	}
	out, link, err := list.Rows(ctx, req.Params.Limit, req.Params.Cursor, 100,
		func(before string, limit int) ([]record.Peer, error) {
			return a.store.Peers(ctx, cluster, before, limit)
		},
		func(p record.Peer) string { return p.ID },
		func(p record.Peer) storageapi.Peer { return apiPeer(ctx, p) })
	return storageapi.ListPeers200JSONResponse{
		Body: out, Headers: storageapi.ListPeers200ResponseHeaders{Link: link},
	}, err
}

// CreatePeer registers a cluster that volumes can be mirrored to.
func (a *API) CreatePeer(
	ctx context.Context, req storageapi.CreatePeerRequestObject,
) (storageapi.CreatePeerResponseObject, error) {
	cluster, err := a.clusterOf(ctx, req.Params.Cluster)
	if err != nil {
		return nil, err
	}
	p := record.Peer{
		Name: req.Body.Name, ClusterID: cluster, SecretRef: req.Body.SecretRef,
		OneWay: value(req.Body.Direction) == storageapi.PeerDirectionRxOnly,
	}
	if req.Body.RemoteCluster != nil {
		remote, err := a.store.ClusterNamed(ctx, *req.Body.RemoteCluster)
		if fault.Is(err, fault.NotFound) {
			err = fault.InvalidField("remote_cluster", "there is no cluster %s", *req.Body.RemoteCluster)
		}
		if err != nil {
			return nil, err
		}
		p.RemoteID = remote.ID
	}
	p, err = a.dr.AddPeer(ctx, p)
	return storageapi.CreatePeer201JSONResponse(apiPeer(ctx, p)), err
}

// DeletePeer removes a peer that no mirror uses.
func (a *API) DeletePeer(
	ctx context.Context, req storageapi.DeletePeerRequestObject,
) (storageapi.DeletePeerResponseObject, error) {
	p, err := a.store.DeletePeer(ctx, req.Id)
	return storageapi.DeletePeer200JSONResponse(apiPeer(ctx, p)), err
}

// age returns how old something is, in seconds; nil: not known.
func (a *API) age(at time.Time) *int64 {
	if at.IsZero() {
		return nil
	}
	return new(max(0, int64(a.cfg.Now().Sub(at)/time.Second)))
}

// moment returns a time, or nil if it is zero.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func (a *API) apiMirror(m record.ShownMirror) storageapi.Mirror {
	out := storageapi.Mirror{
		Id: m.ID, VolumeId: m.VolumeID, TenantId: m.Tenant, ClusterId: m.ClusterID, Pool: m.Pool, Image: m.Image,
		PeerId: m.PeerID, Mode: storageapi.MirrorMode(m.Mode), State: storageapi.MirrorState(m.State),
		Role: storageapi.MirrorRole(m.Role), RpoSeconds: m.RPO, LagSeconds: a.age(m.SyncedAt.Time),
		LastSyncedAt: moment(m.SyncedAt.Time), LastError: m.LastError, CreatedAt: m.CreatedAt.Time,
	}
	if r := m.Rehearsal.V; !r.At.IsZero() {
		out.LastRehearsal = &storageapi.Rehearsal{Ok: r.OK, Detail: r.Detail, At: r.At, JobId: r.JobID}
	}
	return out
}

// ListMirrors lists mirrors.
func (a *API) ListMirrors(
	ctx context.Context, req storageapi.ListMirrorsRequestObject,
) (storageapi.ListMirrorsResponseObject, error) {
	q := req.Params
	tenant, err := tenantFilter(ctx, q.Tenant)
	if err != nil {
		return nil, err
	}
	cluster, err := a.clusterOf(ctx, q.Cluster)
	if err != nil {
		return nil, err
	}
	f := record.MirrorFilter{Tenant: tenant, Cluster: cluster}
	out, link, err := list.Rows(ctx, q.Limit, q.Cursor, 100,
		func(before string, limit int) ([]record.ShownMirror, error) {
			f.Before = before
			return a.store.ShownMirrors(ctx, f, limit)
		},
		func(m record.ShownMirror) string { return m.ID }, a.apiMirror)
	return storageapi.ListMirrors200JSONResponse{
		Body: out, Headers: storageapi.ListMirrors200ResponseHeaders{Link: link},
	}, err
}

// GetMirrorStatus asks both sites of a mirror.
func (a *API) GetMirrorStatus(
	ctx context.Context, req storageapi.GetMirrorStatusRequestObject,
) (storageapi.GetMirrorStatusResponseObject, error) {
	m, err := a.store.Mirror(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	v, err := a.dr.Look(ctx, &m)
	if err != nil {
		return nil, err
	}
	at := v.SyncedNow()
	out := storageapi.GetMirrorStatus200JSONResponse{
		MirrorId: m.ID, Role: storageapi.MirrorRoleSecondary, Health: storageapi.Condition(v.Condition()),
		LagSeconds: a.age(at), LastSyncedAt: moment(at), PromoteBlocker: dr.PromoteBlocker(v, false, false),
		Sites:                []storageapi.MirrorSite{},
		JournalPeersReplayed: v.Replayed(),
	}
	out.PromoteReady = out.PromoteBlocker == ""
	switch {
	case v.Missing:
		out.Role = storageapi.MirrorRoleUnknown
	case v.Here.Primary:
		out.Role = storageapi.MirrorRolePrimary
	}
	for _, here := range []bool{true, false} {
		for _, s := range v.Here.Sites {
			if s.Here == here {
				out.Sites = append(out.Sites, storageapi.MirrorSite{
					Name: s.Name, Up: s.Up, State: s.State, Description: s.Description, UpdatedAt: moment(s.UpdatedAt),
				})
			}
		}
	}
	return out, nil
}

// onMirror begins a job about a mirror, or about the mirror of a volume.
func (a *API) onMirror(
	ctx context.Context, key *string, what, id string, request any,
	begin func(ctx context.Context) (record.Mirror, record.Job, error),
) (storageapi.MirrorAccepted, error) {
	j, err := a.once(ctx, key, what+" "+id, request, func(ctx context.Context) (record.Job, error) {
		return begun(begin(ctx))
	})
	if err != nil {
		return storageapi.MirrorAccepted{}, err
	}
	out := storageapi.MirrorAccepted{
		JobId: j.ID, State: stateOf(&j), Links: links(&j), Resource: storageapi.MirrorRef{MirrorId: j.ResourceID},
	}
	m, err := a.store.Mirror(ctx, j.ResourceID)
	if fault.Is(err, fault.NotFound) { // it was disabled meanwhile
		return out, nil
	}
	out.Resource.VolumeId, out.Resource.ClusterId = m.VolumeID, m.ClusterID
	return out, err
}

// EnableMirror begins to mirror a volume.
func (a *API) EnableMirror(
	ctx context.Context, req storageapi.EnableMirrorRequestObject,
) (storageapi.EnableMirrorResponseObject, error) {
	p := req.Params
	mode := driver.MirrorMode(orElse(p.Mode, storageapi.MirrorMode(driver.BySnapshots)))
	out, err := a.onMirror(ctx, p.IdempotencyKey, record.JobEnableMirror, req.Id, []string{p.Peer, string(mode)},
		func(ctx context.Context) (record.Mirror, record.Job, error) {
			return a.dr.Enable(ctx, req.Id, p.Peer, mode)
		})
	return storageapi.EnableMirror202JSONResponse(out), err
}

// DisableMirror begins to end the mirroring of a volume.
func (a *API) DisableMirror(
	ctx context.Context, req storageapi.DisableMirrorRequestObject,
) (storageapi.DisableMirrorResponseObject, error) {
	out, err := a.onMirror(ctx, req.Params.IdempotencyKey, record.JobDisableMirror, req.Id, nil,
		func(ctx context.Context) (record.Mirror, record.Job, error) { return a.dr.Disable(ctx, req.Id) })
	return storageapi.DisableMirror202JSONResponse(out), err
}

// PromoteMirror begins to make a volume the one that is written to.
func (a *API) PromoteMirror(
	ctx context.Context, req storageapi.PromoteMirrorRequestObject,
) (storageapi.PromoteMirrorResponseObject, error) {
	args := record.MirrorArgs{ID: req.Id, Force: value(req.Params.Force), Replayed: value(req.Params.PeerReplayed)}
	out, err := a.onMirror(ctx, req.Params.IdempotencyKey, record.JobPromote, req.Id, args,
		func(ctx context.Context) (record.Mirror, record.Job, error) { return a.dr.Promote(ctx, args) })
	return storageapi.PromoteMirror202JSONResponse(out), err
}

// DemoteMirror begins to make a volume a copy.
func (a *API) DemoteMirror(
	ctx context.Context, req storageapi.DemoteMirrorRequestObject,
) (storageapi.DemoteMirrorResponseObject, error) {
	out, err := a.onMirror(ctx, req.Params.IdempotencyKey, record.JobDemote, req.Id, nil,
		func(ctx context.Context) (record.Mirror, record.Job, error) { return a.dr.Demote(ctx, req.Id) })
	return storageapi.DemoteMirror202JSONResponse(out), err
}

// ResyncMirror begins to copy a volume again.
func (a *API) ResyncMirror(
	ctx context.Context, req storageapi.ResyncMirrorRequestObject,
) (storageapi.ResyncMirrorResponseObject, error) {
	out, err := a.onMirror(ctx, req.Params.IdempotencyKey, record.JobResync, req.Id, nil,
		func(ctx context.Context) (record.Mirror, record.Job, error) { return a.dr.Resync(ctx, req.Id) })
	return storageapi.ResyncMirror202JSONResponse(out), err
}

// RehearseFailover begins to read the copy of a volume.
func (a *API) RehearseFailover(
	ctx context.Context, req storageapi.RehearseFailoverRequestObject,
) (storageapi.RehearseFailoverResponseObject, error) {
	out, err := a.onMirror(ctx, req.Params.IdempotencyKey, record.JobRehearse, req.Id, nil,
		func(ctx context.Context) (record.Mirror, record.Job, error) { return a.dr.Rehearse(ctx, req.Id) })
	return storageapi.RehearseFailover202JSONResponse(out), err
}

// FailOver begins to move the work of a volume to the site of a mirror.
func (a *API) FailOver(
	ctx context.Context, req storageapi.FailOverRequestObject,
) (storageapi.FailOverResponseObject, error) {
	b := req.Body
	args := record.MirrorArgs{ID: b.MirrorId, Force: value(b.Force), Replayed: value(b.PeerReplayed)}
	out, err := a.onMirror(ctx, req.Params.IdempotencyKey, record.JobFailover, b.MirrorId, args,
		func(ctx context.Context) (record.Mirror, record.Job, error) { return a.dr.FailOver(ctx, args) })
	return storageapi.FailOver202JSONResponse(out), err
}

// SetRPO stores how old the copy of a volume may be.
func (a *API) SetRPO(ctx context.Context, req storageapi.SetRPORequestObject) (storageapi.SetRPOResponseObject, error) {
	m, err := a.store.SetRPO(ctx, req.Id, req.Body.RpoSeconds)
	if err != nil {
		return nil, err
	}
	named, err := a.store.ShownMirror(ctx, m)
	return storageapi.SetRPO200JSONResponse(a.apiMirror(named)), err
}

// GetDRStatus counts mirrors.
func (a *API) GetDRStatus(
	ctx context.Context, req storageapi.GetDRStatusRequestObject,
) (storageapi.GetDRStatusResponseObject, error) {
	cluster, err := a.clusterOf(ctx, req.Params.Cluster)
	if err != nil {
		return nil, err
	}
	t, err := a.store.CountMirrors(ctx, cluster)
	if err != nil {
		return nil, err
	}
	peers, silent, err := a.store.CountPeers(ctx, cluster)
	return storageapi.GetDRStatus200JSONResponse{
		Peers: int(peers), PeersUnreachable: int(silent), Mirrors: int(t.Mirrors), Primary: int(t.Primary),
		Secondary: int(t.Secondary), Ok: int(t.OK), Warning: int(t.Warning), Error: int(t.Failing),
		Unknown: int(t.Mirrors - t.OK - t.Warning - t.Failing), RpoBreaches: int(t.Breaches),
		WorstLagSeconds: a.age(t.Oldest.Time),
	}, err
}

// GetDRPreflight says whether a failover would work, and what to do.
func (a *API) GetDRPreflight(
	ctx context.Context, req storageapi.GetDRPreflightRequestObject,
) (storageapi.GetDRPreflightResponseObject, error) {
	cluster, err := a.clusterOf(ctx, req.Params.Cluster)
	if err != nil {
		return nil, err
	}
	p, err := a.dr.Preflight(ctx, record.MirrorFilter{Cluster: cluster}, value(req.Params.MirrorId))
	out := storageapi.GetDRPreflight200JSONResponse{
		Ready: err == nil, Checks: []storageapi.Check{}, Blockers: []string{}, Steps: []storageapi.DRStep{},
	}
	for _, c := range p.Checks {
		out.Checks = append(out.Checks, storageapi.Check{Name: c.Name, Ok: c.OK, Detail: c.Detail})
		if !c.OK {
			out.Ready = false
			out.Blockers = append(out.Blockers, c.Name+": "+c.Detail)
		}
	}
	for _, s := range p.Steps {
		out.Steps = append(out.Steps, storageapi.DRStep{
			MirrorId: s.MirrorID, Title: s.Title, Detail: s.Detail, Command: s.Command,
		})
	}
	return out, err
}

// GetPoolMirroring returns which images of a pool are mirrored.
func (a *API) GetPoolMirroring(
	ctx context.Context, req storageapi.GetPoolMirroringRequestObject,
) (storageapi.GetPoolMirroringResponseObject, error) {
	out, err := a.poolMirroring(ctx, req.Params.Cluster, req.Pool, "")
	return storageapi.GetPoolMirroring200JSONResponse(out), err
}

// SetPoolMirroring changes which images of a pool are mirrored.
func (a *API) SetPoolMirroring(
	ctx context.Context, req storageapi.SetPoolMirroringRequestObject,
) (storageapi.SetPoolMirroringResponseObject, error) {
	out, err := a.poolMirroring(ctx, req.Params.Cluster, req.Pool, driver.MirrorScope(req.Body.Mode))
	return storageapi.SetPoolMirroring200JSONResponse(out), err
}

// poolMirroring returns which images of a pool are mirrored, after a change unless scope is empty.
func (a *API) poolMirroring(
	ctx context.Context, of *string, pool string, scope driver.MirrorScope,
) (out storageapi.PoolMirroring, err error) {
	cluster, err := a.clusterOf(ctx, of)
	if err != nil {
		return out, err
	}
	place, err := a.store.PoolNamed(ctx, cluster, pool)
	if err != nil {
		return out, err
	}
	now, err := a.dr.PoolScope(ctx, &place, scope)
	return storageapi.PoolMirroring{
		ClusterId: place.Cluster.ID, Pool: pool, Mode: storageapi.PoolMirroringMode(now),
	}, err
}
