//go:build linux

package hypervisor_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/service/hypervisor"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// road is the network between a host that a VM leaves and the one that it comes to. It calls a test before and
// after each request about migrations.
type road struct {
	*testing.T
	url string

	mu   sync.Mutex
	to   *url.URL
	step func(step string) (cut bool) // "before commit", "after files", ...
}

// steps are the requests of a migration by the end of their paths.
func stepOf(r *http.Request) string {
	switch {
	case !strings.HasPrefix(r.URL.Path, "/v1/migrations"):
		return ""
	case r.Method == http.MethodDelete:
		return "abort"
	case strings.Contains(r.URL.Path, "/files/"):
		return "files"
	case strings.HasSuffix(r.URL.Path, "/prepare"), strings.HasSuffix(r.URL.Path, "/commit"):
		return r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	}
	return "offer"
}

// newRoad leads to a daemon.
func newRoad(d *daemon) *road {
	d.Helper()
	r := &road{T: d.T}
	r.lead(d)
	server := httptest.NewServer(r)
	d.Cleanup(server.Close)
	r.url = server.URL
	return r
}

// lead changes where the road leads.
func (r *road) lead(d *daemon) {
	r.Helper()
	to, err := url.Parse(d.url)
	if err != nil {
		r.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = to
}

// on sets what is called at each step. If it returns true, the request, or its answer, is lost.
func (r *road) on(step func(step string) (cut bool)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.step = step
}

func (r *road) cut(when string, req *http.Request) bool {
	r.mu.Lock()
	step := r.step
	r.mu.Unlock()
	name := stepOf(req)
	return step != nil && name != "" && step(when+" "+name)
}

func (r *road) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil || r.cut("before", req) {
		panic(http.ErrAbortHandler)
	}
	r.mu.Lock()
	to := r.to
	r.mu.Unlock()
	answer := httptest.NewRecorder()
	forwarded := req.Clone(req.Context())
	forwarded.Body = io.NopCloser(bytes.NewReader(body))
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	proxy.ServeHTTP(answer, forwarded)
	if r.cut("after", req) || answer.Code == http.StatusBadGateway {
		panic(http.ErrAbortHandler)
	}
	for k, v := range answer.Header() {
		w.Header()[k] = v
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// pair are two hosts of a fleet, with a road from the first to the second.
type pair struct {
	*testing.T
	from, to *daemon
	road     *road
}

func newPair(t *testing.T) *pair {
	t.Helper()
	need(t, "qemu-img", "qemu-system-x86_64")
	registry := start(t, "", patient)
	p := &pair{T: t, to: start(t, usualDocument, func(c *hypervisor.Config) { c.NodeName = "there" })}
	p.road = newRoad(p.to)
	p.from = start(t, usualDocument, func(c *hypervisor.Config) {
		c.NodeName, c.Registry, c.Advertise = "here", registry.url, "http://127.0.0.1:1"
	})
	registry.join("there", p.road.url)
	return p
}

// stopped makes a VM with a disk of random bytes on an image.
func (p *pair) stopped(name string) hypervisorapi.VM {
	p.Helper()
	if p.from.call("GET", "/v1/images/catalog/base", adminToken, nil).Status == 404 {
		image := rawImage(p.T, "the content of the image", 4<<20)
		p.from.finished(p.from.call("POST", "/v1/images/catalog", adminToken, object{"name": "base", "path": image}))
	}
	vm := contracttest.As[hypervisorapi.VM](p.from.call("POST", "/v1/vms", adminToken, object{
		"name": name, "tenant": "acme", "image": "base", "disk_gib": 1, "memory_mib": 128,
		"network": object{"mode": "user"}, "labels": object{"role": "db"}, "autostart": true,
	}).Want(201))
	p.from.call("POST", "/v1/vms/"+vm.Id+"/snapshots", adminToken, object{"name": "s1"}).Want(201)
	qemuIO(p.T, filepath.Join(p.from.cfg.Data, "vms", vm.Id, "disk.qcow2"), "write -P 7 1M 5M", "write -P 9 600M 1M")
	return vm
}

// qemuIO runs commands of qemu-io on a disk.
func qemuIO(t *testing.T, disk string, commands ...string) {
	t.Helper()
	args := []string{}
	for _, c := range commands {
		args = append(args, "-c", c)
	}
	run(t, "qemu-io", append(args, "-f", "qcow2", disk)...)
}

// holds checks that a VM's disk at a host is what stopped made.
func (p *pair) holds(d *daemon, id string) {
	p.Helper()
	disk := filepath.Join(d.cfg.Data, "vms", id, "disk.qcow2")
	out := run(p.T, "qemu-io", "-r", "-f", "qcow2", "-c", "read -P 7 1M 5M", "-c", "read -P 9 600M 1M", "-c", "read -P 0 700M 1M", disk)
	if strings.Contains(out, "verification failed") {
		p.Errorf("the disk at %s holds something else: %s", d.cfg.NodeName, out)
	}
	content := filepath.Join(p.TempDir(), "content.raw")
	run(p.T, "qemu-img", "convert", "-f", "qcow2", "-O", "raw", disk, content)
	head := make([]byte, 24)
	f, err := os.Open(content)
	if err != nil {
		p.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Read(head); err != nil || string(head) != "the content of the image" {
		p.Errorf("the disk at %s begins with %q, %v", d.cfg.NodeName, head, err)
	}
	if names := innerSnapshots(p.T, disk); len(names) != 1 {
		p.Errorf("the disk at %s has the snapshots %v", d.cfg.NodeName, names)
	}
}

// has reports whether a host has the VM, and can use it.
func has(d *daemon, id string) bool {
	d.Helper()
	for _, vm := range d.vms() {
		if vm.Id == id {
			return vm.HandedOverTo == nil
		}
	}
	return false
}

// one waits until exactly one host has the VM, and returns it.
func (p *pair) one(id string) *daemon {
	p.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		there := has(p.to, id)
		here := has(p.from, id) // later, since it may move from here to there in between
		open := contracttest.As[[]hypervisorapi.Migration](p.to.call("GET", "/v1/migrations", adminToken, nil).Want(200))
		switch {
		case here && there:
			p.Fatal("both hosts have the VM")
		case here && len(open) == 0:
			return p.from
		case there:
			return p.to
		case time.Now().After(deadline):
			p.Fatalf("no host has the VM: %s, open %+v", p.from.call("GET", "/v1/vms/"+id, adminToken, nil).Body, open)
		}
		time.Sleep(20 * time.Millisecond) // until the hosts agree
	}
}

func (p *pair) migrate(id string) answer {
	p.Helper()
	return p.from.call("POST", "/v1/vms/"+id+"/migrate", adminToken, object{"node": "there"})
}

func TestAStoppedVMMovesWithItsDiskSnapshotsAndIdentity(t *testing.T) {
	t.Parallel()
	for _, known := range []bool{false, true} {
		t.Run(fmt.Sprintf("image known there=%v", known), func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			vm := p.stopped("web")
			if known {
				image := rawImage(t, "the content of the image", 4<<20)
				p.to.finished(p.to.call("POST", "/v1/images/catalog", adminToken, object{"name": "base", "path": image}))
			}
			p.from.finished(p.migrate(vm.Id).Want(202))
			p.from.call("GET", "/v1/vms/"+vm.Id, adminToken, nil).Want(404)
			if left, err := filepath.Glob(filepath.Join(p.from.cfg.Data, "vms", "*")); err != nil || len(left) != 0 {
				t.Errorf("the host that it left still has %v, %v", left, err)
			}
			got := p.to.vm(vm.Id)
			if got.Generation <= vm.Generation {
				t.Errorf("its generation is %d, and was %d", got.Generation, vm.Generation)
			}
			if got.Name != "web" || got.Tenant != "acme" || got.Mac != vm.Mac || got.Labels["role"] != "db" || !got.Autostart ||
				got.State != "stopped" || got.DiskGib != 1 || !got.CreatedAt.Equal(vm.CreatedAt) {
				t.Errorf("%+v\nwas %+v", got, vm)
			}
			p.holds(p.to, vm.Id)
			bases, err := filepath.Glob(filepath.Join(p.to.cfg.Data, "bases", "*"))
			if err != nil || len(bases) != map[bool]int{false: 1, true: 0}[known] {
				t.Errorf("bases there: %v, %v", bases, err)
			}
			p.to.call("POST", "/v1/vms/"+vm.Id+"/snapshots/s1/revert", adminToken, nil).Want(200)
			p.to.call("DELETE", "/v1/vms/"+vm.Id, adminToken, nil).Want(204)
			if bases, err := filepath.Glob(filepath.Join(p.to.cfg.Data, "bases", "*")); err != nil || len(bases) != 0 {
				t.Errorf("bases are left: %v, %v", bases, err)
			}
		})
	}
}

func TestADiskBesideTheSystemDiskMovesWithItsVM(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	vm := p.stopped("web")
	path := "/v1/vms/" + vm.Id
	p.from.call("POST", path+"/disks", adminToken, object{"name": "data", "size_gib": 2, "serial": "S", "iops": 9}).Want(201)
	p.from.call("POST", path+"/disks", adminToken, object{"name": "tools", "image": "base", "read_only": true}).Want(201)
	qemuIO(t, p.from.diskFiles(vm.Id)[0], "write -P 5 100M 1M")
	sums := map[string]string{}
	for _, file := range p.from.diskFiles(vm.Id) {
		sums[filepath.Base(file)] = checksum(t, file)
	}
	p.from.call("POST", path+"/snapshots", adminToken, object{"name": "s2"}).Want(201)
	p.from.call("PUT", path+"/cd", adminToken, object{"image": "base"}).Want(200)
	p.migrate(vm.Id).Refused(409, "has_cd", "")
	p.from.call("DELETE", path+"/cd", adminToken, nil).Want(200)
	p.from.finished(p.migrate(vm.Id).Want(202))
	p.to.wantDisks(vm.Id, "system attached", "data attached", "tools attached")
	data := contracttest.As[hypervisorapi.Disk](p.to.call("GET", path+"/disks/data", adminToken, nil).Want(200))
	if data.SizeGib != 2 || data.Serial != "S" || data.Iops != 9 {
		t.Errorf("%+v", data)
	}
	moved := p.to.diskFiles(vm.Id)
	for _, file := range moved {
		if got := checksum(t, file); got != sums[filepath.Base(file)] {
			t.Errorf("%s holds something else", file)
		}
	}
	if len(moved) != 2 {
		t.Errorf("%v", moved)
	}
	p.to.call("DELETE", path+"/disks/data", adminToken, nil).Refused(409, "has_snapshots", "")
	p.to.call("POST", path+"/snapshots/s2/revert", adminToken, nil).Want(200)
	p.to.call("POST", path+"/start", adminToken, nil).Want(200)
	p.to.call("POST", path+"/stop", adminToken, object{"force": true}).Want(200)
	p.to.call("DELETE", path, adminToken, nil).Want(204)
	if left := p.to.diskFiles(vm.Id); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestAVMThatRunsRestartsAtTheOtherHost(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	vm := p.from.bootWithDisk("web")
	p.from.sh(vm.Id, mounted+"; echo moved >/mnt/f; sync; umount /mnt")
	p.migrate(vm.Id).Refused(409, "wrong_state", "")
	p.from.finished(p.from.call("POST", "/v1/vms/"+vm.Id+"/migrate", adminToken,
		object{"node": "there", "restart": true, "grace_seconds": 0}))
	p.to.connected(vm.Id)
	if got := p.to.sh(vm.Id, mounted+"; cat /mnt/f"); got != "moved" {
		t.Errorf("%q", got)
	}
	if has(p.from, vm.Id) {
		t.Error("the host that it left has it, too")
	}
}

// run runs a program and returns what it prints.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput() //nolint:gosec // the test's own
	if err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return string(out)
}

// steps of a migration, in order.
var steps = []string{"offer", "files", "prepare", "commit"}

// usable starts the VM at the host that has it, and checks its disk.
func (p *pair) usable(d *daemon, id string) {
	p.Helper()
	p.holds(d, id)
	d.call("POST", "/v1/vms/"+id+"/start", adminToken, nil).Want(200)
	d.call("POST", "/v1/vms/"+id+"/stop", adminToken, object{"force": true}).Want(200)
}

// clean checks that the host that does not have the VM has nothing of it.
func (p *pair) clean(d *daemon) {
	p.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for _, folder := range []string{"vms", "bases"} {
		for {
			left, err := filepath.Glob(filepath.Join(d.cfg.Data, folder, "*"))
			if err == nil && len(left) == 0 {
				break
			}
			if time.Now().After(deadline) {
				p.Fatalf("%s still has %v, %v", d.cfg.NodeName, left, err)
			}
			time.Sleep(20 * time.Millisecond) // it is removed after the answer
		}
	}
}

// other returns the other host.
func (p *pair) other(d *daemon) *daemon {
	if d == p.from {
		return p.to
	}
	return p.from
}

func TestALostRequestOrAnswerLeavesExactlyOneVM(t *testing.T) {
	t.Parallel()
	for _, step := range steps {
		for _, when := range []string{"before", "after"} {
			t.Run(when+" "+step, func(t *testing.T) {
				t.Parallel()
				p := newPair(t)
				vm := p.stopped("web")
				var lost atomic.Int32
				p.road.on(func(at string) bool { return at == when+" "+step && lost.Add(1) == 1 })
				op := p.migrate(vm.Id).Want(202)
				want := p.from
				if step == "commit" { // it is repeated
					p.from.finished(op)
					want = p.to
				} else {
					p.from.failed(op)
				}
				if lost.Load() == 0 {
					t.Fatal("nothing was lost")
				}
				if has := p.one(vm.Id); has != want {
					t.Errorf("%s has the VM", has.cfg.NodeName)
				}
				p.clean(p.other(want))
				p.usable(want, vm.Id)
			})
		}
	}
}

func TestAHostThatIsKilledAtAnyStepOfAMigrationLeavesExactlyOneVM(t *testing.T) {
	t.Parallel()
	for _, killed := range []string{"here", "there"} {
		for _, step := range steps {
			for _, when := range []string{"before", "after"} {
				t.Run(killed+" "+when+" "+step, func(t *testing.T) {
					t.Parallel()
					p := newPair(t)
					vm := p.stopped("web")
					victim := p.from
					if killed == "there" {
						victim = p.to
					}
					kill := victim.mortal()
					p.road.lead(p.to)
					dead := make(chan struct{})
					var once sync.Once
					p.road.on(func(at string) bool {
						if at != when+" "+step {
							return false
						}
						once.Do(func() { kill(); close(dead) })
						return killed == "here"
					})
					op := p.migrate(vm.Id)
					select {
					case <-dead:
					case <-time.After(time.Minute):
						t.Fatalf("the step was not reached: %s", op.Body)
					}
					p.road.on(nil)
					victim.run()
					p.road.lead(p.to)
					has := p.one(vm.Id)
					if killed == "here" || step == "commit" || when+step == "afterprepare" {
						deadline := time.Now().Add(time.Minute)
						for has != p.to && time.Now().Before(deadline) { // the operation is repeated
							time.Sleep(50 * time.Millisecond)
							has = p.one(vm.Id)
						}
						if has != p.to {
							t.Error("the VM has not moved")
						}
					} else if has != p.from {
						t.Error("the VM has moved")
					}
					p.clean(p.other(has))
					p.usable(has, vm.Id)
				})
			}
		}
	}
}

// offered is an offer of a VM with a kernel in its own folder, as another host makes it.
func offered(name string, files ...object) object {
	if files == nil {
		files = []object{}
	}
	return object{
		"id": record.NewID(), "node": "elsewhere", "disk_bytes": 0, "files": files,
		"vm": object{
			"id": record.NewID(), "name": name, "tenant": "acme", "backend": "qemu", "mac": "", "labels": object{},
			"autostart": false, "generation": 3, "created_at": "2026-01-02T03:04:05Z",
		},
		"spec": object{
			"vcpus": 1, "memory_mib": 64, "disk_gib": 0, "storage": "dir", "network": object{"mode": "none"}, "agent": false,
			"cloud_init": object{}, "boot": object{"Kernel": "kernel"},
		},
	}
}

// sumOf is the sum of a file that was written as one piece.
func sumOf(name string, content []byte) object {
	head := make([]byte, 16, 16+len(content))
	binary.BigEndian.PutUint64(head[8:], uint64(len(content)))
	sum := sha256.Sum256(append(head, content...))
	return object{"name": name, "sha256": hex.EncodeToString(sum[:])}
}

func TestAVMThatWasHandedOverCannotBeUsedUntilTheOtherHostDecides(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	vm := p.stopped("web")
	path := "/v1/vms/" + vm.Id
	p.road.on(func(at string) bool { return at == "before commit" || at == "before abort" })
	op := p.migrate(vm.Id).Want(202)
	p.eventually("it is handed over", func() bool { return deref(p.from.vm(vm.Id).HandedOverTo) == "there" })
	p.from.restart(nil) // nothing but the database knows
	for _, c := range []struct {
		method, path string
		body         any
	}{
		{"POST", "/start", nil},
		{"DELETE", "", nil},
		{"PATCH", "", object{"name": "other"}},
		{"POST", "/snapshots", object{"name": "s2"}},
		{"POST", "/resize", object{"disk_gib": 2}},
		{"POST", "/migrate", object{"node": "elsewhere"}},
	} {
		a := p.from.call(c.method, path+c.path, adminToken, c.body)
		// While the operation asks the other host, it holds the VM.
		if a.Status != 409 && a.Status != 503 || a.Status == 409 && !strings.Contains(a.Body, `"handed_over"`) {
			t.Errorf("%s %s: %d %s", c.method, c.path, a.Status, a.Body)
		}
	}
	for _, c := range []struct{ method, path string }{{"POST", "/start"}, {"DELETE", ""}} {
		p.to.call(c.method, path+c.path, adminToken, nil).Want(409)
	}
	p.from.call("POST", path+"/take-back", adminToken, object{}).Want(502)
	if has(p.from, vm.Id) || has(p.to, vm.Id) {
		t.Error("a host uses the VM")
	}
	p.from.ahead(time.Hour) // nothing that was promised is dropped by a clock
	p.to.ahead(time.Hour)
	p.from.call("POST", path+"/take-back", adminToken, object{"lost": true}).Want(200)
	p.road.on(nil)
	p.from.failed(op) // it was interrupted, and its repetition must not move the VM, either
	if has(p.to, vm.Id) {
		t.Error("the other host has the VM, too")
	}
	p.usable(p.from, vm.Id)
	p.from.call("POST", path+"/take-back", adminToken, object{}).Refused(409, "not_handed_over", "")
}

func TestTakingBackAVMThatTheOtherHostHasRemovesItHere(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	vm := p.stopped("web")
	p.road.on(func(at string) bool { return at == "after commit" })
	p.migrate(vm.Id).Want(202)
	p.eventually("the other host has it", func() bool { return has(p.to, vm.Id) })
	if a := p.from.call("POST", "/v1/vms/"+vm.Id+"/take-back", adminToken, object{}); a.Status != 404 {
		a.Refused(409, "migrated", "")
	}
	p.clean(p.from)
	p.usable(p.to, vm.Id)
}

func TestAMigrationThatIsAbortedThereOrWhoseVMIsDeletedHereLeavesNothingThere(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"before files", "before prepare", "before commit"} {
		for _, how := range []string{"aborted", "deleted"} {
			if how == "deleted" && step == "before commit" {
				continue // it cannot be deleted any more
			}
			t.Run(how+" "+step, func(t *testing.T) {
				t.Parallel()
				p := newPair(t)
				vm := p.stopped("web")
				var once sync.Once
				var deletion sync.WaitGroup
				p.road.on(func(at string) bool {
					if at != step {
						return false
					}
					once.Do(func() {
						if how == "deleted" {
							deletion.Go(func() { p.from.call("DELETE", "/v1/vms/"+vm.Id, adminToken, nil) })
							p.eventually("it is being deleted", func() bool {
								a := p.from.call("GET", "/v1/vms/"+vm.Id, adminToken, nil)
								return a.Status == 404 || strings.Contains(a.Body, `"deleting"`)
							})
							return
						}
						open := contracttest.As[[]hypervisorapi.Migration](p.to.call("GET", "/v1/migrations", adminToken, nil).Want(200))
						if len(open) != 1 {
							t.Errorf("%+v", open)
							return
						}
						p.to.call("DELETE", "/v1/migrations/"+open[0].Id, adminToken, nil).Want(204)
					})
					return false
				})
				op := contracttest.As[hypervisorapi.Operation](p.migrate(vm.Id).Want(202))
				p.eventually("it ends", func() bool {
					a := p.from.call("GET", "/v1/operations/"+op.Id, adminToken, nil).Want(200)
					return strings.Contains(a.Body, `"failed"`) || strings.Contains(a.Body, `"cancelled"`)
				})
				p.clean(p.to)
				if how == "aborted" {
					p.usable(p.from, vm.Id)
				} else {
					p.clean(p.from)
					deletion.Wait()
				}
			})
		}
	}
}

// eventually waits until something is so.
func (p *pair) eventually(what string, is func() bool) {
	p.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); {
		if time.Now().After(deadline) {
			p.Errorf("it never came about that %s", what)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestAChangeThatIsMadeWhileAVMIsCopiedIsNotLost(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	vm := p.stopped("web")
	path := "/v1/vms/" + vm.Id
	p.from.call("PUT", path+"/network-policy", adminToken, object{"policy": samplePolicy()}).Want(200)
	var once sync.Once
	p.road.on(func(at string) bool {
		if at == "before prepare" {
			once.Do(func() { p.from.call("PATCH", path, adminToken, object{"name": "renamed"}).Want(200) })
		}
		return false
	})
	if why := p.from.failed(p.migrate(vm.Id)); !strings.Contains(why, "was changed while it was copied") {
		t.Errorf("%q", why)
	}
	p.clean(p.to)
	policy := p.from.call("GET", path+"/network-policy", adminToken, nil).Want(200).Body
	p.from.finished(p.migrate(vm.Id))
	if got := p.to.vm(vm.Id); got.Name != "renamed" {
		t.Errorf("it is named %s", got.Name)
	}
	if got := p.to.call("GET", path+"/network-policy", adminToken, nil).Want(200).Body; got != policy {
		t.Errorf("the network policy is %s, and was %s", got, policy)
	}
}

func TestAHostileOfferIsRefusedAndLeavesNothing(t *testing.T) {
	t.Parallel()
	need(t, "qemu-img", "qemu-system-x86_64")
	d := start(t, usualDocument)
	mine := contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms", adminToken, object{
		"name": "mine", "memory_mib": 64, "disk_gib": 1, "network": object{"mode": "none"},
	}).Want(201))
	folder := filepath.Join(d.cfg.Data, "vms", mine.Id)
	secret := filepath.Join(folder, "disk.qcow2")
	file := func(name string, size int64, backing string) object {
		f := object{"name": name, "size_bytes": size}
		if backing != "" {
			f["backing"] = backing
		}
		return f
	}
	dataDisk := func(change object) object {
		d := object{
			"id": "0123456789ab", "name": "d", "port": 1, "size_gib": 1, "serial": "d", "state": "ready",
			"created_at": "2026-01-02T03:04:05Z",
		}
		maps.Copy(d, change)
		return d
	}
	with := func(change object) func(offer, vm, spec object) {
		return func(o, _, _ object) {
			o["disks"] = []object{dataDisk(change)}
			o["files"] = []object{file("kernel", 8, ""), file("data-0123456789ab", 8, "")}
		}
	}
	for _, c := range []struct {
		name   string
		change func(offer, vm, spec object)
		status int
		code   string
	}{
		{"a VM that is here", func(_, vm, _ object) { vm["id"] = mine.Id }, 409, "vm_exists"},
		{"a path as id", func(_, vm, _ object) { vm["id"] = "../../../../etc/mainstay-00000000001" }, 400, ""},
		{"a kernel of this host", func(_, _, spec object) { spec["boot"] = object{"Kernel": "/boot/vmlinuz"} }, 400, ""},
		{"a kernel in another folder", func(_, _, spec object) { spec["boot"] = object{"Kernel": "../" + mine.Id + "/k"} }, 400, ""},
		{"a root file system", func(_, _, spec object) { spec["boot"] = object{"Kernel": "kernel", "RootFS": "/"} }, 400, ""},
		{"a file that is missing", func(o, _, _ object) { o["files"] = []object{} }, 400, ""},
		{"a file twice", func(o, _, _ object) { o["files"] = []object{file("kernel", 1, ""), file("kernel", 1, "")} }, 400, ""},
		{"a strange file", func(o, _, _ object) { o["files"] = []object{file("../kernel", 1, "")} }, 400, ""},
		{"a disk of no VM", func(o, _, _ object) { o["files"] = []object{file("kernel", 1, ""), file("disk", 1, "")} }, 400, ""},
		{"a disk on a file of this host", func(o, _, spec object) {
			o["files"], o["disk_bytes"] = []object{file("disk", 1<<20, secret)}, 1<<30
			spec["boot"], spec["disk_gib"] = object{"Disk": true}, 1
		}, 400, ""},
		{"layers in disorder", func(o, _, spec object) {
			o["files"], o["disk_bytes"] = []object{file("base-0", 1, ""), file("disk", 1, "x")}, 1<<30
			spec["boot"] = object{"Disk": true}
		}, 400, ""},
		{"no processors", func(_, _, spec object) { spec["vcpus"] = 0 }, 400, ""},
		{"an unknown setting", func(_, _, spec object) { spec["surprise"] = 1 }, 400, ""},
		{"another storage", func(_, _, spec object) { spec["storage"] = "nbd" }, 400, ""},
		{"a sandbox", func(_, vm, _ object) { vm["backend"] = "sandbox" }, 400, ""},
		{"a bridge that is not allowed", func(_, _, spec object) {
			spec["network"] = object{"mode": "bridge", "bridge": "docker0"}
		}, 400, ""},
		{"a disk that is not offered", func(o, _, _ object) {
			o["files"] = []object{file("kernel", 8, ""), file("data-0123456789ab", 8, "")}
		}, 400, ""},
		{"a disk without a file", func(o, _, _ object) { o["disks"] = []object{dataDisk(nil)} }, 400, ""},
		{"a disk on a file of this host", func(o, _, _ object) {
			o["disks"] = []object{dataDisk(nil)}
			o["files"] = []object{file("kernel", 8, ""), file("data-0123456789ab", 8, secret)}
		}, 400, ""},
		{"a path as a disk", with(object{"id": "../../x"}), 400, ""},
		{"a path as a disk's name", with(object{"name": "../x"}), 400, ""},
		{"an option as a serial number", with(object{"serial": "a,b=c"}), 400, ""},
		{"a port that is not there", with(object{"port": 9}), 400, ""},
		{"a huge disk", with(object{"size_gib": 1 << 40}), 400, ""},
		{"limits below zero", with(object{"limits": object{"iops": -1}}), 400, ""},
		{"a disk that is being removed", with(object{"state": "removing"}), 400, ""},
		{"two disks in one port", func(o, _, _ object) {
			o["disks"] = []object{dataDisk(nil), dataDisk(object{"id": "ba9876543210", "name": "e", "serial": "e"})}
			o["files"] = []object{file("kernel", 8, ""), file("data-0123456789ab", 8, ""), file("data-ba9876543210", 8, "")}
		}, 400, ""},
		{"an empty secret", func(_, vm, spec object) { spec["agent"], vm["agent_secret"] = true, "good\n" }, 400, ""},
	} {
		offer := offered("evil", file("kernel", 8, ""))
		c.change(offer, offer["vm"].(object), offer["spec"].(object))
		if a := d.call("POST", "/v1/migrations", adminToken, offer); a.Status != c.status || c.code != "" && !strings.Contains(a.Body, c.code) {
			t.Errorf("%s: %d %s", c.name, a.Status, a.Body)
		}
	}
	d.call("POST", "/v1/migrations", acmeToken, offered("evil")).Refused(403, "denied", "")
	good := offered("good", file("kernel", 8, ""), file("data-0123456789ab", 8, ""))
	good["disks"] = []object{dataDisk(nil)}
	fine := contracttest.As[hypervisorapi.Migration](d.call("POST", "/v1/migrations", adminToken, good).Want(201))
	d.call("DELETE", "/v1/migrations/"+fine.Id, adminToken, nil).Want(204)

	// Files that are not what was offered.
	disk := filepath.Join(t.TempDir(), "d.qcow2")
	for name, args := range map[string][]string{
		"another size":            {"create", "-q", "-f", "qcow2", disk, "2G"},
		"a backing file":          {"create", "-q", "-f", "qcow2", "-u", "-b", secret, "-F", "qcow2", disk, "1G"},
		"data in another file":    {"create", "-q", "-f", "qcow2", "-o", "data_file=" + disk + ".data,data_file_raw=on", disk, "1G"},
		"something else entirely": nil,
		"the wrong sum":           {"create", "-q", "-f", "qcow2", disk, "1G"},
	} {
		content := bytes.Repeat([]byte("x"), 4096)
		if args != nil {
			qemuImg(t, args...)
			var err error
			if content, err = os.ReadFile(disk); err != nil {
				t.Fatal(err)
			}
		}
		offer := offered("evil", file("disk", int64(len(content)), ""))
		offer["disk_bytes"] = 1 << 30
		offer["spec"].(object)["boot"] = object{"Disk": true}
		one := contracttest.As[hypervisorapi.Migration](d.call("POST", "/v1/migrations", adminToken, offer).Want(201))
		path := "/v1/migrations/" + one.Id
		d.call("PUT", path+"/files/disk?offset=0", adminToken, content).Want(204)
		d.call("PUT", path+"/files/disk?offset=0", adminToken, content).Refused(400, "invalid", "offset")
		d.call("PUT", path+"/files/kernel?offset=0", adminToken, content).Want(404)
		d.call("POST", path+"/commit", adminToken, object{}).Refused(409, "migration_open", "")
		sum := sumOf("disk", content)
		if name == "the wrong sum" {
			sum["sha256"] = strings.Repeat("0", 64)
		}
		a := d.call("POST", path+"/prepare", adminToken, object{"files": []object{sum}})
		if a.Status != 400 && a.Status != 409 {
			t.Errorf("%s: %d %s", name, a.Status, a.Body)
		}
		d.call("POST", path+"/commit", adminToken, object{}).Refused(409, "migration_aborted", "")
		d.call("PUT", path+"/files/disk?offset=0", adminToken, content).Refused(409, "migration_aborted", "")
	}
	if all := d.vms(); len(all) != 1 {
		t.Errorf("there are %d VMs", len(all))
	}
	if left, err := filepath.Glob(filepath.Join(d.cfg.Data, "vms", "*")); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}

func TestAMigrationWhoseFilesDoNotArriveIsDroppedAndAPreparedOneStays(t *testing.T) {
	t.Parallel()
	d := start(t, usualDocument)
	content := []byte("a kernel")
	for _, prepared := range []bool{false, true} {
		offer := offered(fmt.Sprintf("prepared-%v", prepared), object{"name": "kernel", "size_bytes": len(content)})
		one := contracttest.As[hypervisorapi.Migration](d.call("POST", "/v1/migrations", adminToken, offer).Want(201))
		path := "/v1/migrations/" + one.Id
		d.call("PUT", path+"/files/kernel?offset=0", adminToken, content).Want(204)
		if prepared {
			d.call("POST", path+"/prepare", adminToken, object{"files": []object{sumOf("kernel", content)}}).Want(200)
		}
	}
	if n := len(d.vms()); n != 0 {
		t.Errorf("%d VMs are listed that are another host's", n)
	}
	d.restart(nil)
	open := contracttest.As[[]hypervisorapi.Migration](d.call("GET", "/v1/migrations", adminToken, nil).Want(200))
	if len(open) != 1 || open[0].State != "prepared" {
		t.Fatalf("%+v", open)
	}
	if left, err := filepath.Glob(filepath.Join(d.cfg.Data, "vms", "*")); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
	d.call("POST", "/v1/migrations/"+open[0].Id+"/commit", adminToken, object{}).Want(200)
	d.call("POST", "/v1/migrations/"+open[0].Id+"/commit", adminToken, object{"start": true}).Want(200)
	if all := d.vms(); len(all) != 1 || all[0].State != "stopped" {
		t.Errorf("%+v", all)
	}
}
