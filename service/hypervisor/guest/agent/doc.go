//go:build linux

// Package agent runs in a guest and serves the daemon's requests over the protocol of package wire:
// processes, files, network, shutdown, freezing, rotation of its secret, and an identity of its own
// for a guest that began with the memory of another one (personalize.go).
//
// # States of a stream
//
//	waiting ── preamble ──► session ── preamble, malformed frame, end of the stream ──► waiting
//	   │
//	   └── end of the stream ──► over; a virtio-serial port is read again, since its host
//	                             comes back
//
// # Invariants
//
//   - Nothing is done without the secret, which is compared in constant time and never logged.
//     After a few wrong secrets within a minute, each further one, on any stream, is answered only
//     after wrongDelay, one at a time.
//   - What a session started ends with it: processes by their group, calls by their context, frozen
//     file systems by thawing. Only detached processes stay.
//   - A file is written completely or not at all.
//   - Memory is limited: maxCalls calls per session, with one window of data each; maxStreams
//     sessions.
//   - A personalized guest knows nothing any more that its template's other guests can know: the new
//     secret is set last, and nobody who has it is served before.
//   - File systems are never frozen for longer than maxFreeze, even if the host is gone.
package agent
