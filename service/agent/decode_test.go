package agent

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

func FuzzParseIdentity(f *testing.F) {
	key, _, err := newKey("x")
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"site_id":"s","agent_token":"t"}`))
	f.Add([]byte(`{"site_id":"s","agent_token":"t","certificate_pem":"-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----","key_pem":"` + strings.ReplaceAll(key, "\n", `\n`) + `"}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, text []byte) {
		id, err := parseIdentity(text)
		if err == nil && (id.SiteID == "" || id.AgentToken == "" || id.CertificatePEM != "" && id.notAfter().IsZero()) {
			t.Errorf("accepted: %q", text)
		}
	})
}

func FuzzNamedEvent(f *testing.F) {
	for _, seed := range []string{"events.17.topic", "events.-1.x", "events.99999999999999999999.x", "events.1", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, field string) {
		if i, ok := namedEvent(field); ok && i < 0 {
			t.Errorf("%d from %q", i, field)
		}
	})
}

func TestARetryAfterIsReadAsSecondsAndAsADate(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Duration{"": 0, "5": 5 * time.Second, "-5": 0, "x": 0, "Fri, 02 Jan 2026 03:05:05 GMT": time.Minute, "Fri, 02 Jan 2026 03:00:00 GMT": 0} {
		if got := retryAfter(http.Header{"Retry-After": {text}}, now); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
