// Package pki is a small certificate authority that is stored in a directory and issues client
// certificates to sites.
//
// The authority signs with one ECDSA P-256 key. Profiles follow RFC 5280; the
// site's identity is its common name and a SPIFFE id
// (https://github.com/spiffe/spiffe/blob/main/standards/SPIFFE-ID.md).
//
// Invariants:
//   - Only the public key of a certificate request enters the certificate.
//   - The private key is never readable by other users: it is created so, and an
//     existing key file that other users can read is refused.
//   - Processes that start concurrently in one directory end up with the same key
//     and certificate.
//   - No certificate outlives the authority's.
package pki
