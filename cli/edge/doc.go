// Package edge implements `mainstay edge`: the commands for the edge control plane.
//
// # What is where
//
//	edge.go          the command and its flags; session.go: server, token, client
//	call.go          one call: send it, read the answer, name what went wrong
//	verb.go          what commands are made of: object, list, remove, group
//	input.go         what flags take: JSON, labels, times; confirm.go: asking back
//	site.go, ...     a file a resource, a function a verb
//
// Commands print the JSON that the API returned rather than the decoded generated types, so that
// --output json shows every field, including those of a newer server.
package edge
