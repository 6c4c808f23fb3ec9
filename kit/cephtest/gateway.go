//go:build linux

package cephtest

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/cephlab"
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
	if err := c.Lab.StartGateway(t.Context()); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(c.Lab.AccessFile())
	if err != nil {
		t.Fatal(err)
	}
	var a cephlab.Access
	if err := json.Unmarshal(raw, &a); err != nil {
		t.Fatal(err)
	}
	return &Gateway{URL: a.Endpoint, AccessKey: a.AccessKey, SecretKey: a.SecretKey, cluster: c}
}

// Admin runs radosgw-admin, and returns what it prints.
func (g *Gateway) Admin(t testing.TB, args ...string) string {
	t.Helper()
	return g.cluster.run(t, "radosgw-admin", args...)
}
