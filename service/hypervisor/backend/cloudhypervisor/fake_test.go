//go:build linux

package cloudhypervisor_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/restsocket/sockettest"
)

// fake is Cloud Hypervisor without a processor: its command line, its API with the
// documented statuses, its serial console, vsock and events, and how it ends.
type fake struct {
	*sockettest.Guest

	events *os.File

	mu     sync.Mutex
	config *config // nil: not created
	state  string
	viewer net.Conn // of the serial console
	ends   bool     // the program ends once the call is answered
}

// config is vm.create's body, as far as it is looked at. The real program ignores other
// fields; the fake does not, so that a misspelt one is noticed.
type config struct {
	CPUs struct {
		Boot int `json:"boot_vcpus"`
		Max  int `json:"max_vcpus"`
	} `json:"cpus"`
	Memory struct {
		Size int64 `json:"size"`
	} `json:"memory"`
	Payload *struct {
		Firmware  string `json:"firmware"`
		Kernel    string `json:"kernel"`
		Args      string `json:"cmdline"`
		Initramfs string `json:"initramfs"`
	} `json:"payload"`
	Disks []struct {
		ID           string `json:"id"`
		Path         string `json:"path"`
		ReadOnly     bool   `json:"readonly"`
		Type         string `json:"image_type"`
		BackingFiles bool   `json:"backing_files"`
	} `json:"disks"`
	Net []struct {
		ID  string `json:"id"`
		Tap string `json:"tap"`
		MAC string `json:"mac"`
	} `json:"net"`
	Vsock *struct {
		CID    int64  `json:"cid"`
		Socket string `json:"socket"`
	} `json:"vsock"`
	Serial   console `json:"serial"`
	Console  console `json:"console"`
	Platform struct {
		UUID string `json:"uuid"`
	} `json:"platform"`
}

type console struct {
	Mode   string `json:"mode"`
	Socket string `json:"socket"`
}

// fakeCloudHypervisor is main of the fake.
func fakeCloudHypervisor(args []string) int {
	guest, err := sockettest.NewGuest()
	if err != nil {
		return fail(1, err)
	}
	flags := flag.NewFlagSet("cloud-hypervisor", flag.ContinueOnError)
	socket, monitor := flags.String("api-socket", "", ""), flags.String("event-monitor", "", "")
	version := flags.Bool("version", false, "")
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 {
		return fail(2, fmt.Errorf("unexpected argument: %w", err))
	}
	if *version {
		_, _ = fmt.Fprintln(os.Stdout, "cloud-hypervisor v48.0")
		return 0
	}
	path, ok := strings.CutPrefix(*socket, "path=")
	if guest.Settings.Mode == "early" || !ok {
		return fail(1, errors.New("the fake ended early"))
	}
	f := &fake{Guest: guest}
	if path, ok := strings.CutPrefix(*monitor, "path="); ok {
		if f.events, err = os.OpenFile(
			path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600,
		); err != nil { //nolint:gosec // the test's own
			return fail(1, err)
		}
		if err := unix.SetNonblock(int(f.events.Fd()), true); err != nil { //nolint:gosec // a file's number is small
			return fail(1, err)
		}
	}
	f.event("vmm", "starting")
	f.Print = f.print
	f.End = func(clean bool) {
		if !clean {
			os.Exit(fail(1, errors.New("the fake crashed")))
		}
		f.event("vm", "shutdown")
		os.Exit(0)
	}
	return fail(
		1, f.Serve(path, f, func(w http.ResponseWriter, text string) { refuse(w, http.StatusBadRequest, text) }),
	)
}

func fail(status int, err error) int {
	_, _ = fmt.Fprintln(os.Stderr, err)
	return status
}

// event reports as the real program does, to whoever reads.
func (f *fake) event(source, name string) {
	if f.events == nil {
		return
	}
	text := fmt.Sprintf(
		"{\n  \"timestamp\": {\n    \"secs\": 0,\n    \"nanos\": 1\n  },\n  \"source\": %q,\n  \"event\": %q,\n  \"properties\": null\n}\n\n",
		source, name,
	)
	_, _ = unix.Write(int(f.events.Fd()), []byte(text)) //nolint:gosec // a file's number is small
}

// print shows bytes to who is connected, and loses them if nobody is.
func (f *fake) print(b []byte) {
	f.mu.Lock()
	viewer := f.viewer
	f.mu.Unlock()
	if viewer != nil {
		_, _ = viewer.Write(b)
	}
}

func refuse(w http.ResponseWriter, status int, causes ...string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(causes)
}

// refusal is an answer that is not 2xx.
type refusal struct {
	status int
	causes []string
}

func (r *refusal) Error() string { return strings.Join(r.causes, ": ") }

func no(status int, causes ...string) error { return &refusal{status, causes} }

// ServeHTTP answers a call.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name, ok := strings.CutPrefix(r.URL.Path, "/api/v1/")
	var answer any
	err := no(http.StatusNotFound, "Not found")
	switch {
	case ok && r.Method == http.MethodGet:
		answer, err = f.look(name)
	case ok && r.Method == http.MethodPut && name != "vm.create" && r.ContentLength > 0:
		err = no(http.StatusBadRequest, "Bad Request")
	case ok && r.Method == http.MethodPut:
		err = f.change(name, r)
	}
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		refuse(w, refused.status, refused.causes...)
	case err != nil:
		refuse(w, http.StatusInternalServerError, "Internal Server Error", err.Error())
	case answer != nil:
		_ = json.NewEncoder(w).Encode(answer)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
	if f.ends {
		_ = http.NewResponseController(w).Flush()
		f.End(true)
	}
}

func (f *fake) look(name string) (any, error) {
	switch {
	case name == "vmm.ping":
		return map[string]any{
			"version":       "v48.0",
			"build_version": "v48.0",
			"pid":           os.Getpid(),
			"features":      []string{"kvm"},
		}, nil
	case name == "vm.info" && f.config == nil:
		return nil, no(http.StatusNotFound, "VM is not created")
	case name == "vm.info":
		return map[string]any{"config": f.config, "state": f.state}, nil
	case name == "vm.counters" && f.booted():
		return json.RawMessage(
			`{"disk0":{"read_bytes":4096,"write_bytes":512,"read_ops":1,"read_latency_min":18446744073709551615},"net0":{"rx_bytes":7,"tx_bytes":9}}`,
		), nil
	case name == "vm.counters":
		return nil, no(http.StatusInternalServerError, "Internal Server Error", "VM is not running")
	}
	return nil, no(http.StatusNotFound, "Not found")
}

func (f *fake) booted() bool { return f.state == "Running" || f.state == "Paused" }

// change makes a move that the state allows: not created, Created, Running, Paused, Shutdown.
func (f *fake) change(name string, r *http.Request) error {
	moves := map[string]struct{ from, to string }{
		"vm.boot": {
			"Created",
			"Running",
		},
		"vm.pause":        {"Running", "Paused"},
		"vm.resume":       {"Paused", "Running"},
		"vm.shutdown":     {"Running", "Shutdown"},
		"vm.power-button": {"Running", "Running"},
		"vm.reboot":       {"Running", "Running"},
	}
	move, known := moves[name]
	switch {
	case name == "vm.create":
		return f.create(r)
	case name == "vmm.shutdown":
		f.ends = true
		return nil
	case !known:
		return no(http.StatusNotFound, "Not found")
	case f.config == nil:
		return no(http.StatusNotFound, "The VM is not created")
	case f.state != move.from:
		return no(
			http.StatusMethodNotAllowed, "The VM could not do "+name,
			"Invalid VM state transition: "+f.state+" to "+move.to,
		)
	}
	if name == "vm.boot" {
		if err := f.boot(); err != nil {
			return no(http.StatusInternalServerError, "Internal Server Error", "The VM could not boot", err.Error())
		}
	}
	f.state = move.to
	f.event("vm", strings.TrimPrefix(name, "vm."))
	f.ends = name == "vm.power-button" // the guest powers off
	return nil
}

func (f *fake) create(r *http.Request) error {
	if f.config != nil {
		return no(http.StatusInternalServerError, "Internal Server Error", "The VM is already created")
	}
	var c config
	if err := sockettest.Decode(r, &c); err != nil {
		return no(http.StatusBadRequest, "Bad Request", err.Error())
	}
	switch {
	case c.Payload == nil || c.Payload.Kernel == "" && c.Payload.Firmware == "":
		return no(
			http.StatusInternalServerError, "Internal Server Error", "Error with VM payload", "no kernel or firmware",
		)
	case c.Payload.Kernel != "" && c.Payload.Firmware != "":
		return no(
			http.StatusInternalServerError, "Internal Server Error", "Error with VM payload", "kernel and firmware",
		)
	case c.CPUs.Boot < 1 || c.CPUs.Max < c.CPUs.Boot || c.Memory.Size < 1<<20:
		return no(http.StatusInternalServerError, "Internal Server Error", "Error validating the VM configuration")
	case c.Serial.Mode != "Socket" || c.Serial.Socket == "" || c.Console.Mode != "Off":
		return no(
			http.StatusInternalServerError, "Internal Server Error",
			"Path missing when using file or socket console mode",
		)
	case c.Vsock != nil && (c.Vsock.CID < 3 || c.Vsock.Socket == ""):
		return no(http.StatusInternalServerError, "Internal Server Error", "Invalid vsock configuration")
	}
	for _, d := range c.Disks {
		if d.Type != "Raw" && d.Type != "Qcow2" {
			return no(http.StatusBadRequest, "Bad Request", "unknown variant `"+d.Type+"`")
		}
	}
	f.config, f.state = &c, "Created"
	return nil
}

// boot opens what the configuration names.
func (f *fake) boot() error {
	c := f.config
	for _, path := range []string{c.Payload.Kernel, c.Payload.Firmware, c.Payload.Initramfs} {
		if path == "" {
			continue
		}
		if err := opens(path, os.O_RDONLY); err != nil {
			return err
		}
	}
	for _, d := range c.Disks {
		mode := os.O_RDWR
		if d.ReadOnly {
			mode = os.O_RDONLY
		}
		if err := opens(d.Path, mode); err != nil {
			return err
		}
	}
	for _, n := range c.Net {
		if _, err := net.InterfaceByName(n.Tap); err != nil {
			return err
		}
	}
	if c.Vsock != nil {
		if err := f.ServeVsock(c.Vsock.Socket); err != nil {
			return err
		}
	}
	l, err := net.Listen("unix", c.Serial.Socket)
	if err != nil {
		return err
	}
	go f.serveSerial(l)
	return nil
}

// serveSerial has one connection at a time.
func (f *fake) serveSerial(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		f.mu.Lock()
		f.viewer = conn
		f.mu.Unlock()
		f.Type(conn)
		_ = conn.Close()
	}
}

func opens(path string, mode int) error {
	file, err := os.OpenFile(path, mode, 0) //nolint:gosec // the test's own
	if err != nil {
		return err
	}
	return file.Close()
}
