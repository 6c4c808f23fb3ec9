package agent

import (
	"strings"
	"testing"
)

func FuzzParseIdentity(f *testing.F) {
	key, _, err := newKey("x")
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"site_id":"s","agent_token":"t"}`))
	f.Add(
		[]byte(
			`{"site_id":"s","agent_token":"t","certificate_pem":"-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----","key_pem":"` + strings.ReplaceAll(
				key,
				"\n",
				`\n`,
			) + `"}`,
		),
	)
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
