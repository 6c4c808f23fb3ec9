// Package plan turns a request for a VM into an admitted row: it completes and validates the
// request, finds the VM's sources, chooses its backend, and has it checked against the policy. It
// creates nothing on the host.
//
//	request.go    a Request, and validation that does not depend on the host
//	sources.go    what a VM is made from: an image of the catalog, or files of the host
//	firmware.go   UEFI firmware
//	choose.go     which backend runs a VM
//	probe.go      what backends can do on this host, and its free capacity
//	admit.go      the row of the VM
//
// # Invariants
//
//   - A plan changes only the row that Admit inserts. Release releases what it holds until then:
//     open files, the turn to copy, and contents that must not be cleaned.
//   - What a VM uses is what was checked: files are passed on open.
//   - The chosen backend has checked the VM and can run it on this host now.
//
// It imports caller, record, host, catalog, admission and backend.
package plan
