// Package operation runs long tasks as durable jobs (package jobs) that callers follow as
// operations, with progress, cancellation, the caller who started them, and their outcome.
//
//	operation.go   Operation and its row; States
//	runner.go      Runner: starts, runs, awaits and cancels operations
//	key.go         Key: idempotency
//	watch.go       Watch: the states of an operation, as server-sent events
//
// The service owns the table operations: Migrations creates it, and a service that stores more per
// operation adds columns and embeds Operation in its own row type. The service also decides who may
// see an operation.
//
// # Invariants
//
//   - An operation and its job are created in one transaction, and deleted together.
//   - A failed operation is not retried. An operation that was interrupted by the end
//     of the process restarts from its beginning, so it must be idempotent.
//   - Error messages for callers contain no internal details; the log has them, with
//     the operation's id.
//   - An operation that is cancelled while pending is cleaned up by its kind; a running
//     one cleans up after itself.
//   - With one key, a caller starts only one operation for as long as it is kept, even
//     after it has ended.
//
// It imports db, fault, httpserve and jobs.
package operation
