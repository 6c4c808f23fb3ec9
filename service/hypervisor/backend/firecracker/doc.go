// Package firecracker runs VMs with Firecracker, by itself or in the jail that its jailer
// makes. Package restsocket has what it shares with Cloud Hypervisor.
//
//	calls.go      the calls that make a VM, as they follow from a Spec
//	backend.go    what the host can do, what requests may ask for, Start, Find, Clean
//	jail.go       the jailer's command line, and the files in a jail
//	instance.go   a VM that runs
//
// It is built against version 1 of Firecracker's API as it is published; what is used of it
// has been there since 1.0.
//
// # The folder of a VM
//
//	process.json                which process it is (package process)
//	jail                        where its jail is, if it has one
//	console.in, console.out     named pipes: the serial console
//	run/                        sockets and log (package restsocket); in the jail if it has one
//
// Firecracker has its standard input and output as the serial console. They are named pipes
// that it holds itself, so that they outlive the daemon: while nobody reads, the first 64 KiB
// that the guest prints are kept and what comes then is lost, by Firecracker, which never
// waits for a reader. Two who read at once share what is printed.
//
// # A jail
//
// It is made anew for each start: kernel and initrd are copied (by reflink where the file
// system can), disks are hard links, since a copy that is written would be lost. So the
// chroot base lies on the file system of the disks.
//
// # Limits
//
// Firecracker takes raw disks and a kernel of its own, and no screen, firmware or network
// but taps. The power button is Ctrl-Alt-Del, which x86 guests may take for a reboot: that
// ends Firecracker, too, as does a guest that panics with panic=1. All are an end in good
// order. Its metrics are differences since they were last written, and lost while no daemon
// reads them; disks are counted by the host's kernel instead.
package firecracker
