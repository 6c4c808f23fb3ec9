// Package accel finds out which accelerator QEMU can really use on this host: KVM,
// or TCG, QEMU's own translator, which always works and is slow.
//
// That /dev/kvm opens proves nothing. On hosts that are virtual machines themselves
// it may be there and halt every guest, or emulate it one instruction at a time,
// which is slower than TCG. So a guest of a few bytes is booted once under KVM, goes
// up to 64-bit mode and has to count far enough within a time limit.
//
// Invariants:
//
//   - KVM is named only if the probe guest came to its end under it.
//   - No process is left behind, whatever the probe does.
//   - An answer that took a boot is remembered for this boot of the host, this kernel,
//     this QEMU and this probe. What is known at once, such as a missing device or one
//     that may not be opened, is looked at every time, since it can be mended at any
//     time. Remove the file to have all looked at again.
//   - A file that does not hold such an answer is as good as none.
package accel
