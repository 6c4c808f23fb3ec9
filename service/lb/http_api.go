package lb

import (
	"context"
	"net/netip"
	"slices"
	"strconv"
	"time"

	lbapi "github.com/mainstay-infra/mainstay/api/lb"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/kit/series"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
	"github.com/mainstay-infra/mainstay/service/lb/datapath"
)

// api translates between the contract and the controller. It contains no logic of its own.
type api struct {
	c *controller
	s *Service
}

var _ lbapi.Server = api{}

// ListVIPs lists the VIPs.
func (a api) ListVIPs(context.Context, lbapi.ListVIPsRequestObject) (lbapi.ListVIPsResponseObject, error) {
	return lbapi.ListVIPs200JSONResponse(a.vips()), nil
}

// GetStatus returns the VIP of a node that has exactly one.
func (a api) GetStatus(context.Context, lbapi.GetStatusRequestObject) (lbapi.GetStatusResponseObject, error) {
	vips := a.vips()
	if len(vips) != 1 {
		return nil, fault.New(fault.Conflict, "this node has %d VIPs; ask for /api/v1/vips", len(vips)).WithCode(
			"not_one_vip",
		)
	}
	return lbapi.GetStatus200JSONResponse(vips[0]), nil
}

func (a api) vips() []lbapi.VIP {
	s := a.c.snapshot()
	sums := s.perBackend()
	var dropped uint64
	for _, n := range s.counters.Drops {
		dropped += n
	}
	announced := carried(s.announced, s.cfg.BGP)
	communities, peers := []string{}, []string{}
	if b := s.cfg.BGP; b != nil {
		for _, c := range b.Communities {
			communities = append(communities, c.String())
		}
		for _, p := range b.Peers {
			peers = append(peers, p.Address.String())
		}
	}
	vips := make([]lbapi.VIP, len(s.plan))
	for i := range s.plan {
		v := &s.plan[i]
		n := s.counters.VIPs[v.VIPKey]
		vips[i] = lbapi.VIP{
			Name:               v.VIPKey.String(),
			VipAddress:         v.Address.String(),
			VipPort:            int(v.Port),
			Protocol:           lbapi.VIPProtocol(v.Protocol.String()),
			Mode:               lbapi.VIPMode(v.Mode.String()),
			Interface:          s.cfg.Interface,
			StartedAt:          a.s.startedAt,
			Packets:            number(n.Packets),
			Bytes:              number(n.Bytes),
			Flows:              number(n.Flows),
			Dropped:            number(dropped),
			DroppedRateLimited: number(n.DroppedRateLimited),
			DroppedNoBackend:   number(n.DroppedNoBackend),
			Unserved:           number(n.Unserved),
			Announced:          slices.Contains(announced, v.Address),
			BgpCommunities:     communities,
			BgpPeers:           peers,
			Backends:           make([]lbapi.Backend, len(v.backends)),
		}
		if v.IsRange() {
			last := int(v.LastPort)
			vips[i].VipPortEnd = &last
		}
		for j := range v.backends {
			vips[i].Backends[j] = apiBackend(v, j, sums)
		}
	}
	return vips
}

func apiBackend(v *planned, i int, sums map[datapath.BackendKey]datapath.BackendCounters) lbapi.Backend {
	b, row := v.VIP.Backends[i], v.backends[i]
	sum := sums[b.BackendKey]
	return lbapi.Backend{
		Id:               row.id,
		Address:          b.Address.String(),
		Port:             int(b.Port),
		Weight:           int(b.Weight),
		WeightOverridden: row.overridden,
		Healthy:          row.healthy,
		State:            lbapi.BackendState(b.State.String()),
		AdminDraining:    row.drained,
		Detail:           row.detail,
		Packets:          number(sum.Packets),
		Bytes:            number(sum.Bytes),
	}
}

// number converts a counter to the signed 64 bits of the contract.
func number(n uint64) int64 { return int64(n & (1<<63 - 1)) } //nolint:gosec // it has 63 bits

// ListBackends lists all backends of all VIPs.
func (a api) ListBackends(context.Context, lbapi.ListBackendsRequestObject) (lbapi.ListBackendsResponseObject, error) {
	return lbapi.ListBackends200JSONResponse(a.rows(0)), nil
}

// rows returns the rows of one backend, or of all backends if id is 0.
func (a api) rows(id int) []lbapi.BackendRow {
	s := a.c.snapshot()
	sums := s.perBackend()
	rows := []lbapi.BackendRow{}
	for i := range s.plan {
		v := &s.plan[i]
		for j := range v.backends {
			if id != 0 && v.backends[j].id != id {
				continue
			}
			b := apiBackend(v, j, sums)
			rows = append(rows, lbapi.BackendRow{
				Vip:              v.VIPKey.String(),
				Id:               b.Id,
				Address:          b.Address,
				Port:             b.Port,
				Weight:           b.Weight,
				WeightOverridden: b.WeightOverridden,
				Healthy:          b.Healthy,
				State:            b.State,
				AdminDraining:    b.AdminDraining,
				Detail:           b.Detail,
				Packets:          b.Packets,
				Bytes:            b.Bytes,
			})
		}
	}
	return rows
}

// backendID parses an ID from the path. Text that is not an ID is treated as an unknown ID.
func backendID(text string) (int, error) {
	id, err := strconv.Atoi(text)
	if err != nil || id < 1 || strconv.Itoa(id) != text { // refuse 01 and +1 too
		return 0, fault.New(fault.NotFound, "no backend has the id %q", text)
	}
	return id, nil
}

func (a api) drain(ctx context.Context, text string, on bool) ([]lbapi.BackendRow, error) {
	id, err := backendID(text)
	if err != nil {
		return nil, err
	}
	if err := a.c.drain(ctx, id, on); err != nil {
		return nil, err
	}
	return a.rows(id), nil
}

// DrainBackend starts an operator's drain of a backend.
func (a api) DrainBackend(
	ctx context.Context, req lbapi.DrainBackendRequestObject,
) (lbapi.DrainBackendResponseObject, error) {
	rows, err := a.drain(ctx, req.Id, true)
	return lbapi.DrainBackend200JSONResponse(rows), err
}

// UndrainBackend ends an operator's drain.
func (a api) UndrainBackend(
	ctx context.Context, req lbapi.UndrainBackendRequestObject,
) (lbapi.UndrainBackendResponseObject, error) {
	rows, err := a.drain(ctx, req.Id, false)
	return lbapi.UndrainBackend200JSONResponse(rows), err
}

// SetWeight overrides the weight of a backend.
func (a api) SetWeight(ctx context.Context, req lbapi.SetWeightRequestObject) (lbapi.SetWeightResponseObject, error) {
	id, err := backendID(req.Id)
	if err != nil {
		return nil, err
	}
	vip := ""
	if req.Body.Vip != nil {
		if vip = *req.Body.Vip; vip == "" {
			return nil, fault.InvalidField("vip", "is empty; leave it out for all VIPs")
		}
	}
	if err := a.c.setWeight(
		ctx, id, uint16(req.Body.Weight), vip,
	); err != nil { //nolint:gosec // the contract bounds it
		return nil, err
	}
	return lbapi.SetWeight200JSONResponse(a.rows(id)), nil
}

// GetNode describes the node.
func (a api) GetNode(context.Context, lbapi.GetNodeRequestObject) (lbapi.GetNodeResponseObject, error) {
	s := a.c.snapshot()
	out := lbapi.GetNode200JSONResponse{
		Interface:         s.cfg.Interface,
		BackendInterfaces: append([]string{}, s.cfg.BackendInterfaces...),
		XdpMode:           lbapi.NodeXdpMode(s.cfg.XDPMode),
		Attached:          s.attached != "",
		XdpModeAttached:   s.attached,
		Version:           telemetry.BuildInfo().Version,
		StartedAt:         a.s.startedAt,
		NotReady:          a.c.notReady(),
		Insecure:          a.s.insecure(),
		Drops:             map[string]int64{},
		Flows: lbapi.FlowTable{
			Entries:     number(s.counters.Flows),
			Evictions:   number(s.counters.Evictions),
			LostReplies: number(s.counters.LostReplies),
		},
		Bgp:                []lbapi.BGPSession{},
		OrchestratorDrains: []lbapi.OrchestratorDrain{},
	}
	loadedAt, err, errAt := a.s.document.state()
	out.Config = lbapi.ConfigState{Path: a.s.document.path, LoadedAt: loadedAt}
	if err != nil {
		out.Config.Error, out.Config.ErrorAt = err.Error(), &errAt
	}
	for reason, n := range s.counters.Drops {
		out.Drops[reason] = number(n)
	}
	for _, session := range s.sessions {
		out.Bgp = append(out.Bgp, lbapi.BGPSession{
			Peer:   session.Peer.String(),
			Asn:    int64(session.ASN),
			State:  lbapi.BGPSessionState(session.State),
			Since:  session.Since,
			Reason: session.Reason,
		})
	}
	for _, d := range s.orchestrated {
		out.OrchestratorDrains = append(
			out.OrchestratorDrains, lbapi.OrchestratorDrain{Source: d.source, Backends: d.backends},
		)
	}
	return out, nil
}

// The defaults of GetHistory.
const (
	usualHistory       = time.Hour
	usualHistoryPoints = 120
)

// GetHistory returns the traffic of the node or of one of its VIPs.
func (a api) GetHistory(_ context.Context, req lbapi.GetHistoryRequestObject) (lbapi.GetHistoryResponseObject, error) {
	q, now := req.Params, a.s.history.now()
	since, points := now.Add(-usualHistory), usualHistoryPoints
	if q.Since != nil {
		since = *q.Since
	}
	if q.Points != nil {
		points = *q.Points
	}
	var vip datapath.VIPKey
	if q.Vip != nil {
		s, _ := a.c.inputs()
		i := slices.IndexFunc(s.plan, func(p planned) bool { return p.VIPKey.String() == *q.Vip })
		if i < 0 {
			return nil, fault.New(fault.NotFound, "this node has no VIP %s", *q.Vip).WithCode("vip_not_found")
		}
		vip = s.plan[i].VIPKey
	}
	w, err := series.NewWindow(since, now, points)
	if err != nil {
		return nil, err
	}
	return lbapi.GetHistory200JSONResponse{
		Now:         now,
		From:        w.From,
		To:          w.To,
		StepSeconds: int(w.Step.Seconds()),
		Points: list.Each(a.s.history.read(vip, w), func(p historyPoint) lbapi.HistoryPoint {
			return lbapi.HistoryPoint{At: p.at, Packets: p.packets, Bytes: p.bytes, Flows: p.flows, Dropped: p.dropped}
		}),
	}, nil
}

// Explain returns the backend that a packet would get, and why.
func (a api) Explain(_ context.Context, req lbapi.ExplainRequestObject) (lbapi.ExplainResponseObject, error) {
	client, err := netip.ParseAddrPort(req.Params.Client)
	if err != nil || client.Addr().Zone() != "" {
		return nil, fault.InvalidField(
			"client", "must be ADDRESS:PORT, as in 198.51.100.7:40000 or [2001:db8::7]:40000",
		)
	}
	address, port, protocol, err := datapath.ParseVIPName(req.Params.Vip)
	if err != nil {
		return nil, fault.InvalidField("vip", "%s", fault.From(err).Message)
	}
	client = netip.AddrPortFrom(client.Addr().Unmap(), client.Port())
	if client.Addr().Is4() != address.Is4() {
		return nil, fault.InvalidField("client", "must be of the VIP's family")
	}
	e, err := a.c.explain(datapath.Flow{Protocol: protocol, Client: client, VIP: netip.AddrPortFrom(address, port)})
	if err != nil {
		return nil, err
	}
	out := lbapi.Explain200JSONResponse{
		Reason:  lbapi.ExplanationReason(e.Reason),
		Slot:    e.Slot,
		Slots:   e.Slots,
		Backend: backendText(e.Backend),
		Hashed:  backendText(e.Hashed),
	}
	if e.Reason != datapath.NoVIP {
		out.Vip = e.VIP.String()
	}
	return out, nil
}

func backendText(b datapath.BackendKey) string {
	if !b.Address.IsValid() {
		return ""
	}
	return b.String()
}
