// Package qmp speaks QEMU's machine protocol over a Unix socket: one JSON object a
// line, commands with their answers, and events.
//
// A client is connecting (Dial: greeting, negotiation), then connected, then lost; it never leaves
// lost. Use a new Dial to reconnect to a virtual machine that outlives its client. QEMU serves one
// client per socket at a time: a second client receives nothing until the first has left. Start
// QEMU with -qmp unix:PATH,server=on,wait=on: it then waits for its first client before it creates
// the machine, so that no event is missed. Later clients can come and go.
//
// Invariants:
//
//   - Every Execute ends: with its response, the end of its context, or the loss of the connection.
//   - QEMU's output is not trusted, since a guest may have taken it over: lines, events and queues
//     are limited, and anything that is not QMP ends the connection.
//   - The reader never blocks. A subscriber that is too slow loses its oldest events and is told
//     how many.
//   - Errors name commands, never their arguments, which may contain secrets.
//
// Numbers keep their 64 bits: into typed values they are decoded exactly, into an
// any they come as json.Number.
package qmp
