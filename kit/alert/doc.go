// Package alert says what needs attention: rules find it, people acknowledge, silence and resolve
// it.
//
// # States
//
//	         the rule finds the subject
//	(none) ----------------------------> firing ----------------------------> resolved
//	                                      | ^    the rule finds it no longer,
//	                                      +-+    or somebody resolved it
//	                         acknowledged, silenced
//
// # Invariants
//
//   - At most one alert fires for a kind and a subject.
//   - A sweep can run at any time, on every replica: alerts follow from what the rules find.
//   - Whatever fires or resolves is handed to the service (Config.Changed) in the same transaction,
//     so that its counts and its diary say the same.
//   - An acknowledgement is of one alert: when the alert resolves and fires again, it is a new alert
//     that nobody has acknowledged.
//   - A silence is of a kind and a subject, until a time. It outlives the alert, so that what comes
//     and goes stays silent. It hides nothing: lists say that an alert is silenced, and what
//     notifies leaves it out (Alert.Silenced).
//   - A subject that is resolved by hand fires again with the next sweep if its rule still finds it.
//
// The tables are alerts and alert_silences. A service that had alerts before this package makes them
// by its own migrations; the others use Migrations.
package alert
