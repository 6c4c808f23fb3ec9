// Package bgp announces addresses to routers: one host route (/32 or /128) for each,
// with this node as the next hop. It is a speaker that only talks: what routers
// announce is not used and not passed on, and nothing listens for connections.
//
// # States of a session
//
//	idle ──► active ──► opensent ──► openconfirm ──► established
//	  ▲                                                  │
//	  └── any failure; 5 s later it is active again ─────┘
//
// A session is active while it tries to connect, every few seconds and for ever.
//
// # Invariants
//
//   - A router that has a session has exactly the routes of the last Announce: also
//     one that restarted, and one that Configure added later.
//   - Configure leaves the sessions alone that are wanted as they were. Another local
//     AS number or router id ends them all, since peers were told both.
//   - Ending a session tells the peer so (Cease), and graceful restart is not
//     offered: the peer drops the routes at once and not after the hold time.
//   - Passwords are never logged.
//
// Memory: a peer's routes are dropped but for the copy that the protocol engine keeps
// of what it received. Routers need not announce anything to this node, and a full
// Internet table would take hundreds of megabytes here.
package bgp
