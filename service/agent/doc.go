// Package agent is the program at an edge site: it stands between the devices and
// programs there and the edge control plane, over a link that is often bad.
//
// # What is where
//
//	service.go    New, Run and Serve: what the agent is made of
//	config.go     its settings
//	identity.go   site id, token, key and certificate: the file that holds them
//	enroll.go     getting an identity, and renewing its certificate
//	client.go     requests to the control plane; answer/: which answers are believed
//	link.go       whether there is a link; heartbeat.go: the loop that finds out
//	forward.go    events go out; suspect.go: one of them is refused
//	report.go     how far updates are
//	sync.go       devices and patches go out; pull.go: what is desired comes in
//	http.go       the local API (api/agent)
//	listen.go     where it is served, and to whom
//	status.go     how everything is; doctor.go: what keeps it from working
//	outbox/ twin/ ota/ workload/   what is kept and done without a link
//	store/                         how it is kept
//
// # States of the link
//
//	enrolling ─► connecting ─► online ◄─► offline
//	                  │           │          │
//	                  └───────────┴──────────┴──► refused (the site is revoked)
//	                  ▲                              │
//	                  └── known again, or a new site ┘
//
// # Invariants
//
//   - What a local program was told is accepted survives kill -9 and the loss of
//     power, and is sent until the control plane has answered it.
//   - Nothing but heartbeats is sent until one was answered. Each loop waits a random
//     while after that, so that a fleet does not come back in one moment.
//   - The identity is one file, replaced as a whole, so key and certificate always
//     belong together. If the agent dies between the answer to an enrollment and its
//     storing, it enrolls a second site; the first stays offline and can be deleted.
//   - An answer counts only if it is as the contract says. Events are deleted only for
//     receipts that name them.
//   - Once the control plane has revoked the site, nothing is sent but a question every
//     hour, and nothing that was kept is given up. Every other refusal is asked again.
//   - What is stored can be deleted also on a full disk: space is kept for it.
package agent
