// Package backend is the seam between the daemon and the programs that run its VMs: what
// they are told of a VM, and what they can do with it. Each of them is a package below
// this one.
//
//	qemu               QEMU, with KVM or its own translator
//	sandbox            gVisor: a kernel in a process, for a root file system in a folder
//	firecracker        Firecracker
//	cloudhypervisor    Cloud Hypervisor
//
// # Invariants
//
//   - A VM's process outlives the daemon. Find meets it again, by what lies in the VM's
//     folder and nothing else.
//   - Start leaves nothing behind when it fails.
//   - A backend decides nothing about a VM: it says what happened (Done, Ended), and the
//     daemon draws the conclusion.
package backend

import (
	"context"
	"io"
	"time"
)

// The names of the backends, as requests call them.
const (
	Auto            = "auto" // none of them: the daemon picks one
	QEMU            = "qemu"
	Firecracker     = "firecracker"
	CloudHypervisor = "cloud-hypervisor"
	Sandbox         = "sandbox"
)

// Spec is a VM as it is to be started. Paths are absolute, and lead to files that the
// daemon made, or checked and copied.
type Spec struct {
	ID, Name string // the ID is a UUID
	// Folder is the VM's own, for sockets, logs and records of its process.
	Folder     string
	VCPUs      int
	MemoryMiB  int
	Kernel     string // booted without firmware; empty: what the first disk holds
	Initrd     string
	KernelArgs string
	Firmware   string // a file of UEFI code; empty: the usual one
	Disks      []Disk // the first one is the system's
	RootFS     string // a folder with the root file system of a sandbox
	NICs       []NIC
	Agent      bool // there is a guest agent to talk to
	// UID and GID are whom the VM's process runs as; 0: as the daemon.
	UID, GID int
}

// Disk is a block device.
type Disk struct {
	ID       string // letters, digits and dashes; unique in the VM
	Target   string // a path, or what the storage calls it: nbd:unix:..., rbd:pool/image
	Format   string // qcow2 or raw: never guessed
	ReadOnly bool
	CD       bool // a drive for CDs, where the machine has one
}

// NIC is a network interface.
type NIC struct {
	MAC string
	Tap string // a device of the host's that is there; empty: the backend's own way out (mode user)
}

// Info is what a backend can do on this host.
type Info struct {
	Available   bool
	Version     string
	Accelerator string // kvm or tcg; empty where there is no choice
	Detail      string // why that accelerator, or what is missing and how to get it
}

// Backend runs VMs. Its methods may be called at once by many goroutines, but not for
// the same VM.
type Backend interface {
	// Probe looks at what the host has now.
	Probe(ctx context.Context) Info
	// Check says whether such a VM can be run; the error is a fault that names the field
	// of the request. It does not look at the host.
	Check(s *Spec) error
	// Start starts a VM that has no process, and returns when its processors run.
	Start(ctx context.Context, s *Spec) (Instance, error)
	// Find is the VM that an earlier daemon started; nil if it has no process any more. One
	// whose process does not answer before the end of ctx is an error.
	Find(ctx context.Context, s *Spec) (Instance, error)
	// Clean removes what a VM without a process has on the host beside its folder.
	Clean(ctx context.Context, s *Spec) error
}

// Instance is a VM that has a process. After its end, calls fail.
type Instance interface {
	PID() int
	// Done is closed when the process has ended.
	Done() <-chan struct{}
	// Ended says how, once Done is closed.
	Ended() End
	// Paused says whether the processors are halted.
	Paused(ctx context.Context) (bool, error)
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
	// PowerDown asks the guest to shut down. What comes of it is up to the guest.
	PowerDown(ctx context.Context) error
	// Kill ends the process. It has ended when Done is closed.
	Kill(ctx context.Context) error
	// Dial connects to a channel of the VM. One that it has not is a fault.
	Dial(ctx context.Context, c Channel) (io.ReadWriteCloser, error)
	Metrics(ctx context.Context) (Metrics, error)
	// Close lets go of the VM, which continues.
	Close() error
}

// Condition is how a VM that runs is, beside what was asked of it.
type Condition struct {
	// Known is false until the VM's process has answered; the rest means nothing before.
	Known bool
	// Halt is why the processors are halted though nobody asked for it; empty: they are not.
	Halt Halt
	// AgentOpen says whether a program in the guest has the agent's channel open, and
	// AgentChanges counts how often that changed, or the guest was reset. Who spoke with an
	// agent before such a change speaks with nobody after it. AgentDoubts counts how often
	// that may have happened, and has to be found out.
	AgentOpen                 bool
	AgentChanges, AgentDoubts int
}

// Halt is why a VM's processors were halted without being asked to.
type Halt string

// The reasons.
const (
	HaltNoSpace  Halt = "no_space"       // the host has no room for what the guest writes
	HaltIOError  Halt = "io_error"       // the host cannot write or read the disk
	HaltInternal Halt = "internal_error" // the virtual processor does not know how to continue
)

// Observer is an Instance that is told how its VM is.
type Observer interface {
	// Condition is what was told last, and a channel that is closed when more is told.
	Condition() (Condition, <-chan struct{})
}

// Channel is a way into a VM.
type Channel string

// The channels.
const (
	AgentChannel   Channel = "agent"
	ConsoleChannel Channel = "console" // the serial console
	ScreenChannel  Channel = "screen"  // RFB, as VNC speaks it
)

// End is how a VM's process ended.
type End struct {
	// Clean: the guest powered off, or the process was told to end.
	Clean  bool
	Reason string // for people
}

// Metrics are what a VM uses. Counters count since it was started.
type Metrics struct {
	CPUSeconds                      float64
	MemoryBytes                     int64 // resident on the host
	DiskReadBytes, DiskWrittenBytes int64
	NetReceivedBytes, NetSentBytes  int64
}

// VarsFile is the file in a VM's folder in which its UEFI firmware remembers its variables.
// It is there once the VM has run, and its process writes it.
const VarsFile = "vars.fd"

// DiskKeeper is a backend that can work on disks of VMs that do not run. Its Clean may be called
// while another call works on the VM, and ends that by killing the process.
type DiskKeeper interface {
	// OpenDisks makes a VM's disks available without running it. Close ends that.
	OpenDisks(ctx context.Context, s *Spec) (Disks, error)
	// StartFrom starts a VM from a snapshot with its memory.
	StartFrom(ctx context.Context, s *Spec, snapshot string) (Instance, error)
}

// Disks are a VM's disks while somebody has them open: the VM itself, whose Instance
// implements this too, or OpenDisks. The system's disk is meant throughout.
type Disks interface {
	// Recover ends what a daemon that was killed has begun on the disk and nobody waits for
	// any more.
	Recover(ctx context.Context) error
	// Snapshot keeps the disk as it is now, and of a VM that runs with full its memory too,
	// of which it says how much that was. If it fails, the VM continues as before, but a part of
	// the snapshot may be there.
	Snapshot(ctx context.Context, name string, full bool) (memory int64, err error)
	// DeleteSnapshot removes a snapshot, or what there is of one that failed. It is not an error
	// if there is none.
	DeleteSnapshot(ctx context.Context, name string) error
	// RevertFull puts a VM that runs back to a snapshot with its memory.
	RevertFull(ctx context.Context, name string) error
	// Copy writes the disk, or what changed, to a file.
	Copy(ctx context.Context, c DiskCopy, progress func(float64)) error
	// HasBitmap says whether changes were noted in a bitmap without a gap.
	HasBitmap(ctx context.Context, name string) (bool, error)
	// DropBitmaps stops noting changes, but for those in the bitmaps to keep.
	DropBitmaps(ctx context.Context, keep ...string) error
	// Resize makes the disk larger.
	Resize(ctx context.Context, size int64) error
	Close() error
}

// MemoryLimit is how long a backend may take to save the memory of a VM, or to load it, during
// which its process may answer nothing. 8 MiB a second are few for a disk.
func MemoryLimit(memoryMiB int) time.Duration {
	return 2*time.Minute + time.Duration(memoryMiB/8)*time.Second
}

// DiskCopy says what is to be copied.
type DiskCopy struct {
	Target string // a qcow2 file that is there, as large as the disk, and that the VM's process may write
	// Since is the bitmap of what changed, which alone is copied; empty: everything. The
	// bitmap stays as it is and keeps noting.
	Since string
	// Note is a bitmap that begins, at the moment the copy is of, to note what changes. It
	// outlives the VM's process. Empty: none.
	Note string
	// Begun is called once that moment is over; nil: nobody wants to know.
	Begun func()
}
