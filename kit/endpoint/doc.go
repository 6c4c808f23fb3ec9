// Package endpoint stores the webhook endpoints that users configure, and delivers events to them.
//
// An endpoint has a URL, a format, and patterns of the events that it wants. Publish stores a
// delivery for each endpoint that wants an event, in the transaction of the change. Jobs (package
// jobs) make the attempts, record each of them, and space them by a schedule and the target's
// Retry-After.
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
//   - A delivery arrives at least once, in no particular order. Receivers recognize
//     repeats by the message id, which is the delivery's.
//   - Requests go through webhook.Client, so its guard applies to all of them.
//   - A secret is stored sealed, bound to its endpoint, and shown once. The URL of a
//     chat is also a secret: services show it only to callers who may change it.
//   - After a rotation of the secret key, which calls Reseal, no secret needs the old
//     key.
//   - A target that fails several times in a row is spared for up to a minute by a breaker per
//     endpoint and process. A delivery that is held back for a day fails.
//   - A target that responds with 410 disables its endpoint.
//   - Reads and changes for a caller are within a db.Scope, on the column org_id.
//
// It is for events that users subscribe to. The edge control plane's routes, which are ordered and
// numerous, have their own engine.
package endpoint
