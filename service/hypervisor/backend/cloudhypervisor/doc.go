// Package cloudhypervisor runs VMs with Cloud Hypervisor. Package restsocket has what it
// shares with Firecracker.
//
//	calls.go      the configuration of a VM, as it follows from a Spec
//	backend.go    what the host can do, what requests may ask for, Start, Find, Clean
//	instance.go   a VM that runs
//
// It is built against the OpenAPI document of the program's versions from 36 on, which have
// the serial console on a socket.
//
// # The folder of a VM
//
//	process.json   which process it is (package process)
//	run/           sockets of the API, the serial console (serial.sock) and the guest's vsock,
//	               and the log (package restsocket), which gets the program's events, too
//
// The program outlives the daemon, with its sockets. What the guest prints on its console
// while nobody is connected is lost; one at a time can be connected.
//
// # Limits
//
// There is no screen, and no network but taps. A disk without a kernel is booted by a
// firmware that was built for this program (CLOUDHV.fd or hypervisor-fw), which QEMU's
// is not. A guest that reboots continues in the same process.
package cloudhypervisor
