//go:build linux

// Package agent is what runs in a guest and does what the daemon asks over the protocol
// of package wire: processes, files, network, shutdown, freezing, its own secret.
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
//   - Nothing is done without the secret, which is compared in constant time and never
//     logged. After a few wrong ones in a minute each further one, on any stream, is
//     answered after wrongDelay only, one at a time.
//   - What a session started ends with it: processes by their group, calls by their
//     context, frozen file systems by thawing. Only a detached process stays.
//   - A file is put whole or not at all.
//   - Memory is bounded: maxCalls calls a session, of a window of data each; maxStreams
//     sessions.
//   - File systems are never frozen for longer than maxFreeze, also when the host is gone.
package agent
