package qemu

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
)

// Type is the type of board.
type Type string

// The boards.
const (
	// Q35 is a PC with PCI Express: firmware, screens, CD drives, hot-plugging.
	Q35 Type = "q35"
	// MicroVM has virtio devices and nothing else, and boots a kernel soonest.
	MicroVM Type = "microvm"
	// None has disks only, to work on them.
	None Type = "none"
)

// Machine describes what QEMU is to run.
type Machine struct {
	Name        string
	UUID        string
	Folder      string // see the package; absolute
	Type        Type
	Accelerator string // kvm or tcg
	VCPUs       int
	MemoryMiB   int
	// Kernel and Initrd are booted without firmware; both empty: what the disks hold.
	Kernel, Initrd, KernelArgs string
	// Firmware is a file of UEFI code and FirmwareVars the machine's own copy of its
	// variables; both empty: the board's own BIOS. Board Q35 only.
	Firmware, FirmwareVars string
	Disks                  []Disk
	NICs                   []NIC
	Shares                 []Share
	Extra                  []string // further arguments; see CheckExtra
	Agent                  bool     // a port for the guest agent
	Screen                 bool     // a screen that VNC shows; board Q35 only
	Halted                 bool     // do not run until told to
	Board                  string   // the type with its version, such as pc-q35-7.2; empty: the newest
	Memory                 *Memory  // nil: memory of QEMU's own
	State                  *os.File // open until the machine was launched; where it goes on from; nil: it boots
	// UID and GID are the user and group of QEMU; 0: the daemon's. Groups are additional groups,
	// such as that of /dev/kvm.
	UID, GID int
	Groups   []uint32
}

// Disk is a block device. The first one is what the machine boots from.
type Disk struct {
	ID       string // letters, digits and dashes; the node's name in the monitor
	Path     string // a file, or nbd:..., rbd:POOL/IMAGE[:OPTION=VALUE]...
	Format   string // qcow2 or raw: never guessed
	ReadOnly bool
	Seed     bool // never booted
	Medium   bool // in the drive for CDs that the board Q35 always has
	Serial   string
	Port     int // from 1, of the board Q35; 0: none
}

// NIC is a network interface.
type NIC struct {
	ID  string
	MAC string
	Tap string // a device of the host that is there; empty: user mode, which reaches out by QEMU itself

	Forwards []backend.Forward
	// Alone is a device that leads nowhere. User mode has a state of its own, which is saved with the
	// VM's, and which a VM with a tap could not load.
	Alone bool
}

// Share is a folder of the host that the guest mounts by its tag (9p).
type Share struct {
	Tag      string
	ReadOnly bool
	Folder   *os.File // open until the machine was launched
}

// Memory is a file that the machine's memory is mapped from.
type Memory struct {
	Path string   // a file that QEMU may write; the guest's memory is in it
	File *os.File // in place of a path, open until the machine was launched: it is never written
}

// memory adds the file as the board's memory, under the name that the memory has without one: full
// snapshots can be loaded with and without.
func (m *Machine) memory(a *arguments) {
	share, path := "on", value(m.Memory.Path)
	if m.Memory.File != nil {
		share, path = "off", fmt.Sprintf("/proc/self/fd/%d", m.fileNumber(m.Memory.File))
	}
	a.add("-object", fmt.Sprintf(
		"memory-backend-file,id=%s,size=%dM,mem-path=%s,share=%s,x-use-canonical-path-for-ramblock-id=off",
		m.memoryID(), m.MemoryMiB, path, share,
	))
}

func (m *Machine) memoryID() string {
	return map[Type]string{Q35: "pc.ram", MicroVM: "microvm.ram"}[m.Type]
}

// files returns the files that QEMU inherits, in the order of their numbers.
func (m *Machine) files() (all []*os.File) {
	for _, s := range m.Shares {
		all = append(all, s.Folder)
	}
	if m.Memory != nil && m.Memory.File != nil {
		all = append(all, m.Memory.File)
	}
	if m.State != nil {
		all = append(all, m.State)
	}
	return all
}

// fileNumber returns the number of an inherited file in QEMU.
func (m *Machine) fileNumber(f *os.File) int { return firstFile + slices.Index(m.files(), f) }

// firstFile is the number of the first file that QEMU inherits beside its standard streams.
const firstFile = 3

// share adds a folder. QEMU opens it by its descriptor: nobody can put a link in its place meanwhile.
func (m *Machine) share(a *arguments, i int) {
	s, id := &m.Shares[i], "share"+strconv.Itoa(i)
	a.add("-fsdev", fmt.Sprintf(
		"local,id=%s,path=/proc/self/fd/%d,security_model=mapped-xattr,readonly=%s",
		id, firstFile+i, map[bool]string{true: "on", false: "off"}[s.ReadOnly],
	))
	a.add("-device", fmt.Sprintf("%s,id=dev-%s,fsdev=%s,mount_tag=%s", m.device("virtio-9p"), id, id, value(s.Tag)))
}

// AgentPort is the name of the port that the guest agent opens.
const AgentPort = "org.mainstay.guest.0"

// The ids of the agent's port in the monitor. QEMU reports only ports that have an id.
const (
	agentChardev = "agent"
	agentDevice  = "agent-port"
)

// runFolder is the part of a machine's folder that QEMU itself can write to.
const runFolder = "run"

// The sockets in it.
const (
	qmpSocket    = "qmp.sock"
	serialSocket = "serial.sock"
	vncSocket    = "vnc.sock"
	agentSocket  = "agent.sock"
)

// socket returns the path of a socket relative to the machine's folder, which is QEMU's working
// folder. A relative path never exceeds the length limit of socket paths.
func socket(name string) string { return runFolder + "/" + name }

// Args returns the arguments for qemu-system-ARCH.
func (m *Machine) Args() []string {
	a := &arguments{}
	a.add("-name", "guest="+value(m.Name)+",debug-threads=on")
	a.add("-uuid", m.UUID)
	// Without these, QEMU would read configuration files of the host and add default devices.
	a.flag("-nodefaults", "-no-user-config", "-no-shutdown")
	if m.Halted {
		a.flag("-S")
	}
	if m.State != nil {
		a.add("-incoming", "defer") // see Backend.StartFromTemplate
	}
	a.add("-display", "none")
	a.add("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny")
	board := m.board()
	if m.Memory != nil {
		board += ",memory-backend=" + m.memoryID()
	}
	a.add("-machine", board)
	a.add("-accel", m.Accelerator)
	if m.Type == None {
		m.monitor(a)
		for i := range m.Disks {
			m.blockdev(a, &m.Disks[i])
		}
		return a.all
	}
	a.add("-cpu", m.cpu())
	a.add("-smp", strconv.Itoa(m.VCPUs))
	a.add("-m", "size="+strconv.Itoa(m.MemoryMiB)+"M")
	if m.Memory != nil {
		m.memory(a)
	}
	a.add("-rtc", "base=utc")
	m.monitor(a)
	a.add("-chardev", "socket,id=serial,server=on,wait=off,path="+socket(serialSocket))
	a.add("-serial", "chardev:serial")
	a.add("-device", m.device("virtio-rng"))
	m.boot(a)
	if m.Type == Q35 {
		m.ports(a)
	}
	for i := range m.Disks {
		m.disk(a, i)
	}
	for i := range m.NICs {
		m.nic(a, &m.NICs[i])
	}
	for i := range m.Shares {
		m.share(a, i)
	}
	if m.Agent {
		a.add("-device", m.device("virtio-serial"))
		a.add("-chardev", "socket,id="+agentChardev+",server=on,wait=off,path="+socket(agentSocket))
		a.add("-device", "virtserialport,id="+agentDevice+",chardev="+agentChardev+",name="+AgentPort)
	}
	if m.Screen {
		a.add("-device", "VGA")
		a.add("-vnc", "unix:"+socket(vncSocket))
	}
	a.flag(m.Extra...)
	return a.all
}

func (m *Machine) monitor(a *arguments) {
	// QEMU waits for its first client: a client that connects while the monitor is being set up may
	// get no greeting, and has been seen to crash QEMU 7.2.
	a.add("-chardev", "socket,id=qmp,server=on,wait=on,path="+socket(qmpSocket))
	a.add("-mon", "chardev=qmp,mode=control")
}

// board returns the value of -machine.
func (m *Machine) board() string {
	if m.Type == None {
		return "none"
	}
	if m.Type == MicroVM {
		// The kernel finds its devices on its command line; the clock of old PCs is left
		// out, so that kernels calibrate by what they are told (see boot).
		return "microvm,auto-kernel-cmdline=on,isa-serial=on,pit=off,pic=off,rtc=on"
	}
	return cmp.Or(m.Board, string(Q35)) + ",smm=off,vmport=off"
}

// cpu returns the value of -cpu.
func (m *Machine) cpu() string {
	if m.Accelerator == "kvm" {
		return "host"
	}
	return "max"
}

// device returns the name of a virtio device for this board.
func (m *Machine) device(kind string) string {
	if m.Type == MicroVM {
		return kind + "-device"
	}
	return kind + "-pci"
}

// clockOfMicroVM lets the kernel skip the calibration of its clock, which would hang on a board
// without the legacy timers.
const clockOfMicroVM = " tsc_early_khz=2000000"

func (m *Machine) boot(a *arguments) {
	if m.Firmware != "" {
		a.add("-drive", "if=pflash,unit=0,format=raw,readonly=on,file="+value(m.Firmware))
		a.add("-drive", "if=pflash,unit=1,format=raw,file="+value(m.FirmwareVars))
	}
	if m.Kernel == "" {
		return
	}
	line := m.KernelArgs
	if m.Type == MicroVM && m.Accelerator == "tcg" {
		line += clockOfMicroVM
	}
	a.add("-kernel", m.Kernel)
	if m.Initrd != "" {
		a.add("-initrd", m.Initrd)
	}
	a.add("-append", line)
}

// portSlot is the slot of the ports for disks, which are its functions: they move no other device.
const portSlot = "0x1c"

// cdBus is the bus of the drive whose medium can be changed. QEMU puts other drives on the last bus first.
const cdBus = "ide.0"

// cdDevice is the ID of that drive.
const cdDevice = "dev-" + backend.CDDrive

// portID returns the ID of a port.
func portID(number int) string { return "port" + strconv.Itoa(number) }

// ports adds the ports that disks are plugged into while the machine runs, and the drive for CDs. The
// firmware tries the CD after the system disk.
func (m *Machine) ports(a *arguments) {
	for n := range backend.MaxPorts {
		a.add("-device", fmt.Sprintf(
			"pcie-root-port,id=%s,chassis=%d,slot=%d,bus=pcie.0,addr=%s.%d,multifunction=on", portID(n+1), n+1, n+1, portSlot, n,
		))
	}
	drive := fmt.Sprintf("ide-cd,id=%s,bus=%s,bootindex=%d", cdDevice, cdBus, bootCD)
	for i := range m.Disks {
		if d := &m.Disks[i]; d.Medium {
			m.blockdev(a, d)
			drive += ",drive=" + d.ID
		}
	}
	a.add("-device", drive)
}

// bootCD is the drive's place in the order of boot devices.
const bootCD = 100

func (m *Machine) disk(a *arguments, i int) {
	d := &m.Disks[i]
	if d.Medium && m.Type == Q35 {
		return // in the drive
	}
	m.blockdev(a, d)
	device := fmt.Sprintf("%s,id=dev-%s,drive=%s", m.device("virtio-blk"), d.ID, d.ID)
	if !d.Seed {
		device += fmt.Sprintf(",bootindex=%d", i+1)
	}
	if d.Serial != "" {
		device += ",serial=" + value(d.Serial)
	}
	if d.Port > 0 && m.Type == Q35 {
		device += ",bus=" + portID(d.Port)
	}
	a.add("-device", device)
}

// blockdev adds a disk without a device for it.
func (m *Machine) blockdev(a *arguments, d *Disk) {
	readOnly := map[bool]string{true: "on", false: "off"}[d.ReadOnly]
	a.add(
		"-blockdev",
		fmt.Sprintf(
			"%s,node-name=%s-file,read-only=%s,auto-read-only=off,discard=unmap", protocol(d.Path), d.ID, readOnly,
		),
	)
	a.add(
		"-blockdev",
		fmt.Sprintf("driver=%s,node-name=%s,read-only=%s,discard=unmap,file=%s-file", d.Format, d.ID, readOnly, d.ID),
	)
}

// protocol returns the -blockdev options with which QEMU accesses a disk's data.
func protocol(target string) string {
	if rest, ok := strings.CutPrefix(target, "rbd:"); ok {
		image, options, _ := strings.Cut(rest, "?")
		pool, name, _ := strings.Cut(image, "/")
		opts := "driver=rbd,pool=" + value(pool) + ",image=" + value(name)
		if query, err := url.ParseQuery(options); err == nil {
			for _, key := range []string{"user", "conf"} {
				if v := query.Get(key); v != "" {
					opts += "," + key + "=" + value(v)
				}
			}
		}
		return opts
	}
	if rest, ok := strings.CutPrefix(target, "nbd:unix:"); ok {
		return "driver=nbd,server.type=unix,server.path=" + value(rest)
	}
	if rest, ok := strings.CutPrefix(target, "nbd:"); ok {
		address, export, _ := strings.Cut(rest, "/")
		host, port, err := net.SplitHostPort(address)
		if err == nil {
			return "driver=nbd,server.type=inet,server.host=" + value(host) + ",server.port=" + value(
				port,
			) + ",export=" + value(export)
		}
	}
	return "driver=file,filename=" + value(target)
}

func (m *Machine) nic(a *arguments, n *NIC) {
	switch {
	case n.Alone:
		a.add("-netdev", "hubport,hubid=0,id="+n.ID)
	case n.Tap == "":
		options := "user,id=" + n.ID
		for _, f := range n.Forwards {
			options += fmt.Sprintf(",hostfwd=%s:%s:%d-:%d", f.Protocol, value(f.HostAddress), f.HostPort, f.GuestPort)
		}
		a.add("-netdev", options)
	default:
		a.add("-netdev", "tap,id="+n.ID+",script=no,downscript=no,ifname="+value(n.Tap))
	}
	a.add("-device", fmt.Sprintf("%s,id=dev-%s,netdev=%s,mac=%s", m.device("virtio-net"), n.ID, n.ID, n.MAC))
}

// arguments collects options.
type arguments struct{ all []string }

func (a *arguments) add(option, value string) { a.all = append(a.all, option, value) }

func (a *arguments) flag(options ...string) { a.all = append(a.all, options...) }

// value escapes a text for use in an option's value.
func value(text string) string { return strings.ReplaceAll(text, ",", ",,") }
