package fleet

import (
	"context"
	"encoding/json"
	"net/http"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/fanout"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

const (
	pageSize = 500
	maxPage  = 16 << 20  // bytes
	maxList  = 256 << 20 // bytes of all pages of one list
	// The maximum length of nodes' cursors, as in the contract.
	maxCursor = 512
	// maxAsked is the maximum number of nodes that are asked concurrently.
	maxAsked = 256
)

// unreachableNode is an entry of FleetVMs.UnreachableNodes, as generated.
type unreachableNode = struct {
	Node   string `json:"node"`
	Reason string `json:"reason"`
}

// VMs lists the VMs of all nodes, for one tenant or, if that is empty, for all. Nodes are asked
// concurrently. A node that does not answer completely and in time is listed with the reason: a
// list has all VMs of a node or none.
func (r *Registry) VMs(ctx context.Context, tenant string) (hypervisorapi.FleetVMs, error) {
	list := hypervisorapi.FleetVMs{Items: []hypervisorapi.FleetVM{}, UnreachableNodes: []unreachableNode{}}
	rows, err := nodeRows(ctx, r.cfg.DB, "")
	if err != nil {
		return list, err
	}
	peers := make([]fanout.Peer[hypervisorapi.FleetVM], len(rows))
	for i := range rows {
		row := &rows[i]
		peers[i] = fanout.Peer[hypervisorapi.FleetVM]{
			Name: row.Name, Deadline: r.cfg.Deadline,
			Ask: func(ctx context.Context, of *fanout.Share) ([]hypervisorapi.FleetVM, error) {
				return r.list(ctx, row, tenant, of)
			},
		}
		switch silence := r.silence(row); {
		case r.healthy(row):
		case silence > goneIntervals*r.cfg.Interval:
			peers[i].Ask = func(context.Context, *fanout.Share) ([]hypervisorapi.FleetVM, error) {
				return nil, garbage(r.silent(row))
			}
		default:
			peers[i].Deadline /= 3
		}
	}
	vms, missing, err := fanout.Ask(ctx, peers, fanout.Options{AtOnce: maxAsked, Budget: newBudget(), Log: r.cfg.Log})
	list.Items = append(list.Items, vms...)
	for _, m := range missing {
		list.UnreachableNodes = append(list.UnreachableNodes, unreachableNode{m.Name, explain(m.Err)})
	}
	return list, err
}

// NodeVMs lists the VMs of one node, for one tenant or, if that is empty, for all.
func (r *Registry) NodeVMs(ctx context.Context, name, tenant string) ([]hypervisorapi.FleetVM, error) {
	row, err := findNode(ctx, r.cfg.DB, name)
	if err != nil {
		return nil, unknownNode(err, name)
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Deadline)
	defer cancel()
	vms, err := r.list(ctx, &row, tenant, newBudget().Of())
	if err != nil {
		return nil, unreachable(name, explain(err), err)
	}
	return vms, nil
}

// newBudget returns the total budget for all responses of one list.
func newBudget() *fanout.Budget { return fanout.NewBudget(MaxVMs, maxList) }

// list reads all pages of a node.
func (r *Registry) list(
	ctx context.Context, row *nodeRow, tenant string, of *fanout.Share,
) ([]hypervisorapi.FleetVM, error) {
	p, err := r.peer(row)
	if err != nil {
		return nil, err
	}
	limit := pageSize
	params := hypervisorapi.ListVMsParams{Limit: &limit}
	if tenant != "" {
		params.Tenant = &tenant
	}
	vms := []hypervisorapi.FleetVM{}
	for {
		page, next, err := p.page(ctx, &params, of)
		if err != nil {
			return nil, err
		}
		for i := range page {
			if err := p.adopt(&page[i], tenant); err != nil {
				return nil, err
			}
		}
		vms = append(vms, page...)
		if next == "" {
			return vms, nil
		}
		if len(page) == 0 || len(next) > maxCursor || params.Cursor != nil && *params.Cursor == next {
			return nil, garbage("its list has no end")
		}
		params.Cursor = &next
	}
}

// page reads one page and returns it with the cursor of the next.
func (p peer) page(
	ctx context.Context, params *hypervisorapi.ListVMsParams, of *fanout.Share,
) ([]hypervisorapi.FleetVM, string, error) {
	res, err := p.api.ListVMs(ctx, params)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, "", readRefusal(res)
	}
	body, err := readAll(of.Reader(res.Body), maxPage)
	if err != nil {
		return nil, "", err
	}
	var vms []hypervisorapi.FleetVM
	if err := json.Unmarshal(body, &vms); err != nil || vms == nil || len(vms) > pageSize {
		return nil, "", garbage("its answer is not in the form of a daemon's")
	}
	if err := of.Take(len(vms)); err != nil {
		return nil, "", err
	}
	return vms, rest.NextCursor(res.Header), nil
}
