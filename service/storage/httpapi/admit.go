package httpapi

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/shell"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
)

// option is a part of a request with which its operation takes an admin.
type option struct {
	name   string
	action string // the operation's in the audit log
	whole  bool   // and the admin must have no tenant
}

// The options that take an admin. What the operations themselves take is in the contract (x-access).
var (
	forcedDeletion  = option{"force", "snapshot.delete", false}
	revertedVolume  = option{"in_place", "snapshot.restore", false}
	restoredInPlace = option{"in_place", "backup.restore", false}
	adoptedBucket   = option{"connection_ref", "bucket.create", true}
)

// admit returns a fault unless the caller may use an option, and audits the attempt then. target is what the request is
// about.
func (a *API) admit(ctx context.Context, o option, target string) error {
	c := caller.From(ctx)
	var denied *fault.Error
	switch {
	case c.Role != caller.Admin:
		denied = fault.New(fault.Denied, "%s takes the role %s, and %s has the role %s", o.name, caller.Admin, c.Name, c.Role)
	case o.whole && !c.SeesAll():
		denied = fault.New(fault.Denied, "%s takes a token without a tenant, and that of %s is for the tenant %s",
			o.name, c.Name, c.Tenant)
	default:
		return nil
	}
	e := audit.Entry{Action: o.action, Target: target, Message: denied.Message}
	if err := a.store.NoteDenied(ctx, shell.PeerOf(ctx).IP, c, e); err != nil {
		return err
	}
	return denied
}
