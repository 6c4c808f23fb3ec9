// Package audit is an append-only record of who changed what, built so that
// tampering shows.
//
// # The chain
//
// Entries are numbered without gaps from 1. The hash of entry n is
//
//	hash(n) = SHA-256(hash(n-1) || canonical(n))
//
// where hash(0) is 32 zero bytes and canonical is the JSON array described at
// Entry.canonical. Changing, removing or reordering an entry breaks every hash
// after it. Cutting off the tail would not; so the last number and hash are
// signed with Ed25519 (the head), and a log that ends before its head, or whose
// head does not verify, is reported as damaged. Someone who can put back an older
// copy of the whole database together with its head is only found out by
// comparing with a head kept elsewhere: Verify returns it for that purpose.
//
// # Invariants
//
//   - Append runs in the caller's transaction: the entry and the change that it
//     tells of are stored together or not at all.
//   - Appends are serialised by the lock on the head, so replicas share one chain.
//   - Details must not hold secrets; the log is readable by viewers.
package audit
