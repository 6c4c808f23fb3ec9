// Package lb is the load balancer of one node: it makes the kernel balance the VIPs of
// a document, probes their backends, announces their addresses by BGP, and answers
// an API.
//
// # What is where
//
//	service.go     New, Run and Serve: what the service is made of
//	config.go      settings of the process; configfile/: the document
//	controller.go  the one owner of state; settle.go: how the rest follows it
//	plan.go        the rules: what the datapath shall do, as a pure function
//	announce.go    which addresses BGP announces
//	watch.go       loading the document, and again when it changes
//	key.go         keys of the API; gate.go: who may do what, audit lines
//	http.go        what is served; http_api.go: translation of the contract
//	snapshot.go    the node at one moment; metrics.go: the same for Prometheus
//	plane.go       what the controller needs of others; open_linux.go: the real ones
//	needs.go       what a machine must have
//	datapath/ nexthop/ probe/ bgp/ maglev/   the parts, which know nothing of this package
//
// # Who has which state
//
//   - Service has what New made of the settings. None of it changes afterwards, and it needs no lock.
//   - controller has everything that changes while the node runs, behind its one lock: the document
//     in force, the inputs of the plan, and what the kernel, the prober and the speaker have of it.
//     Nobody else takes that lock. Whoever changes an input wakes run; run alone carries changes out.
//   - document has what is known of the file: when it was read, and what was wrong with it.
//   - plane, prober and speaker have state of their own, and know nothing of the controller's.
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
// A new backend is down until its first probe was answered. After a restart backends
// are as the kernel had them until then.
//
// # Invariants
//
//   - A failed probe wins over a drain. Ending an operator's drain leaves an
//     orchestrator's in force, and the other way round.
//   - The kernel gets a document whole or not at all; what is wrong with a file
//     changes nothing.
//   - The process can end and start again without disturbing a connection: the kernel
//     keeps balancing, and nothing is applied before the ways to backends are known.
//   - An address is announced only while the kernel has a healthy backend for it.
//   - Ids of backends are never given twice in one run of the process.
//   - Keys are kept as hashes and never logged.
package lb
