package auth_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// signed returns a token as any library makes it.
func signed(secret, header, claims string) string {
	encode := base64.RawURLEncoding.EncodeToString
	text := encode([]byte(header)) + "." + encode([]byte(claims))
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(text))
	return text + "." + encode(mac.Sum(nil))
}

func TestTokensThatOthersIssueAreCheckedByTheirSecret(t *testing.T) {
	t.Parallel()
	const (
		secret, before = "a secret that is long enough for it", "the secret before that one, as long"
		header         = `{"alg":"HS256","typ":"JWT"}`
	)
	now := time.Unix(1_000_000, 0)
	v, err := auth.NewVerifier(func() time.Time { return now }, []byte(secret), []byte(before))
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{
		signed(secret, header, `{"sub":"ann","role":"operator","tenant":"acme","exp":1000001}`),
		signed(before, header, `{"sub":"ann","role":"operator","tenant":"acme","exp":1000001,"nbf":1000000,"iat":1,"jti":"x"}`),
		signed(secret, `{"alg":"HS256"}`, `{"sub":"ann","role":"operator","tenant":"acme","exp":1000001,"aud":"storage"}`),
	} {
		c, err := v.Check(token)
		if err != nil || c.Subject != "ann" || c.Role != "operator" || c.Tenant != "acme" || c.Expires.Unix() != 1000001 {
			t.Errorf("%+v, %v", c, err)
		}
	}
	good := signed(secret, header, `{"sub":"ann","role":"admin","exp":1000001}`)
	parts := strings.Split(good, ".")
	for name, token := range map[string]string{
		"empty":             "",
		"words":             "a.b.c",
		"another secret":    signed("another secret that is long enough", header, `{"sub":"ann","exp":1000001}`),
		"no algorithm":      signed(secret, `{"alg":"none"}`, `{"sub":"ann","exp":1000001}`),
		"not signed":        parts[0] + "." + parts[1] + ".",
		"another one":       signed(secret, `{"alg":"HS512"}`, `{"sub":"ann","exp":1000001}`),
		"expired":           signed(secret, header, `{"sub":"ann","exp":1000000}`),
		"for ever":          signed(secret, header, `{"sub":"ann"}`),
		"far in the future": signed(secret, header, `{"sub":"ann","exp":9e18}`),
		"not valid yet":     signed(secret, header, `{"sub":"ann","exp":1000009,"nbf":1000005}`),
		"nobody":            signed(secret, header, `{"exp":1000001}`),
		"claim twice":       signed(secret, header, `{"sub":"ann","role":"viewer","role":"admin","exp":1000001}`),
		"Tenant":            signed(secret, header, `{"sub":"ann","role":"admin","Tenant":"acme","exp":1000001}`),
		"in capitals":       signed(secret, header, `{"sub":"ann","ROLE":"admin","exp":1000001,"Role":"admin"}`),
		"changed":           parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"bob","exp":1000001}`)) + "." + parts[2],
		"line break":        good + "\n",
	} {
		c, err := v.Check(token)
		if name == "in capitals" && err == nil && c.Role == "" {
			continue // what is not a claim is ignored
		}
		if !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	if _, err := auth.NewVerifier(time.Now, []byte("short")); !fault.Is(err, fault.Invalid) {
		t.Error(err)
	}
	if _, err := auth.NewVerifier(time.Now); !fault.Is(err, fault.Invalid) {
		t.Error(err)
	}
}
