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
//   - Ending a session tells the peer so (Cease), and the peer drops the routes at once
//     and not after the hold time.
//   - With graceful restart, the end of the process tells nobody: peers keep the routes
//     until the next process has announced its own, or until the time is over. A speaker
//     says that forwarding continued only if its user says so (Config.Restarting).
//   - Passwords are never logged.
//
// Memory: a peer's routes are dropped but for the copy that the protocol engine keeps
// of what it received. Routers need not announce anything to this node. The session with
// one that announces more than 10,000 routes of a family ends (Cease, maximum number of
// prefixes reached), and is tried again five minutes later.
package bgp
