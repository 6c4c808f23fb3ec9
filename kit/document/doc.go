// Package document reads the files that operators write, and reports everything that is wrong with
// one at once.
//
// # Invariants
//
//   - Reading never blocks: not on a pipe, a terminal or a file of /proc. A blocked reload would also
//     block the shutdown of the process.
//   - Only regular files of a limited size are read.
//   - Messages contain no values, unless the caller puts them there: a value may be a secret.
//
// It imports fault.
package document
