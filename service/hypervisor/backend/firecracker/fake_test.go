//go:build linux

package firecracker_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/restsocket/sockettest"
)

// fake is Firecracker without a processor: its command line, its API with the documented
// order of calls, its console and vsock, and how it ends.
type fake struct {
	*sockettest.Guest

	log *os.File

	mu       sync.Mutex
	state    string
	kernel   string
	drives   map[string]bool // whether it is the root device
	hasVsock bool
	ends     bool // the guest ends once the call is answered
}

// fakeFirecracker is main of the fake.
func fakeFirecracker(args []string) int {
	guest, err := sockettest.NewGuest()
	if err != nil {
		return fail(1, err)
	}
	return runFirecracker(guest, args)
}

func runFirecracker(guest *sockettest.Guest, args []string) int {
	flags := flag.NewFlagSet("firecracker", flag.ContinueOnError)
	id, socket := flags.String("id", "anonymous-instance", ""), flags.String("api-sock", "/run/firecracker.socket", "")
	log, level := flags.String("log-path", "", ""), flags.String("level", "Info", "")
	version := flags.Bool("version", false, "")
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 {
		return fail(153, fmt.Errorf("arguments parsing error: %w", err))
	}
	if *version {
		_, _ = fmt.Fprintln(os.Stdout, "Firecracker v1.12.0\n\nSupported snapshot data format versions: v5.0.0")
		return 0
	}
	if guest.Settings.Mode == "early" {
		return fail(1, errors.New("the fake ended early"))
	}
	if !idPattern.MatchString(*id) {
		return fail(1, errors.New("invalid instance ID"))
	}
	f := &fake{Guest: guest, state: "Not started", drives: map[string]bool{}, log: os.Stdout}
	if *log != "" {
		fd, err := unix.Open(*log, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CREAT, 0o600)
		if err != nil {
			return fail(1, err)
		}
		f.log = os.NewFile(uintptr(fd), *log)
	}
	f.say("Running Firecracker v1.12.0 at level " + *level)
	f.Print = func(b []byte) { _, _ = unix.Write(1, b) } // what does not fit is lost
	f.End = func(clean bool) {
		if !clean {
			os.Exit(fail(1, errors.New("the fake crashed")))
		}
		f.say("Vmm is stopping.")
		f.say("Firecracker exiting successfully. exit_code=0")
		os.Exit(0)
	}
	// It has no end of its own, but by the guest.
	return fail(1, f.Serve(*socket, f, func(w http.ResponseWriter, text string) { f.refuse(w, text) }))
}

func fail(status int, err error) int {
	_, _ = fmt.Fprintln(os.Stderr, err)
	return status
}

// say logs without waiting for a reader.
func (f *fake) say(text string) {
	line := "2026-01-01T00:00:00.000000000 [fake:main] " + text + "\n"
	_, _ = unix.Write(int(f.log.Fd()), []byte(line)) //nolint:gosec // a file's number is small
}

func (f *fake) refuse(w http.ResponseWriter, text string) {
	f.say("Received Error. Status code: 400 Bad Request. Message: " + text)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	_ = json.NewEncoder(w).Encode(map[string]string{"fault_message": text})
}

const (
	tooLate  = "The requested operation is not supported after starting the microVM."
	tooEarly = "The requested operation is not supported before starting the microVM."
)

// ServeHTTP answers a call.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Method == http.MethodGet && r.URL.Path == "/" {
		_ = json.NewEncoder(w).Encode(
			map[string]string{"app_name": "Firecracker", "id": "fake", "state": f.state, "vmm_version": "1.12.0"},
		)
		return
	}
	if err := f.change(r); err != nil {
		f.refuse(w, err.Error())
		return
	}
	f.say("The request was executed successfully. Status code: 204 No Content.")
	w.WriteHeader(http.StatusNoContent)
	if f.ends {
		_ = http.NewResponseController(w).Flush()
		f.End(true)
	}
}

func (f *fake) change(r *http.Request) error {
	resource, id, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	before := map[string]func(*http.Request, string) error{
		"boot-source":        f.bootSource,
		"drives":             f.drive,
		"machine-config":     f.machine,
		"network-interfaces": f.network,
		"vsock":              f.vsock,
	}
	switch {
	case r.Method == http.MethodPut && before[resource] != nil:
		if f.state != "Not started" {
			return errors.New(tooLate)
		}
		return before[resource](r, id)
	case r.Method == http.MethodPut && resource == "actions":
		return f.action(r)
	case r.Method == http.MethodPatch && resource == "vm":
		return f.patch(r)
	}
	return fmt.Errorf("Invalid request method and/or path: %s %s.", r.Method, r.URL.Path)
}

func (f *fake) bootSource(r *http.Request, _ string) error {
	var b struct {
		Kernel *string `json:"kernel_image_path"`
		Initrd string  `json:"initrd_path"`
		Args   string  `json:"boot_args"`
	}
	if err := sockettest.Decode(r, &b); err != nil {
		return err
	}
	if b.Kernel == nil {
		return errors.New("missing field `kernel_image_path`")
	}
	for _, path := range []string{*b.Kernel, b.Initrd} {
		if path == "" {
			continue
		}
		if err := opens(path, os.O_RDONLY); err != nil {
			return fmt.Errorf("boot source error: the file cannot be opened: %w", err)
		}
	}
	f.kernel = *b.Kernel
	return nil
}

func (f *fake) drive(r *http.Request, id string) error {
	var d struct {
		ID       *string `json:"drive_id"`
		Path     *string `json:"path_on_host"`
		Root     *bool   `json:"is_root_device"`
		ReadOnly *bool   `json:"is_read_only"`
		Cache    string  `json:"cache_type"`
	}
	if err := sockettest.Decode(r, &d); err != nil {
		return err
	}
	if d.ID == nil || d.Root == nil || d.Path == nil || d.ReadOnly == nil {
		return errors.New("missing field of a drive")
	}
	if *d.ID != id || !wordPattern.MatchString(id) {
		return errors.New("the id from the path does not match the id from the body")
	}
	if d.Cache != "" && d.Cache != "Unsafe" && d.Cache != "Writeback" {
		return fmt.Errorf("unknown variant `%s`", d.Cache)
	}
	for other, root := range f.drives {
		if root && *d.Root && other != id {
			return errors.New("a root block device already exists")
		}
	}
	mode := os.O_RDWR
	if *d.ReadOnly {
		mode = os.O_RDONLY
	}
	if err := opens(*d.Path, mode); err != nil {
		return fmt.Errorf("unable to open the block device: %w", err)
	}
	f.drives[id] = *d.Root
	return nil
}

func (f *fake) machine(r *http.Request, _ string) error {
	var m struct {
		VCPUs  *int `json:"vcpu_count"`
		Memory *int `json:"mem_size_mib"`
	}
	if err := sockettest.Decode(r, &m); err != nil {
		return err
	}
	if m.VCPUs == nil || m.Memory == nil || *m.VCPUs < 1 || *m.VCPUs > 32 || *m.Memory < 1 {
		return errors.New("the vCPU number is invalid, or the memory size")
	}
	return nil
}

func (f *fake) network(r *http.Request, id string) error {
	var n struct {
		ID  *string `json:"iface_id"`
		MAC string  `json:"guest_mac"`
		Tap *string `json:"host_dev_name"`
	}
	if err := sockettest.Decode(r, &n); err != nil {
		return err
	}
	if n.ID == nil || n.Tap == nil || *n.ID != id || !wordPattern.MatchString(id) {
		return errors.New("missing field of an interface, or another id than in the path")
	}
	if _, err := net.ParseMAC(n.MAC); n.MAC != "" && err != nil {
		return err
	}
	if _, err := net.InterfaceByName(*n.Tap); err != nil {
		return fmt.Errorf("cannot create network device: open tap device failed: %w", err)
	}
	return nil
}

func (f *fake) vsock(r *http.Request, _ string) error {
	var v struct {
		CID  *uint32 `json:"guest_cid"`
		Path *string `json:"uds_path"`
	}
	if err := sockettest.Decode(r, &v); err != nil {
		return err
	}
	if v.CID == nil || v.Path == nil || *v.CID < 3 || f.hasVsock {
		return errors.New("missing field of a vsock, a reserved guest_cid, or a second one")
	}
	f.hasVsock = true
	return f.ServeVsock(*v.Path)
}

func (f *fake) action(r *http.Request) error {
	var a struct {
		Type string `json:"action_type"`
	}
	if err := sockettest.Decode(r, &a); err != nil {
		return err
	}
	switch a.Type {
	case "InstanceStart":
		return f.start()
	case "SendCtrlAltDel":
		if f.state == "Not started" {
			return errors.New(tooEarly)
		}
		f.ends = f.state == "Running" // the guest reboots, which is the end
		return nil
	}
	return fmt.Errorf("unknown variant `%s`", a.Type)
}

func (f *fake) start() error {
	if f.state != "Not started" {
		return errors.New(tooLate)
	}
	if f.kernel == "" {
		return errors.New("Cannot start microvm without kernel configuration.")
	}
	file, err := os.Open(f.kernel)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	magic := make([]byte, 4)
	if _, err := io.ReadFull(file, magic); err != nil || string(magic) != "\x7fELF" {
		return errors.New(
			"Start microvm error: Cannot load kernel due to invalid memory configuration or invalid kernel image: Kernel Loader: failed to load ELF kernel image",
		)
	}
	f.state = "Running"
	go f.Type(os.Stdin)
	return nil
}

func (f *fake) patch(r *http.Request) error {
	var v struct {
		State string `json:"state"`
	}
	if err := sockettest.Decode(r, &v); err != nil {
		return err
	}
	next := map[string]string{"Paused": "Paused", "Resumed": "Running"}[v.State]
	switch {
	case next == "":
		return fmt.Errorf("unknown variant `%s`, expected `Paused` or `Resumed`", v.State)
	case f.state == "Not started":
		return errors.New(tooEarly)
	}
	f.state = next
	return nil
}

func opens(path string, mode int) error {
	file, err := os.OpenFile(path, mode, 0) //nolint:gosec // the test's own
	if err != nil {
		return err
	}
	return file.Close()
}

var (
	idPattern   = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)
	wordPattern = regexp.MustCompile(`^[A-Za-z0-9_]+$`)
)

// fakeJailer is main of the fake jailer: it makes the jail and becomes the Firecracker in it.
func fakeJailer(args []string) int {
	flags := flag.NewFlagSet("jailer", flag.ContinueOnError)
	id, program := flags.String("id", "", ""), flags.String("exec-file", "", "")
	uid, gid := flags.Int("uid", -1, ""), flags.Int("gid", -1, "")
	base := flags.String("chroot-base-dir", "/srv/jailer", "")
	if err := flags.Parse(args); err != nil {
		return fail(1, err)
	}
	name := filepath.Base(*program)
	switch info, err := os.Stat(*program); {
	case err != nil || !info.Mode().IsRegular():
		return fail(1, fmt.Errorf("the exec file is not a regular file: %w", err))
	case !idPattern.MatchString(*id), *uid < 0, *gid < 0, !strings.Contains(name, "firecracker"):
		return fail(1, errors.New("invalid argument of the jailer"))
	}
	guest, err := sockettest.NewGuest()
	if err != nil {
		return fail(1, err)
	}
	root := filepath.Join(*base, name, *id, "root")
	if err := enter(root, *program, *uid, *gid); err != nil {
		return fail(1, err)
	}
	return runFirecracker(guest, append([]string{"--id=" + *id}, flags.Args()...))
}

// enter makes the jail, and lives in it as the user from then on.
func enter(root, program string, uid, gid int) error {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return err
	}
	if err := os.Link(program, filepath.Join(root, filepath.Base(program))); err != nil { // it copies
		return err
	}
	if err := errors.Join(unix.Chroot(root), os.Chdir("/")); err != nil {
		return err
	}
	for _, folder := range []string{"/", "/dev", "/dev/net", "/run"} {
		if err := errors.Join(
			os.MkdirAll(folder, 0o700), os.Chmod(folder, 0o700), os.Chown(folder, uid, gid),
		); err != nil { //nolint:gosec // in the jail
			return err
		}
	}
	_ = unix.Mknod(
		"/dev/kvm", unix.S_IFCHR|0o600, int(unix.Mkdev(10, 232)),
	) //nolint:gosec // nothing of the fake needs it
	return errors.Join(unix.Setgroups(nil), unix.Setgid(gid), unix.Setuid(uid))
}
