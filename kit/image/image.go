// Package image parses OCI image references and checks them against allowlists.
//
// References are parsed by the library that defined them (distribution/reference), so "nginx" and
// "docker.io/library/nginx:latest" are the same image, as for every container runtime.
package image

import (
	"github.com/distribution/reference"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/glob"
)

// MaxLength is the longest reference or pattern, in bytes.
const MaxLength = 512

// Reference is a parsed image reference.
type Reference struct {
	given     string
	canonical string // with registry, and with tag or digest
	name      string // with registry, without tag and digest
}

// Parse parses a reference. Faults name field.
func Parse(field, s string) (Reference, error) {
	if len(s) > MaxLength {
		return Reference{}, fault.InvalidField(field, "is longer than %d bytes", MaxLength)
	}
	named, err := reference.ParseNormalizedNamed(s)
	if err != nil {
		return Reference{}, fault.InvalidField(field, "%q is not an OCI image reference: %v", s, err)
	}
	return Reference{given: s, canonical: reference.TagNameOnly(named).String(), name: named.Name()}, nil
}

// String returns the reference as it was given.
func (r Reference) String() string { return r.given }

// Canonical returns the reference with registry and tag or digest.
func (r Reference) Canonical() string { return r.canonical }

// Allowed reports whether one of the patterns matches the image. A star matches any run of
// characters, including slashes. A pattern is compared with the reference as it was given, its
// canonical form, and the full name without tag and digest: "ghcr.io/acme/*" allows every tag of
// every image there, "nginx" allows every tag of Docker's nginx.
//
// Beware of a star directly after a host name: "ghcr.io*" also allows ghcr.io.evil.example/x. End
// the host with a slash.
func (r Reference) Allowed(patterns []string) bool {
	for _, p := range patterns {
		if p == r.given || glob.Match(p, r.canonical) || glob.Match(p, r.name) {
			return true
		}
		// A pattern without registry means Docker Hub, as it does in a reference.
		if full, err := reference.ParseNormalizedNamed(p); err == nil {
			if full.String() == r.canonical || (reference.IsNameOnly(full) && full.Name() == r.name) {
				return true
			}
		}
	}
	return false
}
