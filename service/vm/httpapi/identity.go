package httpapi

import (
	"context"
	"net/http"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/identity"
)

// Login exchanges a password for a token.
func (a *API) Login(ctx context.Context, req vmapi.LoginRequestObject) (vmapi.LoginResponseObject, error) {
	s, err := a.identity.Login(ctx, req.Body.Username, value(req.Body.Password), value(req.Body.TotpCode))
	if err != nil {
		return nil, err
	}
	return vmapi.Login200JSONResponse{
		Token: s.Token, UserId: s.UserID, Role: vmapi.Role(s.Role), Username: s.Username, Tenant: some(s.Tenant),
		ExpiresAt: s.ExpiresAt,
	}, nil
}

// logout revokes the token of a request.
func (a *API) logout(w http.ResponseWriter, r *http.Request, _ caller.Caller) error {
	token, _ := auth.Bearer(r)
	if err := a.identity.Logout(r.Context(), token); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// GetMe describes the caller.
func (a *API) GetMe(ctx context.Context, _ vmapi.GetMeRequestObject) (vmapi.GetMeResponseObject, error) {
	c := caller.From(ctx)
	own, err := a.identity.Own(ctx, personOf(c))
	if err != nil {
		return nil, err
	}
	return vmapi.GetMe200JSONResponse{
		Id: c.ID, Username: c.Name, Role: vmapi.Role(c.Role), Tenant: some(c.Tenant), TwoFactor: own.TwoFactor,
		ExpiresAt: some(c.Expires),
	}, nil
}

// SetUpTwoFactor makes the secret of a second factor.
func (a *API) SetUpTwoFactor(
	ctx context.Context, _ vmapi.SetUpTwoFactorRequestObject,
) (vmapi.SetUpTwoFactorResponseObject, error) {
	s, err := a.identity.SetUp(ctx, personOf(caller.From(ctx)))
	if err != nil {
		return nil, err
	}
	return vmapi.SetUpTwoFactor200JSONResponse{Secret: s.Secret, ProvisioningUri: s.ProvisioningURI, QrCode: s.QRCode}, nil
}

// VerifyTwoFactor turns the second factor on.
func (a *API) VerifyTwoFactor(
	ctx context.Context, req vmapi.VerifyTwoFactorRequestObject,
) (vmapi.VerifyTwoFactorResponseObject, error) {
	codes, err := a.identity.Verify(ctx, personOf(caller.From(ctx)), req.Body.Code)
	if err != nil {
		return nil, err
	}
	return vmapi.VerifyTwoFactor200JSONResponse{
		Status: vmapi.TwoFactorEnabledStatusN2faEnabled, RecoveryCodes: orEmpty(codes),
	}, nil
}

// DisableTwoFactor turns the second factor off.
func (a *API) DisableTwoFactor(
	ctx context.Context, req vmapi.DisableTwoFactorRequestObject,
) (vmapi.DisableTwoFactorResponseObject, error) {
	if err := a.identity.Disable(ctx, personOf(caller.From(ctx)), req.Body.Code); err != nil {
		return nil, err
	}
	return vmapi.DisableTwoFactor200JSONResponse{Status: vmapi.TwoFactorStatusStatusN2faDisabled}, nil
}

// ChangePassword changes the caller's password.
func (a *API) ChangePassword(
	ctx context.Context, req vmapi.ChangePasswordRequestObject,
) (vmapi.ChangePasswordResponseObject, error) {
	by := personOf(caller.From(ctx))
	err := a.identity.ChangePassword(ctx, by, req.Body.CurrentPassword, req.Body.NewPassword)
	return vmapi.ChangePassword204Response{}, err
}

func apiUser(u identity.Account) vmapi.User {
	return vmapi.User{
		Id: u.ID, Username: u.Username, Role: vmapi.Role(u.Role), Tenant: some(u.Tenant), Source: vmapi.UserSource(u.Source),
		TwoFactor: u.TwoFactor, Created: u.CreatedAt,
	}
}

// ListUsers lists users by name.
func (a *API) ListUsers(ctx context.Context, req vmapi.ListUsersRequestObject) (vmapi.ListUsersResponseObject, error) {
	by := personOf(caller.From(ctx))
	out, link, err := list.Rows(ctx, req.Params.Limit, req.Params.Cursor, 100,
		func(after string, limit int) ([]identity.Account, error) {
			return a.identity.AccountsAfter(ctx, by, after, limit)
		},
		func(u identity.Account) string { return u.Username }, apiUser)
	return vmapi.ListUsers200JSONResponse{Body: out, Headers: vmapi.ListUsers200ResponseHeaders{Link: link}}, err
}

// CreateUser adds a user.
func (a *API) CreateUser(
	ctx context.Context, req vmapi.CreateUserRequestObject,
) (vmapi.CreateUserResponseObject, error) {
	b := req.Body
	if err := a.store.CheckRetired(ctx, value(b.Tenant)); err != nil {
		return nil, err
	}
	u, err := a.identity.Create(ctx, personOf(caller.From(ctx)), identity.NewAccount{
		Username: b.Username, Source: identity.Source(orElse(b.Source, vmapi.UserSourceLocal)), Password: value(b.Password),
		Role: identity.Role(b.Role), Tenant: value(b.Tenant),
	})
	if err != nil {
		return nil, err
	}
	return vmapi.CreateUser201JSONResponse(apiUser(u)), nil
}

// UpdateUser changes a user.
func (a *API) UpdateUser(
	ctx context.Context, req vmapi.UpdateUserRequestObject,
) (vmapi.UpdateUserResponseObject, error) {
	b := req.Body
	if err := a.store.CheckRetired(ctx, value(b.Tenant)); err != nil {
		return nil, err
	}
	u, err := a.identity.Update(ctx, personOf(caller.From(ctx)), req.Username, identity.Change{
		Role: (*identity.Role)(b.Role), Tenant: b.Tenant, Password: b.Password, DisableTwoFactor: b.TwoFactor != nil,
	})
	if err != nil {
		return nil, err
	}
	return vmapi.UpdateUser200JSONResponse(apiUser(u)), nil
}

// DeleteUser removes a user.
func (a *API) DeleteUser(
	ctx context.Context, req vmapi.DeleteUserRequestObject,
) (vmapi.DeleteUserResponseObject, error) {
	return vmapi.DeleteUser204Response{}, a.identity.Remove(ctx, personOf(caller.From(ctx)), req.Username)
}
