//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	lbapi "github.com/mainstay-infra/mainstay/api/lb"
	"github.com/mainstay-infra/mainstay/kit/netlab"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

// lbAPI is where the daemon answers on the balancer.
const lbAPI = "http://127.0.0.1:9870"

// lbVIP is a VIP of a document. Its backends serve the same port, unless ports say
// otherwise.
type lbVIP struct {
	address  string
	port     int
	protocol string // tcp by default
	mode     string // nat by default
	check    string // a healthCheck; by default one that finds out soon
	backends []*lbBackend
}

// quickCheck finds out soon, and takes a busy machine for no failure: a port that
// is closed answers at once.
const quickCheck = "{interval: 100ms, timeout: 10s}"

// lbDocument is a document with VIPs, and what else it is to have.
func lbDocument(vips []lbVIP, more ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "interface: %s\nvips:\n", lbDevice)
	for _, v := range vips {
		var backends []string
		for _, backend := range v.backends {
			address := backend.address
			if strings.Contains(v.address, ":") {
				address = backend.address6
			}
			backends = append(backends, fmt.Sprintf("{address: '%s'}", address))
		}
		fmt.Fprintf(
			&b, "- {address: '%s', port: %d, protocol: %s, mode: %s, healthCheck: %s, backends: [%s]}\n", v.address,
			v.port, orElse(v.protocol, "tcp"), orElse(v.mode, "nat"), orElse(v.check, quickCheck),
			strings.Join(backends, ", "),
		)
	}
	return b.String() + strings.Join(more, "\n")
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// lbDaemon is a load balancer on a host, that can be stopped, killed and started
// again.
type lbDaemon struct {
	testing.TB
	host   *netlab.Host
	file   string // the document
	pins   string // its BPF file system
	binary string
	env    []string
	args   []string
	as     *syscall.SysProcAttr // who it runs as

	client  *http.Client
	process *process
	printed []string // by earlier processes
}

// newLB prepares a daemon with a document. The BPF file system is one of its own,
// which keeps nothing after the test.
func newLB(t testing.TB, host *netlab.Host, document string, args ...string) *lbDaemon {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	d := &lbDaemon{
		TB:     t,
		host:   host,
		file:   filepath.Join(dir, "lb.yaml"),
		pins:   filepath.Join(dir, "bpf"),
		binary: path,
		client: clientOn(t, host),
		as:     dieWithParent(),
	}
	if err := os.Mkdir(d.pins, 0o700); err != nil {
		t.Fatal(err)
	}
	unmountInTheEnd(t, d.pins)
	d.write(document)
	d.env = []string{"LB_API_KEY=" + lbAdminKey}
	d.args = append([]string{"serve", "lb", "--config", d.file, "--bpf-dir", d.pins}, args...)
	return d
}

func unmountInTheEnd(t testing.TB, dir string) {
	t.Cleanup(func() {
		// EINVAL: nothing was mounted.
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
}

// startLB starts a daemon and waits until all its backends are healthy.
func startLB(t testing.TB, host *netlab.Host, document string, args ...string) *lbDaemon {
	t.Helper()
	d := newLB(t, host, document, args...)
	d.start()
	d.healthy()
	return d
}

var lbListening = regexp.MustCompile(`msg=listening service=lb url=(\S+)`)

// start launches the daemon and waits until its API can be reached.
func (d *lbDaemon) start() {
	d.Helper()
	if d.process != nil {
		d.printed = append(d.printed, d.process.output.String())
	}
	d.process = d.launch(d.env, d.args...)
	if _, ok := d.process.awaitOutput(lbListening); !ok {
		d.Fatalf("the load balancer did not start:\n%s", tail(d.process.output.String(), 20))
	}
}

// launch starts the program on the daemon's host.
func (d *lbDaemon) launch(env []string, args ...string) *process {
	d.Helper()
	cmd := exec.Command(d.binary, args...)
	cmd.SysProcAttr = d.as
	return launchCommand(d.TB, env, cmd, d.host.Start)
}

// run runs a command on the daemon's host to its end, with a key.
func (d *lbDaemon) run(key string, args ...string) (code int, output string) {
	d.Helper()
	p := d.launch([]string{"LB_API_KEY=" + key}, args...)
	return p.wait(), p.output.String()
}

// write replaces the document as editors do: half a file is never there.
func (d *lbDaemon) write(document string) {
	d.Helper()
	if err := os.WriteFile(d.file+".new", []byte(document), 0o600); err != nil {
		d.Fatal(err)
	}
	if err := os.Rename(d.file+".new", d.file); err != nil {
		d.Fatal(err)
	}
}

func (d *lbDaemon) signal(s syscall.Signal) {
	d.Helper()
	if err := d.process.cmd.Process.Signal(s); err != nil {
		d.Fatal(err)
	}
}

func (d *lbDaemon) api(key string) *lbapi.Client {
	d.Helper()
	c, err := lbapi.NewClient(
		lbAPI+lbapi.BasePath,
		rest.WithHTTPClient(d.client),
		rest.WithEditor(func(_ context.Context, r *http.Request) error {
			if key != "" {
				r.Header.Set("Authorization", "Bearer "+key)
			}
			return nil
		}),
	)
	if err != nil {
		d.Fatal(err)
	}
	return c
}

func (d *lbDaemon) rows() []lbapi.BackendRow {
	d.Helper()
	return *got[[]lbapi.BackendRow](d.api(lbAdminKey).ListBackends(d.Context())).is(d, 200)
}

func (d *lbDaemon) node() lbapi.Node {
	d.Helper()
	return *got[lbapi.Node](d.api(lbAdminKey).GetNode(d.Context())).is(d, 200)
}

func (d *lbDaemon) vip(name string) lbapi.VIP {
	d.Helper()
	vips := *got[[]lbapi.VIP](d.api(lbAdminKey).ListVIPs(d.Context())).is(d, 200)
	i := slices.IndexFunc(vips, func(v lbapi.VIP) bool { return v.Name == name })
	if i < 0 {
		d.Fatalf("there is no VIP %s", name)
	}
	return vips[i]
}

// row is a backend's first row.
func (d *lbDaemon) row(b *lbBackend) lbapi.BackendRow {
	d.Helper()
	rows := d.rows()
	i := slices.IndexFunc(rows, func(r lbapi.BackendRow) bool { return r.Address == b.address.String() })
	if i < 0 {
		d.Fatalf("%s is not among the backends", b.name)
	}
	return rows[i]
}

// id is a backend's id as paths have it.
func (d *lbDaemon) id(b *lbBackend) string { d.Helper(); return fmt.Sprint(d.row(b).Id) }

// becomes waits until a backend is in a state for all VIPs that it serves.
func (d *lbDaemon) becomes(b *lbBackend, state lbapi.BackendState) {
	d.Helper()
	eventually(d, fmt.Sprintf("%s is %s", b.name, state), func() bool {
		return !slices.ContainsFunc(
			d.rows(), func(r lbapi.BackendRow) bool { return r.Address == b.address.String() && r.State != state },
		)
	})
	d.applied()
}

// healthy waits until all backends are.
func (d *lbDaemon) healthy() {
	d.Helper()
	eventually(d, "all backends are healthy", func() bool {
		return !slices.ContainsFunc(
			d.rows(), func(r lbapi.BackendRow) bool { return r.State != lbapi.BackendStateHealthy },
		)
	})
	d.applied()
}

// applied waits until the kernel has what the API shows: a change is answered when
// the kernel has it, and with it all that came before.
func (d *lbDaemon) applied() {
	d.Helper()
	for _, r := range d.rows() {
		if !r.AdminDraining { // so this changes nothing
			ask(d.api(lbAdminKey).UndrainBackend(d.Context(), fmt.Sprint(r.Id), lbapi.Nothing{})).is(d, 200)
			return
		}
	}
	d.Fatal("no backend is left to ask with")
}

// loaded waits until so many VIPs are configured.
func (d *lbDaemon) loaded(vips int) {
	d.Helper()
	eventually(d, fmt.Sprintf("%d VIPs are configured", vips), func() bool {
		return len(*got[[]lbapi.VIP](d.api(lbAdminKey).ListVIPs(d.Context())).is(d, 200)) == vips
	})
	d.applied()
}

func (d *lbDaemon) metric(name string) float64 {
	d.Helper()
	return metricAt(d.TB, d.client, lbAPI, name)
}

// get is the status and the text of a page.
func (d *lbDaemon) get(url string) (status int, text string) {
	d.Helper()
	res, err := d.client.Get(url)
	if err != nil {
		d.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		d.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// attached says whether an XDP program is on the balancer's interface.
func (d *lbDaemon) attached() bool {
	d.Helper()
	l, err := d.host.Netlink().LinkByName(lbDevice)
	if err != nil {
		d.Fatal(err)
	}
	return l.Attrs().Xdp != nil && l.Attrs().Xdp.Attached
}
