package disk

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// freezeLimit is how long a guest's file systems may stay frozen for a snapshot. freezePatience is
// the timeout for freezing or thawing them.
const (
	freezeLimit    = 30 * time.Second
	freezePatience = 10 * time.Second
)

// quiet calls do while the file systems of a running guest are frozen, if its agent can freeze
// them. It returns how consistent the result is, as text for people.
func (w *Manager) quiet(ctx context.Context, r *record.VM, do func() error) (how string, err error) {
	client, agentErr := w.machines.Get(r.ID).Session()
	if r.State != vm.Running || agentErr != nil {
		return "as the disk was", do()
	}
	freezing, cancel := context.WithTimeout(ctx, freezePatience)
	n, freezeErr := client.Freeze(freezing, freezeLimit)
	cancel()
	err = do()
	if freezeErr != nil {
		return "as the disk was, since the guest's file systems could not be stopped", err
	}
	thawing, cancel := context.WithTimeout(ctx, freezePatience)
	defer cancel()
	if thawed, thawErr := client.Thaw(thawing); thawErr != nil || thawed < n {
		return "as the disk was: the guest's file systems did not stand still to the end", err
	}
	return fmt.Sprintf("with the guest's %d file systems at rest", n), err
}

// copyQuietly copies a disk from a moment at which the guest's file systems are frozen. The copy
// reflects the moment it begins, so they are thawed right after that.
func (w *Manager) copyQuietly(
	ctx context.Context, r *record.VM, d backend.Disks, c backend.DiskCopy, progress func(float64),
) (how string, err error) {
	how, _, thaw := w.freeze(ctx, r)
	defer thaw() // in case the copy does not begin
	c.Begun = thaw
	return how, d.Copy(ctx, c, progress)
}

// freeze freezes a guest's file systems, if its agent can. It returns how consistent the disk is
// then, as text for people, and the function that thaws them, which may be called more than once.
func (w *Manager) freeze(ctx context.Context, r *record.VM) (how string, frozen bool, thaw func()) {
	client, agentErr := w.machines.Get(r.ID).Session()
	switch {
	case r.State != vm.Running || !r.Spec.V.Agent: // no guest writes, or no agent can freeze it
		return "as the disk was", false, func() {}
	case agentErr != nil:
		return "as the disk was, since the guest's agent is not connected", false, func() {}
	}
	freezing, cancel := context.WithTimeout(ctx, freezePatience)
	_, err := client.Freeze(freezing, freezeLimit)
	cancel()
	if err != nil {
		return "as the disk was, since the guest's file systems could not be stopped", false, func() {}
	}
	return "with the guest's file systems at rest", true, sync.OnceFunc(func() {
		thawing, cancel := context.WithTimeout(context.WithoutCancel(ctx), freezePatience)
		defer cancel()
		_, _ = client.Thaw(thawing) // it thaws by itself otherwise
	})
}
