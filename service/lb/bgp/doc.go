// Package bgp announces addresses to routers: one host route (/32 or /128) for each, with this node
// as the next hop. The speaker only announces: it neither uses nor passes on routes of its peers,
// and it does not listen for connections.
//
// # States of a session
//
//	idle ──► active ──► opensent ──► openconfirm ──► established
//	  ▲                                                  │
//	  └── any failure; after 5 s it is active again ─────┘
//
// A session is active while it tries to connect, every few seconds without limit.
//
// # Invariants
//
//   - A router with an established session has exactly the routes of the last Announce. That holds
//     after the router restarts, and for routers that Configure adds later.
//   - Configure does not touch sessions whose settings did not change. A new local AS number or
//     router ID ends all sessions, since peers know both.
//   - Ending a session sends a Cease, so that the peer drops the routes at once and not only after
//     the hold time.
//   - With graceful restart, peers are not notified when the process ends: they keep the routes
//     until the next process has announced its own, or until the restart time is over. A speaker
//     claims that forwarding continued only if Config.Restarting is set.
//   - Passwords are never logged.
//
// Memory: routes of peers are rejected, but the BGP library keeps a copy of what it received.
// Routers need not announce anything to this node. If a peer announces more than 10,000 routes of a
// family, its session ends (Cease, maximum number of prefixes reached) and is retried five minutes
// later.
package bgp
