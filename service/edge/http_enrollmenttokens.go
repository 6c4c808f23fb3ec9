package edge

import (
	"context"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/list"
)

func apiEnrollmentToken(t EnrollmentToken) edgeapi.EnrollmentToken {
	return edgeapi.EnrollmentToken{
		Id:        t.ID,
		OrgId:     t.OrgID,
		Name:      t.Name,
		MaxUses:   t.MaxUses,
		Uses:      t.Uses,
		CreatedAt: t.CreatedAt.Time,
		ExpiresAt: t.ExpiresAt.Time,
	}
}

// ListEnrollmentTokens lists the tokens in scope.
func (a api) ListEnrollmentTokens(
	ctx context.Context, req edgeapi.ListEnrollmentTokensRequestObject,
) (edgeapi.ListEnrollmentTokensResponseObject, error) {
	out, next, err := list.Rows(
		ctx,
		req.Params.Limit,
		req.Params.Cursor,
		100,
		func(after string, limit int) ([]EnrollmentToken, error) {
			return a.s.EnrollmentTokens(ctx, after, limit)
		},
		func(t EnrollmentToken) string { return t.ID },
		apiEnrollmentToken,
	)
	return edgeapi.ListEnrollmentTokens200JSONResponse{
		Body:    out,
		Headers: edgeapi.ListEnrollmentTokens200ResponseHeaders{Link: next},
	}, err
}

// CreateEnrollmentToken creates a token.
func (a api) CreateEnrollmentToken(
	ctx context.Context, req edgeapi.CreateEnrollmentTokenRequestObject,
) (edgeapi.CreateEnrollmentTokenResponseObject, error) {
	b := req.Body
	ttl, maxUses := int64(3600), int64(1)
	set(&ttl, b.TtlSeconds)
	set(&maxUses, b.MaxUses)
	t, token, err := a.s.CreateEnrollmentToken(ctx, b.Name, value(b.OrgId), time.Duration(ttl)*time.Second, maxUses)
	if err != nil {
		return nil, err
	}
	o := apiEnrollmentToken(t)
	return edgeapi.CreateEnrollmentToken201JSONResponse{
		Id:        o.Id,
		OrgId:     o.OrgId,
		Name:      o.Name,
		MaxUses:   o.MaxUses,
		Uses:      o.Uses,
		CreatedAt: o.CreatedAt,
		ExpiresAt: o.ExpiresAt,
		Token:     token,
	}, nil
}

// DeleteEnrollmentToken revokes a token.
func (a api) DeleteEnrollmentToken(
	ctx context.Context, req edgeapi.DeleteEnrollmentTokenRequestObject,
) (edgeapi.DeleteEnrollmentTokenResponseObject, error) {
	return edgeapi.DeleteEnrollmentToken204Response{}, a.s.DeleteEnrollmentToken(ctx, req.Id)
}
