package fleet

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/rest"
	"github.com/mainstay-infra/mainstay/kit/routine"
)

const (
	pageSize = 500
	maxPage  = 16 << 20  // bytes
	maxList  = 256 << 20 // bytes of all pages of one list
	// The cursors that nodes give out are at most this long, as in the contract.
	maxCursor = 512
)

// unreachableNode is an entry of FleetVMs.UnreachableNodes, as it is generated.
type unreachableNode = struct {
	Node   string `json:"node"`
	Reason string `json:"reason"`
}

// VMs are the VMs of all nodes, of one tenant or, where that is empty, of all. Nodes are
// asked at the same time, and those that do not answer whole and in time are told with the
// reason: a list has all VMs of a node or none.
func (r *Registry) VMs(ctx context.Context, tenant string) (hypervisorapi.FleetVMs, error) {
	list := hypervisorapi.FleetVMs{Items: []hypervisorapi.FleetVM{}, UnreachableNodes: []unreachableNode{}}
	rows, err := nodeRows(ctx, r.cfg.DB, "")
	if err != nil {
		return list, err
	}
	answers := make([][]hypervisorapi.FleetVM, len(rows))
	reasons := make([]string, len(rows))
	var budget budget
	var asked sync.WaitGroup
	for i := range rows {
		reasons[i] = "asking it broke; see the registry's log" // unless it is asked
		asked.Go(func() {
			_ = routine.Run(r.cfg.Log, "fleet list", func() { // logged
				answers[i], reasons[i] = r.askFor(ctx, &rows[i], tenant, &budget)
			})
		})
	}
	asked.Wait()
	if err := ctx.Err(); err != nil {
		return list, err
	}
	for i := range rows {
		list.Items = append(list.Items, answers[i]...)
		if reasons[i] != "" {
			list.UnreachableNodes = append(list.UnreachableNodes, unreachableNode{rows[i].Name, reasons[i]})
		}
	}
	return list, nil
}

// askFor asks a node for its VMs, or tells why it has no answer.
func (r *Registry) askFor(
	ctx context.Context, row *nodeRow, tenant string, budget *budget,
) (vms []hypervisorapi.FleetVM, reason string) {
	deadline := r.cfg.Deadline
	switch silence := r.silence(row); {
	case r.healthy(row):
	case silence > goneIntervals*r.cfg.Interval:
		return nil, r.silent(row)
	default:
		deadline /= 3
	}
	vms, err := r.list(ctx, row, tenant, deadline, budget)
	if err != nil {
		return vms, explain(err)
	}
	return vms, ""
}

// NodeVMs are the VMs of one node, of one tenant or, where that is empty, of all.
func (r *Registry) NodeVMs(ctx context.Context, name, tenant string) ([]hypervisorapi.FleetVM, error) {
	row, err := findNode(ctx, r.cfg.DB, name)
	if err != nil {
		return nil, unknownNode(err, name)
	}
	var budget budget
	vms, err := r.list(ctx, &row, tenant, r.cfg.Deadline, &budget)
	if err != nil {
		return nil, unreachable(name, explain(err), err)
	}
	return vms, nil
}

// budget is what all answers to one list may take together.
type budget struct{ vms, bytes atomic.Int64 }

// errTooMany is why a node is not in a list.
const errTooMany = garbage("the list would be too long with its VMs")

// list reads all pages of a node.
func (r *Registry) list(
	ctx context.Context, row *nodeRow, tenant string, deadline time.Duration, budget *budget,
) ([]hypervisorapi.FleetVM, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
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
		page, next, err := p.page(ctx, &params, budget)
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

// page reads one page, and the cursor of the next.
func (p peer) page(
	ctx context.Context, params *hypervisorapi.ListVMsParams, budget *budget,
) ([]hypervisorapi.FleetVM, string, error) {
	res, err := p.api.ListVMs(ctx, params)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, "", readRefusal(res)
	}
	body, err := readAll(&counted{res.Body, &budget.bytes}, maxPage)
	if err != nil {
		return nil, "", err
	}
	var vms []hypervisorapi.FleetVM
	if err := json.Unmarshal(body, &vms); err != nil || vms == nil || len(vms) > pageSize {
		return nil, "", garbage("its answer is not in the form of a daemon's")
	}
	if budget.vms.Add(int64(len(vms))) > MaxVMs {
		return nil, "", errTooMany
	}
	return vms, rest.NextCursor(res.Header), nil
}

// counted reads until all that share a sum have had their fill.
type counted struct {
	io.Reader
	sum *atomic.Int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	if c.sum.Add(int64(n)) > maxList {
		return n, errTooMany
	}
	return n, err
}
