// Package fleet makes one of many hosts: the Registry knows the nodes, places VMs on
// them and asks them what they run; a node's Reporter tells the registry that it lives
// and what it has left.
//
// # Room
//
// What a node has left is what its last heartbeat said, less the reservations: VMs that
// the registry has sent there and that this heartbeat may not count yet. A reservation is
// made before the node is asked, under one lock, so that creates at the same time never
// get the same room. It goes
//
//   - at once when the node refuses the VM, or was not reached at all;
//   - when the VM is deleted through the registry;
//   - else with the first heartbeat that is certain to count the VM.
//
// Certain is a heartbeat that began after the create had ended, and no clock tells that.
// So every heartbeat that is taken in is answered with a number, the sequence, and the
// next one carries it back (after). The node reads its numbers after it got that
// answer, so they count every VM whose create had ended when the answer was made. A
// heartbeat that carries another number than the last one given out was overtaken on
// its way: it shows that the node lives, and its numbers are left alone. Until the
// second heartbeat after a create, a VM may be counted twice, never not at all; a create
// that finds no room for that reason alone waits a little for heartbeats.
//
// A create whose outcome is unknown, for example because the connection was lost, keeps its
// reservation a minute longer, as the node may still be at it, and is not tried
// elsewhere, so that there are never two VMs.
//
// # Invariants
//
//   - The table nodes holds what is left with reservations taken off, so that a
//     restarted registry starts from there. Reservations themselves are in memory:
//     one registry at a time uses a database.
//   - A cordon is changed by SetCordon alone, and stays over heartbeats and restarts.
//   - No answer of a node is trusted: its size, time and form are bounded, redirects are
//     not followed, and a tenant is never shown what a node says is another's.
package fleet
