// Package image imports disk images from untrusted sources.
//
// An image is hostile until it was looked at: its header can name other files of the
// host, which whoever opens the image would read, or claim a size that fills the disk.
// So Inspect reads the header itself, and refuses whatever leads out of the file or is
// not known; Convert then lets qemu-img read it as the format that was found, with
// references to other files switched off, in a process with limits.
//
// The file that a VM's process wrote a copy of its disk to is hostile, too, and that process
// may have it open still: Adopt copies it to a file that is the daemon's own, and inspects
// that. Flatten reads a chain of such files by the names that it is told.
//
// Two formats are taken: qcow2 and raw. Others are told by their name, and refused.
package image
