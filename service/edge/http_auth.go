package edge

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/list"
)

// Login exchanges a password for a session.
func (a api) Login(ctx context.Context, req edgeapi.LoginRequestObject) (edgeapi.LoginResponseObject, error) {
	session, err := a.s.Login(ctx, req.Body.Username, req.Body.Password)
	if err != nil {
		return nil, err
	}
	return edgeapi.Login200JSONResponse{
		Token:     session.Token,
		TokenType: edgeapi.SessionTokenTypeBearer,
		Role:      edgeapi.SessionRole(session.Role),
		ExpiresAt: session.ExpiresAt,
	}, nil
}

// Logout ends the calling session.
func (a api) Logout(ctx context.Context, _ edgeapi.LogoutRequestObject) (edgeapi.LogoutResponseObject, error) {
	return edgeapi.Logout204Response{}, a.s.Logout(ctx)
}

// GetMe describes the caller.
func (a api) GetMe(ctx context.Context, _ edgeapi.GetMeRequestObject) (edgeapi.GetMeResponseObject, error) {
	c := callerFrom(ctx)
	return edgeapi.GetMe200JSONResponse{
		Subject:   c.Subject,
		Kind:      edgeapi.CallerKind(c.Kind),
		Role:      edgeapi.CallerRole(c.Role),
		OrgId:     c.OrgID,
		SiteId:    c.SiteID,
		ExpiresAt: timePtr(c.ExpiresAt),
	}, nil
}

// oidcLogin redirects the browser to the identity provider.
func (a api) oidcLogin(w http.ResponseWriter, r *http.Request, _ Caller) error {
	if a.s.oidc == nil {
		return errNoOIDC
	}
	return a.s.oidc.Login(w, r)
}

// oidcCallback completes the login and redirects the browser to the console.
func (a api) oidcCallback(w http.ResponseWriter, r *http.Request, _ Caller) error {
	if a.s.oidc == nil {
		return errNoOIDC
	}
	id, refusal := a.s.oidc.Callback(w, r)
	location, err := a.s.SignOn(r.Context(), id, refusal)
	if err != nil {
		if !strings.Contains(r.Header.Get("Accept"), "text/html") {
			return err
		}
		// A person sees the reason on the sign-in page.
		location = a.s.oidc.ConsoleURL() + "#refused=" + url.QueryEscape(fault.From(err).Message)
	}
	w.Header().Set("Location", location)
	w.WriteHeader(http.StatusFound)
	return nil
}

// ListOrgs lists all orgs.
func (a api) ListOrgs(ctx context.Context, req edgeapi.ListOrgsRequestObject) (edgeapi.ListOrgsResponseObject, error) {
	out, next, err := list.Rows(
		ctx,
		req.Params.Limit,
		req.Params.Cursor,
		100,
		func(after string, limit int) ([]Org, error) {
			return a.s.Orgs(ctx, after, limit)
		},
		func(o Org) string { return o.ID },
		apiOrg,
	)
	return edgeapi.ListOrgs200JSONResponse{Body: out, Headers: edgeapi.ListOrgs200ResponseHeaders{Link: next}}, err
}

// redacted replaces the hashes of tokens in responses.
const redacted = "[redacted]"

func apiOrg(o Org) edgeapi.Org {
	return edgeapi.Org{
		Id:                  o.ID,
		Name:                o.Name,
		CreatedAt:           o.CreatedAt.Time,
		EnrollmentTokenHash: redacted,
		AdminTokenHash:      redacted,
		ViewerTokenHash:     redacted,
	}
}

// CreateOrg creates an org with its tokens.
func (a api) CreateOrg(
	ctx context.Context, req edgeapi.CreateOrgRequestObject,
) (edgeapi.CreateOrgResponseObject, error) {
	org, tokens, err := a.s.CreateOrg(ctx, req.Body.Name)
	if err != nil {
		return nil, err
	}
	return edgeapi.CreateOrg201JSONResponse{Id: org.ID, Name: org.Name, CreatedAt: org.CreatedAt.Time,
		EnrollmentToken: tokens.Enrollment, AdminToken: tokens.Admin, ViewerToken: tokens.Viewer}, nil
}

// GetOrg returns one org.
func (a api) GetOrg(ctx context.Context, req edgeapi.GetOrgRequestObject) (edgeapi.GetOrgResponseObject, error) {
	org, err := a.s.Org(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	return edgeapi.GetOrg200JSONResponse(apiOrg(org)), nil
}

// DeleteOrg removes an org and its tokens.
func (a api) DeleteOrg(
	ctx context.Context, req edgeapi.DeleteOrgRequestObject,
) (edgeapi.DeleteOrgResponseObject, error) {
	return edgeapi.DeleteOrg204Response{}, a.s.DeleteOrg(ctx, req.Id)
}
