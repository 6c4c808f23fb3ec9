// Package cloudhypervisor runs VMs with Cloud Hypervisor. Package restsocket has what it
// shares with Firecracker.
//
//	calls.go      the configuration of a VM, derived from a Spec
//	backend.go    the host's capabilities, checks of requests, Start, Find, Clean
//	instance.go   a running VM
//
// It is built against the OpenAPI document of versions 36 and later, which provide the serial
// console on a socket.
//
// # The folder of a VM
//
//	process.json   which process it is (package process)
//	run/           sockets of the API, the serial console (serial.sock) and the guest's vsock,
//	               and the log (package restsocket), which gets the program's events, too
//
// The program and its sockets outlive the daemon. Console output is lost while nobody is connected.
// Only one client can be connected at a time.
//
// # Limits
//
// There is no screen, and no network but taps. A disk without a kernel is booted by firmware built
// for this program (CLOUDHV.fd or hypervisor-fw); QEMU's does not work. A guest that reboots
// continues in the same process.
package cloudhypervisor
