// Package nbd serves a disk by the NBD protocol to one client, as QEMU speaks it (fixed newstyle
// negotiation with NBD_OPT_GO or NBD_OPT_EXPORT_NAME, simple replies).
//
//	serve.go       the protocol
//	overlay.go     a disk that can be written to, above one that cannot
//
// # Invariants
//
//   - The client is not trusted: it may be a process that a guest has taken over. Lengths are checked
//     before memory is taken, and a violation of the protocol ends the connection.
//   - Serve returns when the connection ends, and never closes the disk.
//
// Source: https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md
package nbd
