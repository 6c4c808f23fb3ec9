// Package fleet combines many hosts into one. The Registry knows the nodes, places VMs on them and
// lists their VMs. A node's Reporter sends the registry heartbeats with its free capacity.
//
// Route leads any other request of a caller of the registry to a node.
//
// # Room
//
// A node's free capacity is what its last heartbeat reported, minus the reservations: VMs that the
// registry has sent there and that this heartbeat may not count yet. A reservation is made before
// the node is asked, under one lock, so that concurrent creates never get the same capacity. It is
// removed
//
//   - immediately when the node refuses the VM or could not be reached;
//   - when the VM is deleted through the registry;
//   - otherwise with the first heartbeat that is certain to count the VM.
//
// A heartbeat is certain to count a VM if it began after the create had ended. Clocks cannot tell
// that, so the registry answers every heartbeat with a number, the sequence, and the next heartbeat
// returns it (after). The node reads its numbers after it got that response, so they count every VM
// whose create had ended when the response was made. A heartbeat with another number than the last
// one was overtaken on its way: it shows that the node is alive, but its numbers are ignored. Until
// the second heartbeat after a create, a VM may be counted twice, but never not at all. A create
// that finds no capacity only for that reason waits briefly for heartbeats.
//
// If the outcome of a create is unknown, for example because the connection was lost, its
// reservation is kept for another minute, since the node may still be working on it. The create is
// not tried on another node, so that there are never two VMs.
//
// # Invariants
//
//   - The table nodes stores free capacity with reservations already subtracted, so that a
//     restarted registry continues from there. The reservations themselves are in memory: only one
//     registry at a time may use a database.
//   - Only SetCordon changes a cordon, which persists across heartbeats and restarts.
//   - Responses of nodes are not trusted: size, time and form are limited, redirects are not
//     followed, and a tenant never sees what a node reports as another's.
package fleet
