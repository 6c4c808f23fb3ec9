// Package webhook sends signed HTTP requests to targets that customers choose, and decides how to
// continue after a failure.
//
// Signatures follow Standard Webhooks (https://www.standardwebhooks.com), scheme
// v1: HMAC-SHA256 over "id.timestamp.body".
//
// The parts are independent of each other, and none keeps a goroutine or a timer: Secret signs,
// Guard refuses targets inside the network, CheckHeaders refuses headers that would change the
// request's meaning, Client sends once, Classify interprets the result, Schedule spaces the
// attempts, and Breaker spares a target that fails repeatedly. The caller owns the queue and the
// clock.
//
// Invariants:
//   - A request never reaches an address that the Guard refuses, whatever a name
//     resolved to when the target was configured: the address is checked again
//     between name resolution and connect.
//   - Redirects are never followed.
//   - A response is read up to a fixed limit and within the request's timeout.
//   - Secrets, header values and target URLs never appear in the text of faults
//     that this package returns.
package webhook
