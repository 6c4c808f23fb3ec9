//go:build linux

package cephtest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/kit/cephlab"
	"github.com/mainstay-infra/mainstay/kit/require"
)

// firstGroup and groups number the groups of the daemons that copy images, by which rules of the firewall tell their
// packets. They begin with the process, so that test programs that run at once have groups of their own.
var (
	firstGroup = uint32(os.Getpid()) << 6 //nolint:gosec // numbers of processes are below 2^22
	groups     atomic.Uint32
)

// StartMirror starts the daemon that copies images from the cluster's peers to it (rbd-mirror), which ends with the
// test.
func (c *Cluster) StartMirror(t testing.TB) {
	t.Helper()
	require.Program(t, "rbd-mirror", "rbd-mirror")
	user := "client.rbd-mirror." + uuid.NewString()[:8]
	key := c.run(t, "ceph", "auth", "get-or-create", user, "mon", "profile rbd-mirror", "osd", "profile rbd")
	keyring, err := os.OpenFile(filepath.Join(c.Lab.Dir, "keyring"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := keyring.WriteString(key + "\n"); errors.Join(err, keyring.Close()) != nil {
		t.Fatal(err)
	}
	c.mirror = cephlab.Daemon{Name: user, Program: "rbd-mirror", Group: firstGroup + groups.Add(1)}
	c.ResumeMirror(t)
}

// PauseMirror ends the daemon that copies images, until ResumeMirror.
func (c *Cluster) PauseMirror(t testing.TB) {
	t.Helper()
	if err := c.Lab.Stop(context.Background(), c.mirror); err != nil {
		t.Fatal(err)
	}
}

// ResumeMirror starts the daemon that copies images again.
func (c *Cluster) ResumeMirror(t testing.TB) {
	t.Helper()
	if err := c.Lab.Start(c.mirror); err != nil {
		t.Fatal(err)
	}
}

// endpoints finds the ports of daemons in what the monitor tells about them.
var endpoints = regexp.MustCompile(`127\.0\.0\.1:([1-9]\d*)`)

// Cut keeps the daemon that copies images to c from reaching another cluster, until heal is called or the test ends.
func (c *Cluster) Cut(t testing.TB, other *Cluster) (heal func()) {
	t.Helper()
	require.Program(t, "iptables", "iptables")
	var ports []string
	for _, what := range []string{"mon", "osd"} {
		for _, found := range endpoints.FindAllStringSubmatch(other.run(t, "ceph", what, "dump"), -1) {
			if !slices.Contains(ports, found[1]) {
				ports = append(ports, found[1])
			}
		}
	}
	var undo [][]string
	for _, port := range ports {
		rule := []string{
			"OUTPUT", "-o", "lo", "-p", "tcp", "--dport", port, "-m", "owner", "--gid-owner", strconv.Itoa(int(c.mirror.Group)),
			"-j", "DROP",
		}
		c.firewall(t, append([]string{"-I"}, rule...))
		undo = append(undo, append([]string{"-D"}, rule...))
	}
	heal = func() {
		for _, rule := range undo {
			c.firewall(t, rule)
		}
		undo = nil
	}
	t.Cleanup(heal)
	return heal
}

func (c *Cluster) firewall(t testing.TB, rule []string) {
	t.Helper()
	//nolint:gosec // the rules are those of Cut
	if out, err := exec.CommandContext(context.Background(), "iptables", append([]string{"-w"}, rule...)...).CombinedOutput(); err != nil {
		t.Errorf("iptables %v: %v: %s", rule, err, out)
	}
}

// PeerToken returns what lets another cluster copy images of the cluster's pool, in which mirroring is enabled for it.
func (c *Cluster) PeerToken(t testing.TB) string {
	t.Helper()
	c.run(t, "rbd", "mirror", "pool", "enable", c.Pool, "image")
	return c.run(t, "rbd", "mirror", "pool", "peer", "bootstrap", "create", c.Pool)
}
