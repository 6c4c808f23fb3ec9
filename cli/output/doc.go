// Package output writes what commands answer, for people and for programs.
//
// A Printer knows the format that was asked for and whether a person watches.
// JSON and YAML carry exactly what the API sent, field for field and in its
// order; tables show a choice of it.
//
// Invariant: nothing that a server sent can move the cursor, change colours or
// hide text on a terminal. Tables escape what is not printable, JSON and YAML
// escape control characters.
package output
