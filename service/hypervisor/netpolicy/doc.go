// Package netpolicy holds the rule of network policies: which packets a VM may send and receive.
//
//	policy.go   the document, and Check
//	judge.go    Judge: the meaning of a document, rule by rule
//	compile.go  Compile: the same as two tables, as the kernel looks them up
//
// A packet is judged in two steps. The peer's address leads to a class: addresses that the same
// rules of a direction match share one. The class, the protocol and the port lead to a rule. No two
// entries of a table overlap, so the order of lookups does not matter.
//
// Invariants:
//
//   - Tables.Judge and Judge agree about every packet.
//   - The size of what Compile returns, and the time it takes, are bounded.
//
// Functions are pure: the package knows neither VMs nor the kernel.
package netpolicy
