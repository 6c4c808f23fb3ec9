// Package output writes the results of commands, for people and for programs.
//
// A Printer knows the requested format and whether the output is a terminal. JSON and YAML contain
// exactly what the API sent, field for field and in its order; tables show a selection of it.
// order; tables show a choice of it.
//
// Invariant: no server data can move the cursor, change colours or hide text on a terminal. Tables
// escape non-printable characters, JSON and YAML escape control characters.
package output
