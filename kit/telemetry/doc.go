// Package telemetry makes the three means by which a service is observed: a
// structured logger, a registry of metrics and a provider of traces.
//
// Invariants:
//   - Nothing global is set: no default logger, default registry or global tracer
//     provider. Whoever makes a thing here passes it on.
//   - Log attributes with the names of secrets are never written; see NewLogger.
//   - Where tracing is not configured, its cost is that of a no-op.
package telemetry
