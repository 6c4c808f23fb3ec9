// Package webhook sends signed HTTP requests to targets that customers choose,
// and decides what to do when a target does not answer as it should.
//
// Signatures follow Standard Webhooks (https://www.standardwebhooks.com), scheme
// v1: HMAC-SHA256 over "id.timestamp.body".
//
// The parts are independent of each other and none keeps a goroutine or a timer:
// Secret signs, Guard refuses targets inside the network, CheckHeaders refuses
// headers that would change the request's meaning, Client sends once, Classify
// judges the result, Schedule spaces the attempts, and Breaker spares a target
// that fails again and again. The caller owns the queue and the clock.
//
// Invariants:
//   - A request never reaches an address that the Guard refuses, whatever a name
//     resolved to when the target was configured: the address is checked again
//     between name resolution and connect.
//   - A redirect is never followed.
//   - A response is read up to a fixed limit and within the request's timeout.
//   - Neither secrets nor header values nor target URLs appear in the text of
//     the faults that this package makes.
package webhook
