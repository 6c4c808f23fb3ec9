package httpapi

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
)

// tenantOf returns the tenant of what a request makes.
func tenantOf(ctx context.Context, given *string) (string, error) {
	c := caller.From(ctx)
	switch {
	case given == nil:
		return c.Tenant, nil
	case !c.Sees(*given):
		return "", fault.New(fault.Denied, "tenant_id: is not the tenant of your token")
	}
	return *given, nil
}

// tenantFilter checks the tenant that a list is limited to.
func tenantFilter(ctx context.Context, given *string) (string, error) {
	if given != nil && !caller.From(ctx).Sees(*given) {
		return "", fault.New(fault.Denied, "tenant: is not the tenant of your token")
	}
	return value(given), nil
}
