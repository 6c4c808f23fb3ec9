//go:build linux

// Package cephtest gives tests a real Ceph on this machine (kit/cephlab): a monitor and one OSD that
// keeps everything in memory, gone with the test. With a manager, it also tells how full it is.
// Cluster.StartGateway adds the object gateway.
package cephtest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/cephlab"
	"github.com/mainstay-infra/mainstay/kit/require"
)

// Cluster is a Ceph with one pool.
type Cluster struct {
	Lab     *cephlab.Lab // what it is made of
	Conf    string       // its configuration file; the users are admin and mainstay
	Pool    string
	FSID    string
	Address string // of the monitor
	Key     string // of client.admin

	mirror cephlab.Daemon // after StartMirror
}

// Start starts a cluster, which ends with the test.
func Start(t testing.TB) *Cluster {
	t.Helper()
	return start(t, false)
}

// StartManaged starts a cluster with a manager, without which a cluster does not tell how full it is.
func StartManaged(t testing.TB) *Cluster {
	t.Helper()
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

// Programs skips the test, or fails it, if programs are missing that a cluster is made of.
func Programs(t testing.TB) {
	t.Helper()
	if packages := cephlab.Missing(); len(packages) > 0 {
		require.Missing(t, "Ceph is not installed: apt-get install %s", strings.Join(packages, " "))
	}
}

// Signal sends a signal to a daemon: ceph-mon, ceph-osd, ceph-mgr or radosgw. One that is to stop has stopped then:
// its threads go on until one of them has taken note.
func (c *Cluster) Signal(t testing.TB, program string, signal syscall.Signal) {
	t.Helper()
	for _, d := range append(c.Lab.Daemons(), cephlab.ObjectGateway) {
		if d.Program != program {
			continue
		}
		pids := c.Lab.PIDs(d)
		if len(pids) != 1 {
			t.Fatalf("%d processes of %s run", len(pids), d.Name)
		}
		if err := syscall.Kill(pids[0], signal); err != nil {
			t.Fatal(err)
		}
		if signal == syscall.SIGSTOP {
			c.await(t, program+" has stopped", func(context.Context) error { return stopped(pids[0]) })
		}
		return
	}
	t.Fatalf("there is no daemon %s", program)
}

// stopped returns an error unless all threads of a process have stopped.
func stopped(pid int) error {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for i := 0; i < len(threads) && err == nil; i++ {
		var stat []byte
		// The state is behind the name, which may hold anything.
		if stat, err = os.ReadFile(threads[i]); err == nil && !bytes.Contains(stat, []byte(") T ")) {
			err = fmt.Errorf("%s", stat)
		}
	}
	return err
}

// AddPool makes a second pool for images, and returns its name.
func (c *Cluster) AddPool(t testing.TB) string {
	t.Helper()
	const name = "others"
	if err := c.Lab.AddPool(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	return name
}

func start(t testing.TB, managed bool) *Cluster {
	t.Helper()
	Programs(t)
	dir, err := os.MkdirTemp("", "ceph") // paths of sockets have little room
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	lab, err := cephlab.Up(t.Context(), dir, cephlab.Settings{
		OSDs: 1, OSDBytes: 2 << 30, Memory: true, Manager: managed, Pool: "vms",
	}, nil)
	if lab != nil {
		t.Cleanup(lab.Kill)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{Lab: lab, Conf: lab.Conf(), Pool: lab.Pool, FSID: lab.FSID, Address: lab.Monitor()}
	c.Key = c.run(t, "ceph", "auth", "print-key", "client.admin")
	return c
}

// run runs one of Ceph's programs to its end, and returns what it prints.
func (c *Cluster) run(t testing.TB, program string, args ...string) string {
	t.Helper()
	out, err := c.Lab.Run(context.Background(), nil, program, args...) // also while the test ends
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// await tries something until it works.
func (c *Cluster) await(t testing.TB, what string, try func(ctx context.Context) error) {
	t.Helper()
	if err := c.Lab.Await(t.Context(), what, nil, try); err != nil {
		t.Fatal(err)
	}
}
