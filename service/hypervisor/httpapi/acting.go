package httpapi

import (
	"net/http"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/configfile"
	"github.com/mainstay-infra/mainstay/service/hypervisor/fleet"
)

// The maximum length of the name of an actor, in bytes.
const maxActor = 256

// acting returns as whom c acts in a request: c itself, unless the headers name a tenant or an actor.
// Only admins act for others.
func acting(r *http.Request, c caller.Caller) (caller.Caller, error) {
	tenant, err := nameIn(r.Header, fleet.HeaderTenant, configfile.MaxTenant)
	if err != nil {
		return caller.Caller{}, err
	}
	actor, err := nameIn(r.Header, fleet.HeaderActor, maxActor)
	if err != nil {
		return caller.Caller{}, err
	}
	switch {
	case tenant == "" && actor == "" && !c.Forwarded:
		return c, nil
	case !c.Admin:
		return caller.Caller{}, fault.New(
			fault.Denied, "%s may not act for others; %s and %s take an admin's credentials",
			c.Name, fleet.HeaderTenant, fleet.HeaderActor,
		)
	case c.Forwarded && actor == "":
		return caller.Caller{}, fault.New(fault.Denied, "the registry must name in %s for whom it acts", fleet.HeaderActor)
	}
	return c.For(tenant, actor), nil
}

// nameIn returns the name in a header, or "" if there is no such header.
func nameIn(h http.Header, field string, longest int) (string, error) {
	values := h.Values(field)
	if len(values) == 0 {
		return "", nil
	}
	name := values[0]
	bad := strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' })
	if len(values) > 1 || name == "" || len(name) > longest || bad {
		return "", fault.InvalidField(
			field, "must be given once and hold 1 to %d printable ASCII characters without spaces", longest,
		)
	}
	return name, nil
}
