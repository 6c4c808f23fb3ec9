//go:build linux

package cephtest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/kit/require"
)

// Gateway is the object gateway of a cluster, with a user that administers its users and buckets.
type Gateway struct {
	URL       string
	AccessKey string
	SecretKey string
	cluster   *Cluster
}

// StartGateway starts the cluster's object gateway, which ends with the test.
func (c *Cluster) StartGateway(t testing.TB) *Gateway {
	t.Helper()
	require.Program(t, "radosgw", "radosgw")
	b := c.builder(t)
	keyring := b.path("rgw.keyring")
	b.run(
		nil, "ceph", "-c", b.conf, "auth", "get-or-create", "client.rgw.r", "mon", "allow rw", "osd", "allow rwx",
		"-o", keyring,
	)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	g := &Gateway{URL: "http://" + address, AccessKey: "admin-" + uuid.NewString(), SecretKey: uuid.NewString(), cluster: c}
	g.Admin(
		t, "user", "create", "--uid", "admin", "--display-name", "admin", "--access-key", g.AccessKey, "--secret-key",
		g.SecretKey, "--caps", "users=*;buckets=*",
	)
	b.daemon(
		"radosgw", "-c", b.conf, "-n", "client.rgw.r", "--keyring", keyring, "--rgw_frontends", "beast endpoint="+address,
		"--rgw_enable_apis", "s3, admin", "--rgw_run_sync_thread", "false", "--rgw_thread_pool_size", "32",
		// Quotas hold from the next request on.
		"--rgw_bucket_quota_ttl", "0", "--rgw_user_quota_bucket_sync_interval", "1",
	)
	b.await("the object gateway answers", func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, g.URL, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s, %w", strconv.Itoa(resp.StatusCode), err)
		}
		return nil
	})
	return g
}

// Admin runs radosgw-admin, and returns what it prints.
func (g *Gateway) Admin(t testing.TB, args ...string) string {
	t.Helper()
	b := g.cluster.builder(t)
	return b.run(nil, "radosgw-admin", append([]string{"-c", b.conf}, args...)...)
}

// builder returns a builder for what is added to a cluster that runs.
func (c *Cluster) builder(t testing.TB) *builder {
	return &builder{TB: t, dir: filepath.Dir(c.Conf), conf: c.Conf, pids: c.pids}
}
