package policy

import (
	"net/netip"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/shell"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/network"
)

func keeper(now time.Time) *Keeper { return New(Config{Now: func() time.Time { return now }}) }

func (k *Keeper) fill(tenant string, n int) {
	_, newest := k.Bounds()
	for i := range n {
		k.all.add(Flow{Flow: network.Flow{VM: tenant + "-vm"}, ID: newest + int64(i) + 1, Tenant: tenant}, maxOfAll)
	}
}

func TestFlowsAreBoundedAndStreamsKnowWhatIsMissing(t *testing.T) {
	t.Parallel()
	k := keeper(time.Unix(1, 0))
	oldest, newest := k.Bounds()
	if oldest != 1_000_000 || newest != oldest {
		t.Errorf("empty: from %d to %d", oldest, newest)
	}
	k.fill("acme", 25_000)
	oldest, newest = k.Bounds()
	if newest != 1_025_000 || oldest != newest-maxOfAll+1 || len(k.all.flows) > 2*maxOfAll {
		t.Errorf("from %d to %d, %d kept", oldest, newest, len(k.all.flows))
	}
	// A later process has larger numbers.
	if first, _ := keeper(time.Unix(2, 0)).Bounds(); first <= newest {
		t.Errorf("%d follows %d", first, newest)
	}
	ctx := shell.As(t.Context(), caller.Caller{Admin: true})
	found, until := k.After(ctx, newest-3, 2)
	if len(found) != 2 || found[0].ID != newest-2 || until != newest-1 {
		t.Errorf("%d flows, until %d", len(found), until)
	}
}

func TestTenantsFollowTheFlowsOfTheirOwnVMs(t *testing.T) {
	t.Parallel()
	k := keeper(time.Unix(1, 0))
	k.fill("acme", 3)
	k.fill("other", 600)
	k.fill("acme", 2)
	_, newest := k.Bounds()
	acme := caller.Caller{Tenant: "acme"}
	found, until := k.After(shell.As(t.Context(), acme), 0, 500)
	if len(found) != 5 || until != newest {
		t.Errorf("%d flows, until %d of %d", len(found), until, newest)
	}
	for _, f := range found {
		if f.Tenant != "acme" {
			t.Errorf("%+v", f)
		}
	}
	f := Flow{Flow: network.Flow{PeerVM: "x", Source: netip.AddrPort{}}, peerTenant: "other"}
	if f.Visible(acme) || !f.Visible(caller.Caller{Tenant: "other"}) || !f.Visible(caller.Caller{Admin: true}) {
		t.Error("who sees the VM at the other end is not as it should be")
	}
}
