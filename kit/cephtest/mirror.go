//go:build linux

package cephtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/kit/cephlab"
	"github.com/mainstay-infra/mainstay/kit/require"
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
	c.mirror = cephlab.Daemon{Name: user, Program: "rbd-mirror"}
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

// PeerToken returns what lets another cluster copy images of the cluster's pool, in which mirroring is enabled for it.
func (c *Cluster) PeerToken(t testing.TB) string {
	t.Helper()
	c.run(t, "rbd", "mirror", "pool", "enable", c.Pool, "image")
	return c.run(t, "rbd", "mirror", "pool", "peer", "bootstrap", "create", c.Pool)
}
