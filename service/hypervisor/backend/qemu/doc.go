// Package qemu runs virtual machines with QEMU.
//
//	machine.go    what a machine is made of, and the command line that follows from it
//	process.go    launching it, finding it again, and noticing its end
//	backend.go    the backend: which machine a VM becomes
//	instance.go   a VM that runs, over its monitor
//
// # The folder of a machine
//
// Everything that a machine has beside its disks lies in one folder: what QEMU printed
// (qemu.log), which process it is (process.json), and in its folder run, the only one
// that QEMU can write to, the sockets of its monitor (qmp.sock), serial console
// (serial.sock), screen (vnc.sock) and guest agent (agent.sock). QEMU outlives the
// daemon, which finds it again there.
//
// # Invariants
//
//   - Args is a function of the machine: a machine that was started once is started
//     again in the same way, with its devices at the same places.
//   - Nothing of a request becomes an option: texts are values, in which commas are
//     doubled, as QEMU's manual wants it.
//   - QEMU may have been taken over by its guest. What it can write to is read as an
//     enemy's: a socket is spoken to only if the machine's own process listens on it.
package qemu
