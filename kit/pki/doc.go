// Package pki is a small certificate authority that lives in a directory and
// issues client certificates to sites.
//
// The authority signs with one ECDSA P-256 key. Profiles follow RFC 5280; the
// site's identity is its common name and a SPIFFE id
// (https://github.com/spiffe/spiffe/blob/main/standards/SPIFFE-ID.md).
//
// Invariants:
//   - Of a certificate request nothing but the public key enters the certificate.
//   - The private key is never readable by other users: it is created so, and a
//     key file found otherwise is refused.
//   - Processes that start at once in one directory end up with one key and one
//     certificate.
//   - No certificate outlives the authority's.
package pki
