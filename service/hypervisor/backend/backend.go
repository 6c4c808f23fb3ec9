// Package backend is the interface between the daemon and the programs that run its VMs. Each
// program is supported by a subpackage:
//
//	qemu               QEMU, with KVM or its own translator
//	sandbox            gVisor: a kernel in a process, for a root file system in a folder
//	firecracker        Firecracker
//	cloudhypervisor    Cloud Hypervisor
//
// # Invariants
//
//   - A VM's process keeps running when the daemon ends. Find reattaches to it, using only the
//     files in the VM's folder.
//   - If Start fails, it leaves nothing behind.
//   - A backend makes no decisions about a VM: it reports what happened (Done, Ended), and the
//     daemon acts on it.
package backend

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"time"
)

// Names of the backends in requests.
const (
	Auto            = "auto" // not a backend: the daemon chooses one
	QEMU            = "qemu"
	Firecracker     = "firecracker"
	CloudHypervisor = "cloud-hypervisor"
	Sandbox         = "sandbox"
)

// Spec describes a VM to start. All paths are absolute and name files that the daemon created, or
// checked and copied.
type Spec struct {
	ID, Name string // the ID is a UUID
	// Folder is the VM's own folder, for sockets, logs and the record of its process.
	Folder     string
	VCPUs      int
	MemoryMiB  int
	Kernel     string // booted without firmware; empty: boot from the first disk
	Initrd     string
	KernelArgs string
	Firmware   string // a file with UEFI code; empty: the backend's default
	Disks      []Disk // the first one is the system disk
	RootFS     string // a folder with the root file system of a sandbox
	NICs       []NIC
	Agent      bool // the guest has an agent
	// FirmwareVars is the VM's own file with the variables of its firmware. Empty: VarsFile in its folder.
	FirmwareVars string
	Shares       []Share
	// ExtraArgs are further arguments of the backend's program, which it has checked.
	ExtraArgs []string
	// UID and GID are the user and group of the VM's process; 0: the daemon's.
	UID, GID int
}

// Share is a folder of the host that the guest sees.
type Share struct {
	Tag      string
	ReadOnly bool
	// Folder is open while the VM is started.
	Folder *os.File
}

// Release closes what was opened to start the VM.
func (s *Spec) Release() {
	for _, share := range s.Shares {
		_ = share.Folder.Close() // it was not written to
	}
}

// Disk is a block device.
type Disk struct {
	ID       string // letters, digits and dashes; unique in the VM
	Target   string // a path, or a storage URL: nbd:unix:..., rbd:pool/image
	Format   string // qcow2 or raw: never guessed
	ReadOnly bool
	// Seed is set for the disk that tells the guest who it is. Firmware never boots it: a BIOS tries one disk
	// only, the first in its order.
	Seed bool
	// Medium is set for the medium of the drive that machines with CD drives always have, whose ID is
	// CDDrive. Other machines get it as a read-only disk.
	Medium bool
	Serial string // that the guest sees, at most 20 bytes; empty: none
	// Port is the number of the port that a disk is plugged into, from 1; 0: none, so that it stays as long
	// as the process.
	Port   int
	Limits DiskLimits
}

// DataPrefix begins the IDs of a VM's disks beside its system disk.
const DataPrefix = "data-"

// ServedDisk is the ID of the disk that a client serves while the VM runs.
const ServedDisk = "served"

// CDDrive is the ID of the disk that is the medium of the CD drive.
const CDDrive = "cd"

// MaxPorts is how many disks can be plugged into a machine.
const MaxPorts = 8

// DiskLimits limit what a guest does with a disk, reads and writes together. Zero values mean no limit.
type DiskLimits struct {
	IOPS           int64 `json:"iops,omitempty"`
	BytesPerSecond int64 `json:"bytes_per_second,omitempty"`
}

// NIC is a network interface.
type NIC struct {
	MAC string
	Tap string // an existing device of the host; empty: user mode networking

	Forwards []Forward // without a Tap
}

// Forward leads a port of the host into the guest.
type Forward struct {
	Protocol    string `json:"protocol"`     // tcp or udp
	HostAddress string `json:"host_address"` // IPv4
	HostPort    int    `json:"host_port"`
	GuestPort   int    `json:"guest_port"`
}

// Info reports what a backend can do on this host.
type Info struct {
	Available   bool
	Version     string
	Accelerator string // kvm or tcg; empty where there is no choice
	Detail      string // why that accelerator, or what is missing and how to get it
}

// Backend runs VMs. Its methods may be called concurrently, but not for the same VM.
type Backend interface {
	// Probe checks what the host currently supports.
	Probe(ctx context.Context) Info
	// Check returns a fault that names the request's field if the backend cannot run such a VM. It
	// does not check the host.
	Check(s *Spec) error
	// Start starts a VM that has no process, and returns when its processors run.
	Start(ctx context.Context, s *Spec) (Instance, error)
	// Find returns the VM that an earlier daemon started, or nil if it has no process any more. It
	// fails if the process does not answer before ctx ends.
	Find(ctx context.Context, s *Spec) (Instance, error)
	// Clean removes a stopped VM's resources on the host other than its folder.
	Clean(ctx context.Context, s *Spec) error
}

// Instance is a VM with a process. Once the process has ended, calls fail.
type Instance interface {
	PID() int
	// Done is closed when the process has ended.
	Done() <-chan struct{}
	// Ended returns how the process ended, once Done is closed.
	Ended() End
	// Paused reports whether the processors are paused.
	Paused(ctx context.Context) (bool, error)
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
	// PowerDown asks the guest to shut down. The guest may ignore it.
	PowerDown(ctx context.Context) error
	// Kill kills the process. It has ended once Done is closed.
	Kill(ctx context.Context) error
	// Dial connects to a channel of the VM. It fails with a fault if the VM lacks the channel.
	Dial(ctx context.Context, c Channel) (io.ReadWriteCloser, error)
	Metrics(ctx context.Context) (Metrics, error)
	// Close detaches from the VM, which keeps running.
	Close() error
}

// Resetter is an Instance whose guest can be reset.
type Resetter interface {
	// Reset restarts the guest at once, without asking it. The process stays.
	Reset(ctx context.Context) error
}

// Plugger is an Instance whose disks can be changed while it runs.
type Plugger interface {
	// Plug adds a disk. It fails with ErrNoPort if the process was started without a port for it.
	Plug(ctx context.Context, d Disk) error
	// Unplug removes a disk once the guest has let go of it, and fails with ErrHeld if the guest does not
	// before ctx ends. It fails with ErrNoPort if the disk is not on a port, and succeeds without the disk.
	Unplug(ctx context.Context, id string) error
	// HasDisk reports whether the process has a disk.
	HasDisk(ctx context.Context, id string) (bool, error)
	// SetMedium puts a medium into the CD drive in place of the one that is there; nil: none. It fails with
	// ErrNoPort if the machine has no drive, and with ErrHeld if the guest has locked the drive.
	SetMedium(ctx context.Context, d *Disk) error
	// SetLimits limits a disk from now on.
	SetLimits(ctx context.Context, id string, l DiskLimits) error
	// ResizeDisk grows a disk to size bytes. The guest sees the new size immediately.
	ResizeDisk(ctx context.Context, id string, size int64) error
}

var (
	// ErrNoPort is returned for changes that wait for the next start of the process.
	ErrNoPort = errors.New("the VM's process has no port for the disk")
	// ErrHeld is returned for a disk or drive that the guest does not let go of.
	ErrHeld = errors.New("the guest does not let go of the disk")
)

// Condition is the state of a running VM that changes without the daemon's doing.
type Condition struct {
	// Known is false until the VM's process has answered. Until then the other fields are invalid.
	Known bool
	// Halt is why the processors stopped although nobody paused them; empty: they did not.
	Halt Halt
	// AgentOpen reports whether a program in the guest has the agent's channel open. AgentChanges
	// counts how often that changed or the guest was reset: a session from before a change is dead.
	// AgentDoubts counts how often such a change may have happened, which the daemon must check.
	AgentOpen                 bool
	AgentChanges, AgentDoubts int
}

// Halt is why a VM's processors stopped although nobody paused them.
type Halt string

// Values of Halt.
const (
	HaltNoSpace  Halt = "no_space"       // the host has no room for what the guest writes
	HaltIOError  Halt = "io_error"       // the host cannot write or read the disk
	HaltInternal Halt = "internal_error" // the virtual processor cannot continue
)

// Observer is an Instance that observes its VM's condition.
type Observer interface {
	// Condition returns the latest condition, and a channel that is closed at the next update.
	Condition() (Condition, <-chan struct{})
}

// Channel is a connection into a VM.
type Channel string

// The channels.
const (
	AgentChannel   Channel = "agent"
	ConsoleChannel Channel = "console" // the serial console
	ScreenChannel  Channel = "screen"  // RFB, as VNC speaks it
)

// End is how a VM's process ended.
type End struct {
	// Clean reports that the guest powered off, or the process was told to end.
	Clean  bool
	Reason string // for people
}

// Metrics is a VM's resource usage. Counters count since the VM was started.
type Metrics struct {
	CPUSeconds                      float64
	MemoryBytes                     int64 // resident on the host
	DiskReadBytes, DiskWrittenBytes int64
	NetReceivedBytes, NetSentBytes  int64
}

// VarsFile is the file in a VM's folder with the variables of its UEFI firmware. It exists once the
// VM has run, and its process can write to it.
const VarsFile = "vars.fd"

// DiskKeeper is a backend that can work on disks of stopped VMs. Its Clean may be called during
// another call for the VM, and ends that call by killing the process.
type DiskKeeper interface {
	// OpenDisks opens a VM's disks without running it, until Close.
	OpenDisks(ctx context.Context, s *Spec) (Disks, error)
	// StartFrom starts a VM from a full snapshot.
	StartFrom(ctx context.Context, s *Spec, snapshot string) (Instance, error)
}

// Traits are what a VM must have in common with a template to start from its memory.
type Traits struct {
	Version     string // of the backend's program
	Machine     string // the board, with its version
	CPU         string // the model of the processors
	Accelerator string
	// Shape is a digest of all else that the program is started with: processors, memory, what is
	// booted, and which devices there are in which places. What the devices stand on is left out.
	Shape string
}

// Templater is a backend that starts VMs from the memory of another one, a template.
type Templater interface {
	// Traits returns the traits of a VM. It fails with a fault if such a VM cannot have a template.
	Traits(ctx context.Context, s *Spec) (Traits, error)
	// StartForTemplate starts a VM that becomes a template. Its memory is the file memory, which the
	// VM's process may write, and its network devices are not connected.
	StartForTemplate(ctx context.Context, s *Spec, memory string) (TemplateSource, error)
	// StartFromTemplate starts a VM with a template's memory and state, paused and with its network
	// devices not connected. The process cannot change the memory file.
	StartFromTemplate(ctx context.Context, s *Spec, memory, state *os.File) (FromTemplate, error)
}

// TemplateSource is a VM that becomes a template.
type TemplateSource interface {
	Instance
	// SaveState pauses the VM for good and writes the state of its devices. The memory file and the
	// disks are complete once the process has ended.
	SaveState(ctx context.Context, w io.Writer) error
}

// FromTemplate is a VM that was started from a template.
type FromTemplate interface {
	Instance
	// Connect connects the network devices.
	Connect(ctx context.Context) error
}

// Disks are the open disks of a VM: those of a running VM, whose Instance implements this, or those
// from OpenDisks. Snapshots are of all disks that a guest can write to, and all other methods work on the
// system disk.
type Disks interface {
	// Recover ends jobs on the disk that a killed daemon started and nobody waits for.
	Recover(ctx context.Context) error
	// Snapshot saves the current state of the disks, all as of the same moment. With full, it also saves the memory of a
	// running VM and returns its size in bytes. If it fails, the VM continues as before, but the
	// disks may contain a partial snapshot.
	Snapshot(ctx context.Context, name string, full bool) (memory int64, err error)
	// DeleteSnapshot removes a snapshot or the remains of a failed one. It succeeds if there is
	// none.
	DeleteSnapshot(ctx context.Context, name string) error
	// RevertFull reverts a running VM to a full snapshot.
	RevertFull(ctx context.Context, name string) error
	// Copy writes the disk, or what changed in it, to a file.
	Copy(ctx context.Context, c DiskCopy, progress func(float64)) error
	// Export serves the disk, as of one moment, to readers, or a disk that no guest uses to a writer,
	// until EndExport. There is at most one export.
	Export(ctx context.Context, e DiskExport) (Export, error)
	// EndExport ends the export, also that of a killed daemon. It succeeds without an export.
	EndExport(ctx context.Context) error
	// HasBitmap reports whether a bitmap exists and has tracked all changes.
	HasBitmap(ctx context.Context, name string) (bool, error)
	// Bitmaps returns the names of all bitmaps.
	Bitmaps(ctx context.Context) ([]string, error)
	// DropBitmaps removes all bitmaps whose names begin with prefix, except those to keep.
	DropBitmaps(ctx context.Context, prefix string, keep ...string) error
	// Resize grows the disk to size bytes.
	Resize(ctx context.Context, size int64) error
	Close() error
}

// MemoryLimit is the timeout for saving or loading the memory of a VM, during which its process may
// not answer. It assumes a slow disk with 8 MiB per second.
func MemoryLimit(memoryMiB int) time.Duration {
	return 2*time.Minute + time.Duration(memoryMiB/8)*time.Second
}

// DiskCopy describes a copy of a disk.
type DiskCopy struct {
	Target string // an existing qcow2 file, as large as the disk, that the VM's process may write
	// Since is a bitmap: only what changed since is copied; empty: everything. The bitmap is not
	// modified and keeps tracking.
	Since string
	// Note is a bitmap to create that tracks changes from the moment of the copy on. It outlives
	// the VM's process. Empty: none.
	Note string
	// Begun is called once the moment of the copy has passed; nil: not called.
	Begun func()
}

// DiskExport describes an export of a disk.
type DiskExport struct {
	// Since is a bitmap: the export reports what changed since; empty: it reports what is allocated.
	// The bitmap is not modified and keeps tracking.
	Since string
	// Note is a bitmap to create that tracks changes from the moment of the export on, or from
	// shortly before it. It outlives the VM's process. Empty: none.
	Note string
	// Scratch is a file that the VM's process may write, to which it saves what the guest overwrites
	// while the export lasts, at most ScratchSize bytes. If more is needed, reads of the export fail;
	// the guest does not notice. Empty: no guest uses the disk.
	Scratch     string
	ScratchSize int64
	// Writable exports the disk to a writer.
	Writable bool
	// Begun is called once the moment of the export has passed; nil: not called.
	Begun func()
}

// Export is a disk that a VM's process serves by the NBD protocol.
type Export struct {
	Name string
	// Bitmap is the name under which the export reports what changed; empty: it does not.
	Bitmap string
	// Dial connects to the process.
	Dial func(ctx context.Context) (net.Conn, error)
}
