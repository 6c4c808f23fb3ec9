// Package qmp speaks QEMU's machine protocol over a Unix socket: one JSON object a
// line, commands with their answers, and events.
//
// A client is connecting (Dial: greeting, negotiation), then connected, then lost;
// nothing leads back from lost. A virtual machine that outlives its client is met
// again with a new Dial. QEMU serves one client a socket at a time: who comes second
// hears nothing until the first has gone. A QEMU is started with
// -qmp unix:PATH,server=on,wait=on: it then waits for its first client before it
// makes the machine, so that no event is missed; later clients come and go.
//
// Invariants:
//
//   - Every Execute ends: with its answer, with the end of its context, or with the
//     loss of the connection, whichever comes first.
//   - What QEMU says is not trusted, since a guest may have taken it over: lines,
//     events and queues are bounded, and whatever is not QMP loses the connection.
//   - The reader waits for nobody. A subscriber that is too slow loses its oldest
//     events and is told how many.
//   - Errors name commands, never their arguments, which may hold secrets.
//
// Numbers keep their 64 bits: into typed values they are decoded exactly, into an
// any they come as json.Number.
package qmp
