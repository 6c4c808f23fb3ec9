package httpserve_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
)

func TestWithoutCredentialsOnlyOwnPagesAndProgramsAreAnswered(t *testing.T) {
	t.Parallel()
	const page = "http://127.0.0.1:7070"
	for name, tt := range map[string]struct {
		host, origin, site string
		code               string // empty: answered
	}{
		"a program":                   {"127.0.0.1:7070", "", "", ""},
		"a program, IPv6":             {"[::1]:7070", "", "", ""},
		"a program, localhost":        {"localhost:7070", "", "", ""},
		"a program, another address":  {"10.0.0.5:7070", "", "", ""},
		"a program, no port":          {"10.0.0.5", "", "", ""},
		"a program, our name":         {"Node1:7070", "", "", ""},
		"our console":                 {"127.0.0.1:7070", page, "same-origin", ""},
		"our console, opened":         {"127.0.0.1:7070", "", "none", ""},
		"rebinding":                   {"evil.example:7070", "", "", "foreign_host"},
		"rebinding, its own page":     {"evil.example:7070", "http://evil.example:7070", "same-origin", "foreign_host"},
		"rebinding, like our name":    {"node1.evil.example:7070", "", "", "foreign_host"},
		"no host":                     {"", "", "", "foreign_host"},
		"another page":                {"127.0.0.1:7070", "https://evil.example", "", "browser"},
		"another page, sandboxed":     {"127.0.0.1:7070", "null", "", "browser"},
		"another page, empty origin":  {"127.0.0.1:7070", "-", "", "browser"},
		"another port":                {"127.0.0.1:7070", "http://127.0.0.1:8000", "same-site", "browser"},
		"an image of another page":    {"127.0.0.1:7070", "", "cross-site", "browser"},
		"an image of a page near by":  {"127.0.0.1:7070", "", "same-site", "browser"},
		"what is not known, from one": {"127.0.0.1:7070", "", "x", "browser"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/v1/vms", nil)
		r.Host = tt.host
		if tt.origin != "" {
			r.Header.Set("Origin", strings.Trim(tt.origin, "-"))
		}
		if tt.site != "" {
			r.Header.Set("Sec-Fetch-Site", tt.site)
		}
		err := httpserve.RefuseForeign(r, "", "node1")
		switch {
		case tt.code == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tt.code != "" && (!fault.Is(err, fault.Denied) || fault.From(err).Code != tt.code):
			t.Errorf("%s: %v, want code %s", name, err, tt.code)
		}
	}
	twice := httptest.NewRequest(http.MethodGet, page, nil)
	twice.Header["Origin"] = []string{page, "https://evil.example"}
	if err := httpserve.RefuseForeign(twice); !fault.Is(err, fault.Denied) {
		t.Errorf("two origins: %v", err)
	}
}

func TestAnAddressThatOthersReachIsTold(t *testing.T) {
	t.Parallel()
	for listen, local := range map[string]bool{
		"127.0.0.1:0": true, "127.9.9.9:0": true, "[::1]:0": true, "[::ffff:127.0.0.1]:0": true, "localhost:0": true,
		":0": false, "0.0.0.0:0": false, "[::]:0": false, "10.0.0.5:0": false, "example.com:0": false, "x": false,
	} {
		if got := (httpserve.Config{Listen: listen}).Local(); got != local {
			t.Errorf("%s: local %v", listen, got)
		}
	}
	for listen, all := range map[string]bool{"127.0.0.1:0": false, "0.0.0.0:0": true, ":0": true} {
		s, err := httpserve.Listen(
			httpserve.Config{Listen: listen}, http.NotFoundHandler(), slog.New(slog.DiscardHandler),
		)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Listening(); strings.HasSuffix(got, ", all addresses") != all ||
			!strings.HasPrefix(got, s.Addr().String()) {
			t.Errorf("%s: %s", listen, got)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
