// Package guest is the daemon's side of the guest agent: a Client runs processes, transfers files
// and sends queries in a guest over a stream. Package wire defines the protocol, package agent is
// the guest's side.
//
// # States of a client
//
//	Connect ── preamble answered, hello read ──► open ── Close, end of the stream,
//	   │                                                 violation ──► over (Done, Err)
//	   └── ctx ended, or another answer ──► error, and the stream is closed
//
// A client that is over stays over; connect a new one over a new stream. To wait for a booting
// guest, reconnect every few seconds, since data written to a guest that then reboots is lost.
//
// # Invariants
//
// The guest is untrusted.
//
//   - What it sends is limited: one frame, and a window of data for each of at most wire.MaxCalls
//     calls. Anything beyond that, for calls that are not open, or inconsistent with what it sent
//     before, ends the session with an ErrViolation that describes it.
//   - Nothing that it sends or fails to send makes a call outlive its context, or the session
//     outlive a write that the guest does not accept within writeLimit.
//   - A caller who does not read or write blocks only its own call. A Read or Write of a caller
//     that has started is waited for, except a Read of an Exec's Stdin.
//   - Texts of the guest are shortened and made printable before they are put in an error.
//   - Errors never contain the secret.
package guest
