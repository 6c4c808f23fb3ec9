// Package host gives VMs what they have on the host, and takes it away again: a folder, a uid, a
// volume, a network device, a control group, a disk from which the guest learns who it is.
//
//	open.go      the storages, networks and control groups of this host
//	paths.go     where things of a VM are, and how its backend is told of it
//	make.go      the folder of a new VM, and what it boots from
//	run.go       Equip and Confine for a VM that is started; Strip and Clean afterwards
//	base.go      disks that linked clones share
//	proc_*.go    what Linux says of processes and devices
//
// # Invariants
//
//   - Everything is found again by the VM's id, so that a daemon that was killed can repeat what
//     it was about, or take it away.
//   - Strip and Clean can be repeated, and take away what is there of a VM that was never finished.
//   - Who calls what changes a VM's things holds the machine's work lock.
//
// It imports record and the packages that it stands on: backend, storage, network, cgroup, seed,
// catalog (to copy files within a limit).
package host
