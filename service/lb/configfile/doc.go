// Package configfile reads the document of a node's VIPs, a YAML file.
//
// # What is where
//
//	config.go     Config and what is in it; the tags are the reference
//	load.go       Load and Parse
//	decode.go     from YAML to Config, by the tags
//	scalar.go     single values: addresses, ports, durations, ...
//	problem.go    what is wrong, with path and line
//	validate.go   what must fit together; bgp.go: the same for BGP
//	expand.go     one VIP for each port or range, as the datapath knows them
//	ports.go      ranges of ports
//	reference.go  the table for the documentation
//
// # Invariants
//
//   - A document is accepted whole or not at all. Everything wrong is told at once,
//     each problem with its path and its line; for an unknown key there is the
//     nearest known one.
//   - A Config that was accepted can be given to the kernel: addresses are unicast
//     and of the right family, names of VIPs are unique, ranges of one address and
//     protocol do not overlap, and all limits are kept.
//   - Passwords are in no error and no printed Config.
package configfile
