// Package kube is a client of the API servers of Kubernetes clusters, on top of client-go.
//
//	client.go   Open: from a kubeconfig to a Client, whose calls are limited in rate and time
//	object.go   reads, makes, changes and deletes one object
//	list.go     reads all objects of a kind, page by page
//	await.go    waits for a state of an object, and follows all objects of a kind
//	fault.go    errors of API servers as faults (kit/fault)
//
// Objects are plain structs of the caller, which have the fields that the caller works with and embed or hold a Meta.
// What a struct lacks is not read, and stays as it is when an object is changed (server-side apply). So there is no
// need for the types of all groups, which would be a third of a program that uses a few fields of five kinds.
//
// # Invariants
//
//   - A single request takes no longer than Config.Timeout. Await ends soon after its context.
//   - A list is held one page at a time.
//   - An object is changed and deleted by its UID: one that was made again under the same name is left alone.
//   - Errors are faults. Their messages are those of the API server, or say what did not answer; addresses of API
//     servers and what proxies answer are in the private cause.
package kube
