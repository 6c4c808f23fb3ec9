package edge

import (
	"context"
	"net/http"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

type kind = verb.Kind[*edgeapi.Client]

// kinds are what arguments and flags of the commands name.
var kinds = map[string]*kind{
	"SITE": {
		What: "site", Listed: "mainstay edge site list", Flags: []string{"site"}, Searched: true,
		List: func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
			return c.API.ListSites(ctx, &edgeapi.ListSitesParams{Limit: p.Limit, Cursor: p.Cursor, Q: p.Search})
		},
		Get: func(ctx context.Context, c *call, id string) (*http.Response, error) { return c.API.GetSite(ctx, id) },
		Object: verb.As(&Service, func(v edgeapi.Site) verb.Object {
			return verb.Object{ID: v.Id, Name: v.Name, Owner: owner("org", v.OrgId)}
		}),
	},
	"DEVICE": {
		What: "device", Listed: "mainstay edge device list", Flags: []string{"device"}, OwnIDs: true, Searched: true,
		List: func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
			return c.API.ListDevices(ctx, &edgeapi.ListDevicesParams{Limit: p.Limit, Cursor: p.Cursor, Q: p.Search})
		},
		Get: func(ctx context.Context, c *call, id string) (*http.Response, error) { return c.API.GetDevice(ctx, id) },
		Object: verb.As(&Service, func(v edgeapi.Device) verb.Object {
			return verb.Object{ID: v.DeviceId, Name: v.Name, Owner: owner("site", v.SiteId)}
		}),
	},
	"ROUTE": {
		What: "route", Listed: "mainstay edge route list", Flags: []string{"route"}, Searched: true,
		List: func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
			return c.API.ListRoutes(ctx, &edgeapi.ListRoutesParams{Limit: p.Limit, Cursor: p.Cursor, Q: p.Search})
		},
		Get: func(ctx context.Context, c *call, id string) (*http.Response, error) { return c.API.GetRoute(ctx, id) },
		Object: verb.As(&Service, func(v edgeapi.Route) verb.Object {
			return verb.Object{ID: v.Id, Name: v.Name, Owner: owner("org", v.OrgId)}
		}),
	},
	"CAMPAIGN": {
		What: "campaign", Listed: "mainstay edge campaign list", Searched: true,
		List: func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
			return c.API.ListCampaigns(ctx, &edgeapi.ListCampaignsParams{Limit: p.Limit, Cursor: p.Cursor, Q: p.Search})
		},
		Object: verb.As(&Service, func(v edgeapi.Campaign) verb.Object {
			return verb.Object{ID: v.Id, Name: v.Name, Owner: owner("org", v.OrgId)}
		}),
	},
	"DEPLOYMENT": {
		What: "deployment", Listed: "mainstay edge deployment list", Searched: true,
		List: func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
			return c.API.ListDeployments(ctx, &edgeapi.ListDeploymentsParams{Limit: p.Limit, Cursor: p.Cursor, Q: p.Search})
		},
		Object: verb.As(&Service, func(v edgeapi.Deployment) verb.Object {
			return verb.Object{ID: v.Id, Name: v.Name, Owner: owner("site", v.SiteId)}
		}),
	},
	"POLICY": {
		What: "policy pack", Listed: "mainstay edge policy list",
		List: func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
			return c.API.ListPolicyPacks(ctx, &edgeapi.ListPolicyPacksParams{Limit: p.Limit, Cursor: p.Cursor})
		},
		Object: verb.As(&Service, func(v edgeapi.PolicyPack) verb.Object {
			return verb.Object{ID: v.Id, Name: v.Name, Owner: owner("org", v.OrgId)}
		}),
	},
	"ORG": {
		What: "org", Listed: "mainstay edge org list", Flags: []string{"org"},
		List: func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
			return c.API.ListOrgs(ctx, &edgeapi.ListOrgsParams{Limit: p.Limit, Cursor: p.Cursor})
		},
		Get:    func(ctx context.Context, c *call, id string) (*http.Response, error) { return c.API.GetOrg(ctx, id) },
		Object: verb.As(&Service, func(v edgeapi.Org) verb.Object { return verb.Object{ID: v.Id, Name: v.Name} }),
	},
	"TOKEN": {
		What: "enrollment token", Listed: "mainstay edge enrollment-token list",
		List: func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
			return c.API.ListEnrollmentTokens(ctx, &edgeapi.ListEnrollmentTokensParams{Limit: p.Limit, Cursor: p.Cursor})
		},
		Object: verb.As(&Service, func(v edgeapi.EnrollmentToken) verb.Object {
			return verb.Object{ID: v.Id, Name: v.Name, Owner: owner("org", v.OrgId)}
		}),
	},
	"ALERT": {
		What: "alert", Listed: "mainstay edge alert list",
		List: func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
			all := edgeapi.ListAlertsParamsStatusAll
			return c.API.ListAlerts(ctx, &edgeapi.ListAlertsParams{Limit: p.Limit, Cursor: p.Cursor, Status: &all})
		},
		Object: verb.As(&Service, func(v edgeapi.Alert) verb.Object { return verb.Object{ID: v.Id} }),
	},
	"LETTER": {
		What: "dead letter", Listed: "mainstay edge deadletter list",
		List: func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
			return c.API.ListDeadLetters(ctx, &edgeapi.ListDeadLettersParams{Limit: p.Limit, Cursor: p.Cursor})
		},
		Object: verb.As(&Service, func(v edgeapi.DeadLetter) verb.Object { return verb.Object{ID: v.Id} }),
	},
}

// owner says what an object belongs to, for objects with equal names.
func owner(what, id string) string {
	if id == "" {
		return ""
	}
	return what + " " + id
}

// siteRef, routeRef and orgRef are cells that show the name of what has this ID.
func siteRef(id string) output.Ref  { return output.Ref{Kind: "SITE", ID: id} }
func routeRef(id string) output.Ref { return output.Ref{Kind: "ROUTE", ID: id} }
func orgRef(id string) output.Ref   { return output.Ref{Kind: "ORG", ID: id} }
