// Package alert manages alerts: rules fire them, people acknowledge, silence and resolve them.
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
//   - A sweep can run at any time, on every replica: alerts are derived from the rules' results.
//   - Every alert that fires or resolves is passed to the service (Config.Changed) in the same
//     transaction, so that the service's counts and history agree.
//   - An acknowledgement belongs to one alert: if the alert resolves and fires again, it is a new
//     alert without acknowledgement.
//   - A silence belongs to a kind and a subject, until a time. It outlives the alert, so that a
//     flapping alert stays silent. It hides nothing: lists show that an alert is silenced, and
//     only notifications leave it out (Alert.Silenced).
//   - A subject that is resolved manually fires again with the next sweep if its rule still
//     returns it.
//
// The tables are alerts and alert_silences. Services that had alerts before this package existed
// create them in their own migrations; others use Migrations.
package alert
