// Package driver is the client of what runs the VMs: one hypervisor daemon, or the registry of a
// fleet of them. It speaks the daemon's contract (api/hypervisor) and nothing else.
//
// Of a fleet, requests about a VM go through the registry to the VM's host, at
// /fleet/nodes/NODE/v1/...
//
// # Invariants
//
//   - Requests act for the tenant of the VM that they are about and name the person who asked, so
//     that the daemon enforces the tenant's limits and its audit log names the person.
//   - A VM is found by the label that it was made with (Label), never by its name. So a request to
//     make it that was interrupted is not repeated.
//   - The daemon is not trusted with more than its answers: they are limited in size, and an answer
//     about another VM than the one asked for is an error.
//   - Errors are faults with the kind of the daemon's answer. A daemon that does not answer is
//     Unavailable.
//
// It imports netpolicy and record.
package driver
