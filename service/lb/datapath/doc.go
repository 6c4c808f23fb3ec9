// Package datapath balances packets in the kernel: two XDP programs (bpf/), their
// maps, and the Go that keeps the maps as wanted.
//
// # What becomes of a packet
//
// The program balance sees every frame that comes in on the interfaces that it is attached to: one
// copy of it on each, with maps that all share. It looks for a
// VIP by address, protocol and port, first the VIP of exactly that port, then a range.
//
//	for a VIP ──> its flow is known, and the backend still has it ──> that backend
//	          └─> a SYN, or not known ──> the client's backend, with affinity
//	                                  └─> the VIP's hash table (package maglev)
//	                                      and it is remembered, if there is room (room.go)
//	from a backend of a NAT VIP ──────> back to the client, in the VIP's name
//	anything else ────────────────────> the kernel, as if the program were not there
//
// What then goes to a backend is translated (nat), sent to its Ethernet address as it
// is (dsr), or put into a tunnel (dsr-ipip, dsr-gre). Fragments follow their first one,
// ICMP errors go to the backend or client whose packet they are about, and a packet
// that does not fit a tunnel is answered with "too big".
//
// # Invariants
//
//   - A flow stays at its backend while that is healthy or draining, whatever happens to
//     other backends and VIPs, on whichever CPU its packets come in, and across restarts
//     and upgrades of the daemon: maps and program are pinned (/sys/fs/bpf), and what is in
//     maps of another layout is carried over (carry.go).
//   - A backend's epoch goes up when it goes down, when it is removed, and when its place
//     in the maps is given to another; a flow remembers the epoch, and is hashed again
//     when it differs. So nothing ever walks the flow table to drop flows.
//   - A hash table is replaced as a whole: a packet sees the old one or the new one.
//   - A flow that the full table forgot is found again by the hash, unless the hash
//     table has changed since. In mode nat it takes its reply's entry, or one of the few
//     segments a second that are adopted.
//   - One VIP cannot fill the flow tables while there are others.
//   - Every packet that is dropped is counted by one reason, and for its VIP if it has one.
//
// # Limits
//
// 4096 VIPs, 65535 pairs of a VIP and a backend, 16384 blocks of ranges for each IP
// family. Packets with a VLAN tag are left to the kernel. The node's own connections
// to a VIP do not come in on an interface, so they are not balanced.
package datapath
