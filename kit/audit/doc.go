// Package audit is an append-only, tamper-evident record of who changed what.
//
// # The chain
//
// Entries are numbered from 1. The hash of entry n is
//
//	hash(n) = SHA-256(hash(n-1) || canonical(n))
//
// where canonical is the JSON array described at Entry.canonical. Changing, removing or reordering
// an entry breaks every hash after it. The end of the chain, the head, is signed with Ed25519.
//
// # Segments
//
// The chain consists of segments, which are also signed. The first one is the genesis: it is
// created with the empty log, and its random id is the id of the log. Before Append extends the
// chain, it checks that the head is signed, that its entry exists with that hash, that no entry
// lies beyond it, and that the log still holds the last place that this process knows of. If a
// check fails, the service continues: Append begins a segment after everything that exists, and its
// first entry, "audit.break", records what was expected and what was found. The existing rows are
// left as evidence and never signed. A segment names the segment before it and the last known end
// of that segment, so that removing or inserting a segment is detected.
//
// # Rotation of the key
//
// The whole log has one signing key. Rotate replaces it in one transaction. It checks the end of the
// log with the old key, and signs all segments again with the new one. Then it begins a segment,
// whose AfterHash is the hash of the last entry so far, and whose first entry, "audit.key", names
// both public keys. This is not a break. From then on, nothing in the database depends on the old
// key:
//
//   - Whoever stole the old key cannot forge the entries that it signed. The new key signed the
//     hash of the last of them, and so all of them.
//   - They cannot sign a head, a segment or an acknowledgement either.
//   - Old checkpoints still count. The old public key is kept in a table, signed by the new key,
//     with the last segment that it signed. A checkpoint of a retired key counts for those segments
//     only. The newest checkpoint is the one of the furthest place, so one that somebody adds with
//     the old key never hides one of the current key. The worst that they can do to the file is to
//     raise an alarm, as with any line that is not ours.
//
// A Log may know several private keys while replicas are rotated. It signs with the one that the log
// has, and only Rotate changes that. So a replica that was not yet restarted continues the log with
// the new key. As long as a replica accepts the old key, somebody who stole it and can write to the
// database could replace the whole log; the checkpoints of the new key detect that. So the old key
// should not stay accepted after the rotation.
//
// # Checkpoints
//
// Someone who restores an older copy of the whole database also restores its head. So signed
// checkpoints of the head are written to a file outside of the database, at most one per second and
// always after the commit, and can be sent to an endpoint. Open and Verify compare the database
// with the file. A checkpoint may lag behind the database; the database must never lag behind a
// checkpoint.
//
// # States of a break
//
// A break is found by Open, Append, Check or Inspect; then recorded in an entry "audit.break",
// which raises the alarm; then acknowledged in an entry "audit.acknowledge". Verify continues to
// report it. A break that equals a recorded one is not recorded again.
//
// # Invariants
//
//   - Append runs in the caller's transaction: the entry and the change that it
//     reports are stored together or not at all.
//   - Appends are serialised by the lock on the head, so replicas share one chain.
//   - Changes are never refused because the log was tampered with.
//   - A number that was known to be in use is not used again.
//   - An entry about the log itself, such as an acknowledgement, counts only if
//     something signed vouches for it.
//   - Details must not hold secrets; viewers can read the log.
//
// # Limitations
//
//   - Whoever has the secret key can sign anything. If they also have the checkpoints,
//     they can forge the whole log. Keep checkpoints where the service's host cannot
//     change them.
//   - Without the file of checkpoints, a database that is restored between two runs of
//     the service is not detected. A missing file is logged, and Verify reports since
//     when the current file exists.
//   - Entries that were cut off after the newest checkpoint while the service was down
//     are not detected: at most about one second of entries.
//   - A changed entry in the middle is found by the daily verification of the whole
//     log, not by Append.
//   - Whoever can write to the database can end the alert by deleting rows that it is
//     derived from. The log entry remains, and the next full verification raises the
//     alarm again.
package audit
