//go:build linux

// Package cephtest gives tests a real Ceph on this machine: a monitor and one OSD that
// keeps everything in memory, out of Debian's packages, gone with the test. With a manager, it also
// tells how full it is. Cluster.StartGateway adds the object gateway.
package cephtest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/kit/require"
)

// Cluster is a Ceph with one pool.
type Cluster struct {
	Conf    string // its configuration file; the user is admin
	Pool    string
	FSID    string
	Address string // of the monitor
	Key     string // of client.admin
	pids    map[string]int
}

// Start starts a cluster, which ends with the test.
func Start(t testing.TB) *Cluster {
	t.Helper()
	return start(t, false)
}

// StartManaged starts a cluster with a manager, without which a cluster does not tell how full it is.
func StartManaged(t testing.TB) *Cluster {
	t.Helper()
	require.Program(t, "ceph-mgr", "ceph-mgr")
	return start(t, true)
}

// Helper builds mainstay-ceph, the program that speaks to a cluster for the storage gateway, and returns its path.
func Helper(t testing.TB) string {
	t.Helper()
	require.Program(t, "gcc", "gcc")
	for _, header := range []string{"rados/librados.h", "rbd/librbd.h"} {
		if _, err := os.Stat(filepath.Join("/usr/include", header)); err != nil {
			require.Missing(t, "%s is not installed (apt-get install librados-dev librbd-dev)", header)
		}
	}
	path := filepath.Join(t.TempDir(), "mainstay-ceph")
	cmd := exec.CommandContext(
		t.Context(), "go", "build", "-tags", "ceph pacific", "-o", path,
		"github.com/mainstay-infra/mainstay/cmd/mainstay-ceph",
	)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// Signal sends a signal to a daemon: ceph-mon, ceph-osd, ceph-mgr or radosgw. One that is to stop has stopped then:
// its threads go on until one of them has taken note.
func (c *Cluster) Signal(t testing.TB, daemon string, signal syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(c.pids[daemon], signal); err != nil {
		t.Fatal(err)
	}
	if signal != syscall.SIGSTOP {
		return
	}
	b := &builder{TB: t}
	b.await(daemon+" has stopped", func(context.Context) error {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", c.pids[daemon]))
		for i := 0; i < len(threads) && err == nil; i++ {
			var stat []byte
			// The state is behind the name, which may hold anything.
			if stat, err = os.ReadFile(threads[i]); err == nil && !bytes.Contains(stat, []byte(") T ")) {
				err = fmt.Errorf("%s", stat)
			}
		}
		return err
	})
}

// AddPool makes a second pool for images, and returns its name.
func (c *Cluster) AddPool(t testing.TB) string {
	t.Helper()
	const name = "others"
	b := &builder{TB: t, conf: c.Conf}
	b.addPool(name)
	return name
}

// addPool makes a pool for images.
func (b *builder) addPool(name string) {
	b.Helper()
	b.run(nil, "ceph", "-c", b.conf, "osd", "pool", "create", name, "8")
	b.await("the pool takes writes", func(ctx context.Context) error {
		return exec.CommandContext(
			ctx, "rbd", "-c", b.conf, "pool", "init", name,
		).Run() //nolint:gosec // the test's own
	})
}

func start(t testing.TB, managed bool) *Cluster {
	t.Helper()
	for _, program := range []string{"ceph", "ceph-mon", "ceph-osd", "ceph-authtool", "monmaptool", "rbd"} {
		if _, err := exec.LookPath(program); err != nil {
			require.Missing(
				t, "%s is not installed: apt-get install ceph-mon ceph-osd ceph-common qemu-block-extra", program,
			)
		}
	}
	// Paths of sockets have little room.
	dir, err := os.MkdirTemp("", "ceph")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b := &builder{TB: t, dir: dir, conf: filepath.Join(dir, "ceph.conf"), pids: map[string]int{}}
	b.configure()
	b.monitor()
	if managed {
		b.manager()
	}
	b.osd()
	b.addPool("vms")
	if managed {
		b.await("the cluster tells how full it is", func(ctx context.Context) error {
			out, err := exec.CommandContext(
				ctx, "ceph", "-c", b.conf, "--connect-timeout", "5", "df", "--format", "json",
			).Output() //nolint:gosec // the test's own
			if err == nil && (bytes.Contains(out, []byte(`"total_bytes":0,`)) || bytes.Contains(out, []byte(`"max_avail":0`))) {
				err = fmt.Errorf("%s", out)
			}
			return err
		})
	}
	return &Cluster{
		Conf: b.conf, Pool: "vms", FSID: b.fsid, Address: "[" + b.address + "]", pids: b.pids,
		Key: b.run(nil, "ceph-authtool", "--print-key", "-n", "client.admin", b.path("keyring")),
	}
}

type builder struct {
	testing.TB
	dir, conf, fsid, address string
	pids                     map[string]int
	env                      []string // more environment of daemons
}

func (b *builder) manager() {
	b.Helper()
	if err := os.Mkdir(b.path("mgr"), 0o700); err != nil {
		b.Fatal(err)
	}
	keyring := b.path("mgr/keyring")
	b.run(
		nil, "ceph", "-c", b.conf, "auth", "get-or-create", "mgr.x", "mon", "allow profile mgr", "osd", "allow *", "mds",
		"allow *", "-o", keyring,
	)
	b.daemon("ceph-mgr", "-c", b.conf, "-i", "x", "--keyring", keyring)
}

func (b *builder) path(name string) string { return filepath.Join(b.dir, name) }

func (b *builder) configure() {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	if err := listener.Close(); err != nil {
		b.Fatal(err)
	}
	b.fsid, b.address = uuid.NewString(), fmt.Sprintf("v2:127.0.0.1:%d/0", port)
	text := fmt.Sprintf(`[global]
fsid = %s
mon_host = [%s]
mon_initial_members = m
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
ms_bind_ipv6 = false
keyring = %[3]s/keyring
run_dir = %[3]s
admin_socket = %[3]s/$name.asok
pid_file = %[3]s/$name.pid
log_file = %[3]s/$name.log
mon_cluster_log_file = %[3]s/cluster.log
crash_dir = %[3]s
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_warn_on_pool_no_redundancy = false
mon_max_pg_per_osd = 1000
mon_data_avail_crit = 0
auth_allow_insecure_global_id_reclaim = false
paxos_propose_interval = 0.05
paxos_min_wait = 0.01
mon_tick_interval = 1
mgr_tick_period = 1
mgr_stats_period = 1
mgr_initial_modules =
mon_data = %[3]s/mon
mgr_data = %[3]s/mgr
osd_data = %[3]s/osd
osd_class_dir = /usr/lib/x86_64-linux-gnu/rados-classes
osd_objectstore = memstore
osd_fast_shutdown = false
osd_max_object_name_len = 256
osd_max_object_namespace_len = 64
memstore_device_bytes = 2147483648
osd_memory_target = 939524096
osd_memory_target_autotune = false
ms_async_op_threads = 1
osd_op_num_shards = 1
osd_op_num_threads_per_shard = 1
rados_mon_op_timeout = 30
rados_osd_op_timeout = 30
client_mount_timeout = 30
`, b.fsid, b.address, b.dir)
	if err := os.WriteFile(b.conf, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
}

// run runs a program to its end.
func (b *builder) run(in []byte, name string, args ...string) string {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = bytes.NewReader(in)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		b.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, said.String())
	}
	return strings.TrimSpace(out.String())
}

// daemon starts a program that ends with the test.
func (b *builder) daemon(name string, args ...string) {
	b.Helper()
	cmd := exec.Command(name, append(args, "-f")...) //nolint:gosec // the test's own
	cmd.Env = append(os.Environ(), b.env...)
	log, err := os.Create(b.path(name + ".out"))
	if err != nil {
		b.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.pids[name] = cmd.Process.Pid
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
	})
}

func (b *builder) monitor() {
	b.Helper()
	mon, admin := b.path("mon.keyring"), b.path("keyring")
	b.run(nil, "ceph-authtool", "--create-keyring", mon, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
	b.run(
		nil, "ceph-authtool", "--create-keyring", admin, "--gen-key", "-n", "client.admin", "--cap", "mon",
		"allow *", "--cap", "osd", "allow *", "--cap", "mgr", "allow *",
	)
	b.run(nil, "ceph-authtool", mon, "--import-keyring", admin)
	b.run(
		nil, "monmaptool", "--create", "--fsid", b.fsid, "--addv", "m", "["+strings.TrimSuffix(b.address, "/0")+"]",
		b.path("monmap"),
	)
	b.run(nil, "ceph-mon", "-c", b.conf, "--mkfs", "-i", "m", "--monmap", b.path("monmap"), "--keyring", mon)
	b.daemon("ceph-mon", "-c", b.conf, "-i", "m", "--keyring", mon)
	b.await("the monitor answers", func(ctx context.Context) error {
		return exec.CommandContext(
			ctx, "ceph", "-c", b.conf, "--connect-timeout", "5", "mon", "stat",
		).Run() //nolint:gosec // the test's own
	})
}

func (b *builder) osd() {
	b.Helper()
	if err := os.Mkdir(b.path("osd"), 0o700); err != nil {
		b.Fatal(err)
	}
	id, key := uuid.NewString(), b.run(nil, "ceph-authtool", "--gen-print-key")
	b.run([]byte(`{"cephx_secret":"`+key+`"}`), "ceph", "-c", b.conf, "osd", "new", id, "-i", "-")
	keyring := b.path("osd/keyring")
	b.run(nil, "ceph-authtool", "--create-keyring", keyring, "-n", "osd.0", "--add-key", key)
	b.run(nil, "ceph-osd", "-c", b.conf, "-i", "0", "--mkfs", "--osd-uuid", id, "--keyring", keyring)
	b.daemon("ceph-osd", "-c", b.conf, "-i", "0", "--keyring", keyring)
	b.await("the OSD is up", func(ctx context.Context) error {
		out, err := exec.CommandContext(
			ctx, "ceph", "-c", b.conf, "osd", "stat",
		).Output() //nolint:gosec // the test's own
		if err == nil && !bytes.Contains(out, []byte("1 up")) {
			err = fmt.Errorf("%s", out)
		}
		return err
	})
}

// await tries something until it works.
func (b *builder) await(what string, try func(ctx context.Context) error) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			b.Fatalf("never happened: %s: %v", what, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
