// Package monitor watches over the storage systems and the gateway: it raises alerts, tells a webhook about
// them, and keeps how full clusters are, from which it says when they will be.
//
//	monitor.go   Monitor: a round of watching, and what people do with alerts
//	rules.go     what is alerted about
//	forecast.go  when a cluster is full, as a plain function
//	notify.go    the webhook
//	preflight.go whether the gateway can be replaced by a newer version now
//
// # Invariants
//
//   - Alerts follow from what the database holds, so a round can run at any time, on every replica.
//   - What the webhook is to be told is stored in the transaction of the change of the alert. It is told at
//     least once, for at most a day. A silenced alert is not told.
//   - A cluster that does not answer has no capacity: nothing is kept of it for that time.
//
// It imports caller, driver and record.
package monitor
