// Package guest is the daemon's side of the guest agent: a Client runs processes, moves
// files and asks things in a guest over a stream. Package wire has the protocol, package
// agent the side of the guest.
//
// # States of a client
//
//	Connect ── preamble answered, hello read ──► open ── Close, end of the stream,
//	   │                                                 violation ──► over (Done, Err)
//	   └── ctx ended, or another answer ──► error, and the stream is closed
//
// A client that is over stays so; connect another one over a new stream. One that waits
// for a guest to boot connects again every few seconds, since what was written to a guest
// that starts anew is lost.
//
// # Invariants
//
// The guest is an enemy.
//
//   - What it sends is bounded: a frame, and a window of data for each of at most
//     wire.MaxCalls calls. Whatever it sends beyond, or for calls that are not open, or in
//     contradiction to what it said, ends the session with an ErrViolation that names it.
//   - Nothing that it sends or leaves unsent makes a call outlive its context, or the
//     session outlive a write that the guest does not take for writeLimit.
//   - A caller who does not read or write holds up only its own call. A Read or a Write of
//     a caller that has begun is waited for, but for that of an Exec's Stdin.
//   - Texts of the guest are cut and made printable before they are in an error.
//   - The secret is in no error.
package guest
