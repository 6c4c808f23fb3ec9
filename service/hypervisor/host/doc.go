// Package host creates and removes a VM's resources on the host: a folder, a uid, a volume, a
// network device, a control group, and the seed disk from which the guest learns its identity.
//
//	open.go      the storages, networks and control groups of this host
//	paths.go     where a VM's files are, and the Spec that its backend gets
//	make.go      the folder of a new VM and its boot files
//	served.go    the socket on which a VM's process finds a disk that a client serves
//	run.go       Equip and Confine when a VM starts; Strip and Clean afterwards
//	console.go   serial logs
//	disks.go     disks of a VM beside its system disk
//	base.go      disks that linked clones share
//	template.go  the files of templates; disks that stand on theirs
//	memory.go    the memory of templates, which VMs map
//	proc_*.go    processes and devices as Linux reports them
//
// # Invariants
//
//   - Everything is found by the VM's id, so a restarted daemon can repeat or undo what it was
//     doing when it was killed.
//   - Strip and Clean are idempotent, and also remove the resources of a VM that was never
//     finished.
//   - Callers of functions that change a VM's resources hold the machine's work lock.
//
// It imports record and the packages below it: backend, storage, network, cgroup, seed, catalog (to
// copy files up to a limit).
package host
