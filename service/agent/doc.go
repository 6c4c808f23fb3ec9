// Package agent is the program at an edge site. It connects the devices and programs there with the
// edge control plane, over a link that is often bad.
//
// # Files
//
//	service.go    New, Run and Serve: assembling the agent
//	config.go     settings
//	folder.go     check of the data folder
//	identity.go   site ID, token, key and certificate, and the file that holds them
//	enroll.go     enrollment, and renewal of the certificate
//	client.go     requests to the control plane; answer/: checks of its responses
//	link.go       state of the link; heartbeat.go: the loop that maintains it
//	forward.go    sending events; suspect.go: handling events that are refused
//	report.go     sending reports of updates
//	sync.go       sending devices and patches; pull.go: fetching the desired state
//	http.go       the local API (api/agent)
//	listen.go     listeners of the local API, and who may use them
//	status.go     the agent's status; doctor.go: diagnosis of problems
//	outbox/ twin/ ota/ workload/   the work at the site, which continues without a link
//	store/                         the database
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
//   - Events and changes that were acknowledged to a local program survive kill -9 and power loss.
//     They are sent until the control plane has responded.
//   - Only heartbeats are sent until one has been answered. After that, each loop waits for a
//     random time, so that the agents of a fleet do not all reconnect in the same moment.
//   - The identity is one file that is replaced as a whole, so key and certificate always match. If
//     the agent dies after an enrollment but before it has stored the identity, it enrolls a second
//     site; the first one stays offline and can be deleted.
//   - A response counts only if it matches the contract. Events are deleted only after a receipt
//     that names them.
//   - Once the control plane has revoked the site, the agent only asks every hour whether that is
//     still so, and keeps everything that it has stored. After any other refusal, it retries.
//   - Stored data can be deleted even on a full disk: space is reserved for that.
package agent
