// Package plan turns a request for a VM into a row that is admitted: it completes the request, refuses
// what makes no sense, finds what the VM is made of, chooses the backend that runs it, and has it
// counted against the policy. Nothing is made on the host yet.
//
//	request.go    a Request, and what makes no sense whatever the host has
//	sources.go    what a VM is made of: an image of the catalog, or files of the host
//	firmware.go   UEFI firmware
//	choose.go     which backend runs a VM
//	probe.go      what backends can do on this host, and what is left of it
//	admit.go      the row of the VM
//
// # Invariants
//
//   - A plan changes nothing but the row that Admit makes. What it holds until then (open files, the
//     turn to copy, contents that are not to be cleaned) Release gives back.
//   - What is opened for a VM is what was checked: files are handed on open.
//   - The chosen backend has checked the VM, and can run it on this host now.
//
// It imports caller, record, host, catalog, admission and backend.
package plan
