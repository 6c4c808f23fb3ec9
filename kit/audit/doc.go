// Package audit is an append-only record of who changed what, built so that
// tampering shows.
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
// The chain consists of segments, which are signed, too. The first one is the genesis: it is made
// with the empty log, and its random id is the id of the log. Before it extends the chain, Append
// checks that the head is signed, that its entry is there with that hash, that no entry lies beyond
// it, and that the log still holds the last place that this process knows of. If that fails, the
// service continues: Append begins a segment behind everything that is there, and its first entry,
// "audit.break", records what was expected and what was found. What is there is left as evidence,
// and is never signed. A segment names the segment before it and where that one was last known to
// end, so that none can be removed or put in unseen.
//
// # Checkpoints
//
// Someone who puts back an older copy of the whole database also puts back its head. So signed
// checkpoints of the head are written to a file outside of the database, at most one a second and
// always after the commit, and can be sent to an endpoint. Open and Verify hold the database against
// the file. A checkpoint may lag behind the database; the database must never lag behind it.
//
// # States of a break
//
// A break is found, by Open, Append, Check or Inspect; recorded, as an entry "audit.break", which
// raises the alarm; and acknowledged, as an entry "audit.acknowledge". Verify continues to show it. A
// break that is the same as a recorded one is not recorded again.
//
// # Invariants
//
//   - Append runs in the caller's transaction: the entry and the change that it
//     reports are stored together or not at all.
//   - Appends are serialised by the lock on the head, so replicas share one chain.
//   - A change is not refused because the log was tampered with.
//   - A number that was known to be in use is not used again.
//   - What an entry says of the log itself, such as an acknowledgement, counts only if something
//     signed vouches for it.
//   - Details must not hold secrets; the log is readable by viewers.
//
// # What is not protected
//
//   - Whoever has the secret key can sign what they like. With the checkpoints, too, they can
//     forge all of the log. Keep checkpoints where the service's host cannot change them.
//   - Without the file of checkpoints, a database that is put back between two runs of the service
//     is not found out. That the file is missing is logged, and Verify shows since when there is one.
//   - What was cut off after the newest checkpoint, while the service was down, is not found out:
//     that is at most about one second of entries.
//   - A changed entry in the middle is found by the verification of all of the log, which runs every
//     day, and not by Append.
//   - Whoever can write to the database can end the alert by deleting rows that it is made from.
//     The log entry remains, and the next full verification raises the alarm again.
package audit
