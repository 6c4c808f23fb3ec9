//go:build linux

package hypervisor_test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// issuer is an OpenID provider as far as bearer tokens need one: discovery and keys.
type issuer struct {
	*testing.T
	url string
	key *rsa.PrivateKey
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{T: t, key: key}
	mux := http.NewServeMux()
	answer := func(v any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(v)
		}
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	i.url = server.URL
	mux.HandleFunc(
		"/.well-known/openid-configuration",
		answer(object{
			"issuer":                                i.url,
			"jwks_uri":                              i.url + "/keys",
			"authorization_endpoint":                i.url + "/a",
			"token_endpoint":                        i.url + "/t",
			"id_token_signing_alg_values_supported": []string{"RS256"},
		}),
	)
	mux.HandleFunc("/keys", answer(object{"keys": []any{
		object{
			"kty": "RSA",
			"alg": "RS256",
			"use": "sig",
			"kid": "1",
			"n":   base64.RawURLEncoding.EncodeToString(key.N.Bytes()),
			"e":   base64.RawURLEncoding.EncodeToString(big.NewInt(int64(key.E)).Bytes()),
		},
	}}))
	return i
}

// token signs claims, beside those that every token has.
func (i *issuer) token(claims object) string {
	i.Helper()
	all := object{
		"iss": i.url,
		"sub": "somebody",
		"aud": "mainstay",
		"iat": time.Now().Unix(),
		"exp": time.Now().Add(time.Hour).Unix(),
	}
	for k, v := range claims {
		all[k] = v
	}
	part := func(v any) string {
		raw, err := json.Marshal(v)
		if err != nil {
			i.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(raw)
	}
	text := part(object{"alg": "RS256", "kid": "1", "typ": "JWT"}) + "." + part(all)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, sum[:])
	if err != nil {
		i.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// document accepts the issuer's tokens.
func (i *issuer) document() string {
	return usualDocument + "[auth.oidc]\nissuer = \"" + i.url + "\"\naudience = \"mainstay\"\ntenant_claim = \"org\"\nadmin_claim = \"root\"\n"
}
