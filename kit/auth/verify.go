package auth

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// TokenVerifier accepts bearer tokens that an OpenID provider has signed for one audience (OpenID
// Connect Core 1.0 section 3.1.3.7). Programs that get their tokens from the provider authenticate
// with it. The provider is discovered at the first token. It is safe for concurrent use.
type TokenVerifier struct {
	issuer, audience string
	client           *http.Client
	now              func() time.Time

	mu       sync.Mutex
	verifier *oidc.IDTokenVerifier // nil until discovered
	failed   error
	retryAt  time.Time
}

// NewTokenVerifier returns a TokenVerifier. It does not contact the provider. A nil client means
// one with a timeout of 10 s.
func NewTokenVerifier(issuer, audience string, client *http.Client, now func() time.Time) *TokenVerifier {
	if client == nil {
		client = &http.Client{Timeout: providerTimeout}
	}
	return &TokenVerifier{issuer: issuer, audience: audience, client: client, now: now}
}

// Verified holds the claims of a token whose signature, issuer, audience and expiry were checked.
type Verified struct {
	Subject string
	Claims  map[string]any
}

// Verify checks a token. The fault is Unauthenticated if the token is not valid, and Unavailable if
// the provider does not respond.
func (v *TokenVerifier) Verify(ctx context.Context, token string) (Verified, error) {
	if strings.Count(token, ".") != 2 {
		return Verified{}, fault.New(fault.Unauthenticated, "the token is not valid")
	}
	ctx = oidc.ClientContext(ctx, v.client)
	verifier, err := v.discover(ctx)
	if err != nil {
		return Verified{}, err
	}
	idToken, err := verifier.Verify(ctx, token)
	if err != nil && strings.Contains(err.Error(), "fetching keys") {
		return Verified{}, unanswered(err)
	}
	if err != nil {
		return Verified{}, fault.Wrap(fault.Unauthenticated, err, "the token is not valid, or has expired")
	}
	out := Verified{Subject: idToken.Subject, Claims: map[string]any{}}
	if err := idToken.Claims(&out.Claims); err != nil || out.Subject == "" {
		return Verified{}, fault.Wrap(fault.Unauthenticated, err, "the token's claims cannot be read")
	}
	return out, nil
}

func (v *TokenVerifier) discover(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.verifier != nil {
		return v.verifier, nil
	}
	if v.failed != nil && v.now().Before(v.retryAt) {
		return nil, v.failed
	}
	// The keys are fetched with this context later, after the request has ended.
	p, err := oidc.NewProvider(context.WithoutCancel(ctx), v.issuer)
	if err != nil {
		v.failed, v.retryAt = unanswered(err), v.now().Add(discoveryPause)
		return nil, v.failed
	}
	v.verifier = p.Verifier(&oidc.Config{ClientID: v.audience, Now: v.now})
	return v.verifier, nil
}
