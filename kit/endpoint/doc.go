// Package endpoint keeps the webhook endpoints that people configure, and delivers events to them.
//
// An endpoint has a URL, a format, and patterns of the events that it wants. Publish stores a
// delivery for each endpoint that wants an event, in the transaction of what happened. Jobs
// (package jobs) make the attempts, log each of them, and space them by a schedule and by what the
// target asks for.
//
// # States of a delivery
//
//	   try again later
//	       +---+
//	       v   |    2xx
//	-----> pending ---------------------------------------------------> delivered
//	       ^   |                                                         |
//	       |   +-------------------------------------------------> failed
//	       |      refused for good, attempts used up, disabled       |   |
//	       +---------------------------- replayed -------------------+---+
//
// # Invariants
//
//   - A delivery is made at least once, in no order. Receivers know repeats by the message id, which
//     is the delivery's.
//   - Requests go through webhook.Client, so that its guard applies to every one of them.
//   - A secret is stored sealed, tied to its endpoint, and shown once. The URL of a chat is a secret,
//     too: services show it only to who may change it.
//   - A target that answers 410 disables its endpoint.
//   - What is read or changed for a caller is within a db.Scope, on the column org_id.
//
// It is for events that people subscribe to. The edge control plane's routes, which are ordered and
// many, have an engine of their own.
package endpoint
