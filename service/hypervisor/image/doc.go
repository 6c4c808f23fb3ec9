// Package image imports disk images from untrusted sources.
//
// An image is untrusted until it was inspected: its header can refer to other files of the host,
// which would be read by whoever opens the image, or claim a size that fills the disk. Therefore
// Inspect reads the header itself and rejects references to other files and unknown features.
// Convert then runs qemu-img with the detected format, with references to other files disabled, in
// a process with limits.
//
// A file to which a VM's process wrote a copy of its disk is untrusted, too, and that process may
// still have it open: Adopt copies it to a file of the daemon's own and inspects that. Flatten
// reads a chain of such files, using only the names that it is given.
//
// Two formats are supported: qcow2 and raw. Other known formats are rejected by name.
package image
