// Package lb is the load balancer of one node. It makes the kernel balance the VIPs of a document,
// probes their backends, announces their addresses by BGP, and serves an API.
//
// # Files
//
//	service.go     New, Run and Serve
//	config.go      settings of the process; configfile/: the document
//	controller.go  owns all changing state; settle.go: applies its changes
//	plan.go        the rules: what the datapath should do, as a pure function
//	announce.go    the addresses that BGP announces
//	watch.go       loads the document, and again whenever it changes
//	key.go         keys of the API; gate.go: authentication, authorization, audit lines
//	http.go        the HTTP handler; http_api.go: translation of the contract
//	snapshot.go    the state of the node at one moment; metrics.go: the same for Prometheus
//	plane.go       the controller's interfaces to other parts; open_linux.go: the real ones
//	needs.go       requirements of a machine
//	datapath/ nexthop/ probe/ bgp/ maglev/   the parts, which do not depend on this package
//
// # Ownership of state
//
//   - Service holds the state that New builds from the settings. It never changes and needs no lock.
//   - controller holds everything that changes while the node runs, behind one lock that only it
//     takes: the current document, the inputs of the plan, and what was last passed to the kernel,
//     the prober and the speaker. Changing an input wakes run; only run applies changes.
//   - watchedFile holds the state of the configuration file: when it was loaded, and its error if it
//     was refused.
//   - plane, prober and speaker have their own state and do not know the controller's.
//
// # States of a backend, for each VIP that it serves
//
//	          drain, by an operator or an orchestrator
//	healthy ─────────────────────────────────────────────► draining
//	   ▲  ◄──────────────────────────────────────────────     │
//	   │        neither drains any more                       │
//	   │ probes succeed                          probes fail  │
//	   └───────────────────── down ◄──────────────────────────┘
//
// A new backend is down until its first probe is answered. After a restart, backends keep
// the state that they have in the kernel until then.
//
// # Invariants
//
//   - A failed probe takes precedence over a drain. Ending an operator's drain does not end an
//     orchestrator's, and vice versa.
//   - The kernel gets a document as a whole or not at all. An invalid file changes nothing.
//   - The process can stop and restart without disturbing a connection: the kernel keeps
//     balancing, and nothing is applied before the next hops of backends are known.
//   - An address is announced only while the kernel has a healthy backend for it.
//   - IDs of backends are never reused within one run of the process.
//   - Keys are kept as hashes and never logged.
package lb
