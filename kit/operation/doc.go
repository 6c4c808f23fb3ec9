// Package operation runs what takes long: durable jobs (package jobs) that callers follow as
// operations, with progress, cancellation, who began it, and what became of it.
//
//	operation.go   Operation and its row; States
//	runner.go      Runner: begins, runs, awaits and cancels operations
//	key.go         Key: idempotency
//	watch.go       Watch: the states of an operation, as server-sent events
//
// The table operations is the service's: Migrations makes it, and a service that stores more of its
// operations adds columns, and embeds Operation in a row of its own. What somebody may see is the
// service's business, too.
//
// # Invariants
//
//   - An operation and its job begin in one transaction, and are forgotten together.
//   - What fails fails for good. What the end of the process broke off is done again from its
//     beginning, so it must be idempotent.
//   - What a caller reads of a failure names no inner detail; the log has that, with the
//     operation's id.
//   - An operation that is cancelled while it does not run is cleaned up by its kind; one that
//     runs cleans up after itself.
//   - With a key, a caller begins one operation, for as long as that is kept, also after it has
//     ended.
//
// It imports db, fault, httpserve and jobs.
package operation
