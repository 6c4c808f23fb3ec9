// Package nbd is a client of the network block device protocol, over Unix sockets, as QEMU serves
// it: reads, writes, and the state of ranges (holes, or what a dirty bitmap notes).
//
// A Conn is connecting (Open: negotiation), then open, then broken. It breaks when a request is
// interrupted, or when the server sends something that the protocol does not allow, and never
// recovers. A request that the server refuses breaks nothing.
//
// Invariants:
//
//   - The server is not trusted: it may be a QEMU that its guest has taken over. Every length is
//     checked before memory is taken, answers never exceed what was asked for, and their number is
//     limited.
//   - Every call ends: with its answer, its context, or the loss of the connection.
//   - A read returns all the bytes, or an error.
//
// The protocol: https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md
package nbd
