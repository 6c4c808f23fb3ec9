// Package policy checks workloads against rules: whether they are fit for production, or for development.
//
//	policy.go   Set: rules that are compiled, and the check
//	read.go     rules in files: the built-in ones (rules.yaml), and those of operators
//	rules.yaml  the built-in rules
//
// A rule is a CEL expression that is true for workloads that keep it. It sees the workload as spec, with all keys of
// documents. Those that are not given have their defaults, or are zero or null. Processors are in thousandths, memory
// and disk in bytes, and durations in seconds.
//
// # Invariants
//
//   - A rule cannot change or reach anything, and is stopped when it costs too much. One that fails is a violation that
//     says so: a broken rule lets nothing through.
//   - The same workload and rules give the same result, in the order of severity and id.
package policy
