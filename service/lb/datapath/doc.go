// Package datapath balances packets in the kernel. It consists of two XDP programs (bpf/), their
// maps, and Go code that keeps the maps up to date.
//
// # The path of a packet
//
// The program balance sees every frame that arrives on the interfaces that it is attached to. Each
// interface has its own copy of the program; all copies share the maps. It looks up a VIP by
// address, protocol and port. A VIP with exactly that port takes precedence over a range.
//
//	for a VIP ──> its flow is known, and the backend still has it ──> that backend
//	          └─> a SYN, or not known ──> the client's backend, with affinity
//	                                  └─> the VIP's hash table (package maglev)
//	                                      and it is remembered, if there is room (room.go)
//	from a backend of a NAT VIP ──────> back to the client, in the VIP's name
//	anything else ────────────────────> the kernel, as if the program were not there
//
// A packet for a backend is translated (nat), sent unchanged to the backend's Ethernet address
// (dsr), or put into a tunnel (dsr-ipip, dsr-gre). Fragments follow their first fragment. ICMP
// errors go to the backend or client whose packet they are about. A packet that does not fit into a
// tunnel is answered with a "too big" error.
//
// # Invariants
//
//   - A flow stays at its backend while that is healthy or draining, whatever happens to other
//     backends and VIPs, on whichever CPU its packets arrive, and across restarts and upgrades of
//     the daemon: maps and program are pinned (/sys/fs/bpf), and the content of maps with another
//     layout is carried over (carry.go).
//   - The epoch of a backend increases when it goes down, when it is removed, and when its place in
//     the maps is reused. A flow stores the epoch, and is hashed again if it differs. So nothing
//     has to walk the flow table to drop flows.
//   - A hash table is replaced as a whole: a packet sees either the old one or the new one.
//   - A flow that was evicted from the full table finds its backend again by the hash, unless the
//     hash table has changed since. In mode nat, it takes over the entry for its replies, or it is
//     one of the few segments per second that are adopted.
//   - One VIP cannot fill the flow tables while there are others.
//   - Every dropped packet is counted under one reason, and for its VIP if it has one.
//
// # Limits
//
// 4096 VIPs, 65535 pairs of a VIP and a backend, 16384 blocks of port ranges for each IP family.
// Packets with a VLAN tag are left to the kernel. Connections from the node itself to a VIP are not
// balanced, since they do not arrive on an interface.
package datapath
