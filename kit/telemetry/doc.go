// Package telemetry creates a service's means of observation: a structured logger, a registry of
// metrics and a provider of traces.
//
// Invariants:
//   - Nothing global is set: no default logger, default registry or global tracer
//     provider. Callers pass on what they create here.
//   - Log attributes with the names of secrets are never written; see NewLogger.
//   - Without a tracing endpoint, tracing costs no more than a no-op.
package telemetry
