//go:build linux

package cephtest

import (
	"context"
	"fmt"
	"os/exec"
	"testing"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/kit/require"
)

// StartMirror starts the daemon that copies images from the cluster's peers to it (rbd-mirror), which ends with the
// test.
func (c *Cluster) StartMirror(t testing.TB) {
	t.Helper()
	require.Program(t, "rbd-mirror", "rbd-mirror")
	b := c.builder(t)
	user := "client.rbd-mirror." + uuid.NewString()[:8]
	keyring := b.path("rbd-mirror.keyring")
	b.run(
		nil, "ceph", "-c", b.conf, "auth", "get-or-create", user, "mon", "profile rbd-mirror", "osd", "profile rbd",
		"-o", keyring,
	)
	b.env = []string{"CEPH_CONF=" + b.conf} // it reads the file again for each pool
	b.daemon(
		"rbd-mirror", "-c", b.conf, "-n", user, "--keyring", keyring, "--rbd_mirror_pool_replayers_refresh_interval", "1",
		"--rbd_mirror_image_state_check_interval", "1",
	)
}

// PeerToken returns what lets another cluster copy images of the cluster's pool, in which mirroring is enabled for it.
func (c *Cluster) PeerToken(t testing.TB) string {
	t.Helper()
	b := c.builder(t)
	b.run(nil, "rbd", "-c", b.conf, "mirror", "pool", "enable", c.Pool, "image")
	return b.run(nil, "rbd", "-c", b.conf, "mirror", "pool", "peer", "bootstrap", "create", c.Pool)
}

// Rbd runs the command rbd, and returns what it prints.
func (c *Cluster) Rbd(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "rbd", append([]string{"-c", c.Conf}, args...)...).Output() //nolint:gosec // the test's own
	if err != nil {
		err = fmt.Errorf("rbd %v: %w", args, err)
	}
	return string(out), err
}
