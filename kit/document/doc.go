// Package document reads the files that operators write, and reports everything that is wrong with
// one at once.
//
//	read.go       files
//	problems.go   problems, with their paths and lines
//	yaml.go       YAML into structs, by their tags (Syntax)
//	scalar.go     single values
//	reference.go  the keys of a syntax, for documentation
//	schema.go     the JSON Schema of a syntax, for editors
//
// # Invariants
//
//   - Reading never blocks: not on a pipe, a terminal or a file of /proc. A blocked reload would also
//     block the shutdown of the process.
//   - Only regular files of a limited size are read.
//   - Messages have no values but those that a Syntax quotes, which are not secrets: those of numbers, durations,
//     addresses, and texts with an enum or a form. Types of the caller decide themselves.
//
// It imports fault and text.
package document
