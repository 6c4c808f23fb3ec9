package edge

import (
	"context"
	"net/http"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
)

// Login exchanges a password for a session.
func (a api) Login(ctx context.Context, req edgeapi.LoginRequestObject) (edgeapi.LoginResponseObject, error) {
	session, err := a.s.Login(ctx, req.Body.Username, req.Body.Password)
	if err != nil {
		return nil, err
	}
	return edgeapi.Login200JSONResponse{Token: session.Token, TokenType: edgeapi.SessionTokenTypeBearer, Role: edgeapi.SessionRole(session.Role), ExpiresAt: session.ExpiresAt}, nil
}

// Logout ends the calling session.
func (a api) Logout(ctx context.Context, _ edgeapi.LogoutRequestObject) (edgeapi.LogoutResponseObject, error) {
	return edgeapi.Logout204Response{}, a.s.Logout(ctx)
}

// GetMe describes the caller.
func (a api) GetMe(ctx context.Context, _ edgeapi.GetMeRequestObject) (edgeapi.GetMeResponseObject, error) {
	c := callerFrom(ctx)
	return edgeapi.GetMe200JSONResponse{Subject: c.Subject, Kind: edgeapi.CallerKind(c.Kind), Role: edgeapi.CallerRole(c.Role),
		OrgId: c.OrgID, SiteId: c.SiteID, ExpiresAt: timePtr(c.ExpiresAt)}, nil
}

// written stands for an answer that the domain has written itself: a redirect
// with its cookie, or a stream.
type written struct{}

func (written) VisitOIDCLoginResponse(http.ResponseWriter) error { return nil }
func (written) VisitGetStreamResponse(http.ResponseWriter) error { return nil }

// OIDCLogin sends the browser to the identity provider.
func (a api) OIDCLogin(ctx context.Context, _ edgeapi.OIDCLoginRequestObject) (edgeapi.OIDCLoginResponseObject, error) {
	return written{}, a.s.OIDCLogin(ctx)
}

// OIDCCallback completes the login and sends the browser to the console.
func (a api) OIDCCallback(ctx context.Context, _ edgeapi.OIDCCallbackRequestObject) (edgeapi.OIDCCallbackResponseObject, error) {
	location, err := a.s.OIDCCallback(ctx)
	if err != nil {
		return nil, err
	}
	return edgeapi.OIDCCallback302Response{Headers: edgeapi.RedirectResponseHeaders{Location: &location}}, nil
}

// ListOrgs lists all orgs.
func (a api) ListOrgs(ctx context.Context, req edgeapi.ListOrgsRequestObject) (edgeapi.ListOrgsResponseObject, error) {
	out, err := paged(ctx, req.Params.Limit, req.Params.Cursor, func(after string, limit int) ([]Org, error) {
		return a.s.Orgs(ctx, after, limit)
	}, func(o Org) string { return o.ID }, apiOrg)
	return edgeapi.ListOrgs200JSONResponse(out), err
}

// redacted is what reads show in place of the hashes of tokens.
const redacted = "[redacted]"

func apiOrg(o Org) edgeapi.Org {
	return edgeapi.Org{Id: o.ID, Name: o.Name, CreatedAt: o.CreatedAt.Time, EnrollmentTokenHash: redacted, AdminTokenHash: redacted, ViewerTokenHash: redacted}
}

// CreateOrg makes an org with its tokens.
func (a api) CreateOrg(ctx context.Context, req edgeapi.CreateOrgRequestObject) (edgeapi.CreateOrgResponseObject, error) {
	org, tokens, err := a.s.CreateOrg(ctx, req.Body.Name)
	if err != nil {
		return nil, err
	}
	return edgeapi.CreateOrg201JSONResponse{Id: org.ID, Name: org.Name, CreatedAt: org.CreatedAt.Time,
		EnrollmentToken: tokens.Enrollment, AdminToken: tokens.Admin, ViewerToken: tokens.Viewer}, nil
}

// GetOrg reads one org.
func (a api) GetOrg(ctx context.Context, req edgeapi.GetOrgRequestObject) (edgeapi.GetOrgResponseObject, error) {
	org, err := a.s.Org(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	return edgeapi.GetOrg200JSONResponse(apiOrg(org)), nil
}

// DeleteOrg removes an org and its tokens.
func (a api) DeleteOrg(ctx context.Context, req edgeapi.DeleteOrgRequestObject) (edgeapi.DeleteOrgResponseObject, error) {
	return edgeapi.DeleteOrg204Response{}, a.s.DeleteOrg(ctx, req.Id)
}
