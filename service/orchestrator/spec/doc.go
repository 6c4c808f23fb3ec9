// Package spec reads what a person writes about a workload, once for all runtimes: documents of the version orch/v1, in
// YAML or JSON.
//
//	spec.go      Spec and its parts; the reference and the JSON Schema are made from the tags
//	read.go      Read: from a document to a Spec, and the JSON Schema for editors
//	check.go     checks across values
//	host.go      keys of other formats that would reach into the host, which are refused by name
//	quantity.go  processors and bytes
//
// # Invariants
//
//   - A document is accepted as a whole or not at all. All problems are told at once, each with its path and line.
//   - An accepted Spec has its defaults, and is converted for a runtime without another look at the document.
//   - Nothing in a Spec gives a workload more of a host than processes have that share nothing with it: no host paths,
//     devices, host namespaces, privileges or added capabilities.
//   - Unknown keys are warnings, which name the one that was probably meant. Those that ask for the host are problems.
//   - Problems and warnings have no values of env, configMaps and annotations, which may be secrets.
package spec
