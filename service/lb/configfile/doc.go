// Package configfile reads the document that lists a node's VIPs, a YAML file.
//
// # Files
//
//	config.go     Config and its parts; the reference is generated from the tags
//	load.go       Load and Parse
//	syntax.go     how values are written (kit/document reads them by the tags), and the reference
//	validate.go   checks across values; bgp.go: the same for BGP
//	expand.go     one VIP for each port or range, as the datapath needs them
//	ports.go      ranges of ports
//
// # Invariants
//
//   - A document is accepted as a whole or not at all. All problems are reported at once, each
//     with its path and line, and for an unknown key with the nearest known one.
//   - An accepted Config can be applied to the kernel: addresses are unicast and of the right
//     family, names of VIPs are unique, ranges of one address and protocol do not overlap, and
//     all limits are kept.
//   - Passwords are never part of an error or a printed Config.
package configfile
