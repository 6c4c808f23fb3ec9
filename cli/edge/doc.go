// Package edge is `mainstay edge`: the edge control plane from the command line.
//
// # What is where
//
//	edge.go          the command and its flags; session.go: server, token, client
//	call.go          one call: send it, read the answer, name what went wrong
//	verb.go          what commands are made of: object, list, remove, group
//	input.go         what flags take: JSON, labels, times; confirm.go: asking back
//	site.go, ...     a file a resource, a function a verb
//
// Commands print the JSON that the API answered and not what the generated types
// made of it, so that --output json shows every field, those of a newer server
// too.
package edge
