// Package demo builds a small guest out of the system's packages: Debian's kernel for
// clouds, busybox, the modules that a virtual machine needs, and the guest agent. It
// boots in seconds without a disk, which is what a first look, tests and benchmarks
// want; it is not a system to work on.
//
// The kernel's package is downloaded once. Where it cannot be had, a kernel that is
// installed on the host does, if it has the modules.
//
// The guest mounts what is needed, asks for an address on each network device, starts
// the agent and leaves a shell on its serial console. It says Ready there.
package demo

// Ready is the line on the console after which the guest can be used.
const Ready = "mainstay demo guest: ready"
