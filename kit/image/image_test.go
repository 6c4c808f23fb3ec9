package image_test

import (
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/image"
)

func TestAllowed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		image, pattern string
		want           bool
	}{
		{"nginx", "nginx", true},
		{"nginx", "docker.io/library/nginx", true},
		{"docker.io/library/nginx:1.27", "nginx", true},
		{"nginx:1.27", "nginx:1.27", true},
		{"nginx:1.28", "nginx:1.27", false},
		{"nginx", "docker.io/library/nginx:latest", true},
		{"ghcr.io/acme/app:v1", "ghcr.io/acme/*", true},
		{"ghcr.io/acme/deep/app:v1", "ghcr.io/acme/*", true},
		{"ghcr.io/acmeevil/app:v1", "ghcr.io/acme/*", false},
		{"ghcr.io/acme/app:v1", "*:v1", true},
		{"ghcr.io/acme/app", "*", true},
		{"evil.example/nginx", "nginx", false},
		{"localhost:5000/app@sha256:" + strings.Repeat("a", 64), "localhost:5000/app*", true},
	} {
		ref, err := image.Parse("image", tt.image)
		if err != nil {
			t.Fatalf("%s: %v", tt.image, err)
		}
		if got := ref.Allowed([]string{"nothing", tt.pattern}); got != tt.want {
			t.Errorf("%q against %q: %t", tt.image, tt.pattern, got)
		}
	}
	ref, _ := image.Parse("image", "nginx")
	if ref.Allowed(nil) {
		t.Error("an empty allowlist admits")
	}
}

func TestParseRefusesWhatIsNoReferenceAndNamesTheField(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "docker.io/UPPER/case", "a b", "x:", "x@sha256:12", "http://x/y", strings.Repeat("a", 600), "x\x00"} {
		_, err := image.Parse("image", s)
		if !fault.Is(err, fault.Invalid) || fault.From(err).Field != "image" {
			t.Errorf("Parse(%q) = %v", s, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"nginx", "ghcr.io/a/b:c", "localhost:5000/x@sha256:" + strings.Repeat("0", 64), "a:b:c", "-"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ref, err := image.Parse("image", s)
		if err != nil {
			return
		}
		again, err := image.Parse("image", ref.Canonical())
		if err != nil || again.Canonical() != ref.Canonical() {
			t.Errorf("%q: canonical %q parses to %q, %v", s, ref.Canonical(), again.Canonical(), err)
		}
		if !ref.Allowed([]string{s}) {
			t.Errorf("%q does not allow itself", s)
		}
	})
}
