// Package firecracker runs VMs with Firecracker, directly or in a jail created by its jailer.
// Package restsocket has what it shares with Cloud Hypervisor.
//
//	calls.go      the API calls that create a VM, derived from a Spec
//	backend.go    the host's capabilities, checks of requests, Start, Find, Clean
//	jail.go       the jailer's command line, and the files in a jail
//	instance.go   a running VM
//
// It is built against version 1 of Firecracker's published API and uses only what exists since 1.0.
//
// # The folder of a VM
//
//	process.json                which process it is (package process)
//	jail                        where its jail is, if it has one
//	console.in, console.out     named pipes: the serial console
//	run/                        sockets and log (package restsocket); in the jail if it has one
//
// Firecracker's standard input and output are the serial console. They are named pipes that it
// holds open itself, so they outlive the daemon. While nobody reads, the first 64 KiB of output are
// kept, and Firecracker, which never waits for a reader, drops the rest. Concurrent readers each
// get only a part of the output.
//
// # A jail
//
// A jail is recreated for each start. Kernel and initrd are copied (by reflink where the file
// system supports it). Disks are hard links, since changes to a copy would be lost. The chroot base
// must therefore be on the file system of the disks.
//
// # Limits
//
// Firecracker supports raw disks and a separate kernel, but no screen or firmware, and no network
// but taps. The power button is Ctrl-Alt-Del, which x86 guests may treat as a reboot: that also
// ends Firecracker, as does a guest that panics with panic=1. All of these count as a clean end.
// Its metrics are differences since they were last written, and are lost while no daemon reads
// them, so disk counters come from the host's kernel.
package firecracker
