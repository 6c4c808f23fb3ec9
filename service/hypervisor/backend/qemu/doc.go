// Package qemu runs virtual machines with QEMU.
//
//	machine.go    a machine's configuration, and the command line derived from it
//	process.go    launches QEMU, finds it again, and notices its end
//	backend.go    the backend: translates a VM into a machine
//	instance.go   a running VM, controlled through its monitor
//	template.go   VMs that start from the memory of another one
//
// # The folder of a machine
//
// Everything that a machine has besides its disks is in one folder: QEMU's output (qemu.log), the
// record of its process (process.json), and the folder run, the only one that QEMU can write to. It
// contains the sockets of its monitor (qmp.sock), serial console (serial.sock), screen (vnc.sock)
// and guest agent (agent.sock). QEMU keeps running when the daemon ends; the daemon finds it again
// there.
//
// # Invariants
//
//   - Args is a function of the machine: a restarted machine has the same devices in the same
//     places.
//   - Nothing in a request can become an option: texts are values, in which commas are doubled, as
//     QEMU's manual requires.
//   - QEMU may have been taken over by its guest. Everything that it can write is untrusted: a
//     socket is used only if the machine's own process listens on it.
//     enemy's: a socket is spoken to only if the machine's own process listens on it.
package qemu
