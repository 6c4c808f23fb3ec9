// Package kubetest gives tests a real Kubernetes control plane on this machine: the program bin/devcluster, which
// `make devcluster` builds, in a temporary folder. It has the kinds of the CSI snapshots (crds/). Unless a test asks
// for them, it has no nodes.
//
//	kubetest.go   Cluster: one for all tests of a test program, started by the first that asks
//	objects.go    the objects that tests and the stand-in work with
//	csi.go        CSI, which plays the controllers of a CSI driver for claims and snapshots
//	content.go    what CSI does about one object
//	crds/         CRDs of github.com/kubernetes-csi/external-snapshotter/client/v8 v8.4.0 (config/crd), unchanged
//
// A test program that uses the shared cluster has a TestMain that calls Main, which stops it. Tests share the cluster,
// so each works in namespaces of its own, and its storage classes have names of their own.
package kubetest

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"embed"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/kit/kube"
	"github.com/mainstay-infra/mainstay/kit/require"
)

//go:embed crds/*.yaml
var crds embed.FS

// Cluster is a control plane that runs.
type Cluster struct {
	Kubeconfig string       // of the administrator
	Client     *kube.Client // as the administrator

	program, dir string
	flags        []string
	running      *exec.Cmd
}

// Program returns the path of bin/devcluster, or skips the test if it was not built.
func Program(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	for ; err == nil && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "devcluster", "go.mod")); err != nil {
			continue
		}
		path := filepath.Join(dir, "bin", "devcluster")
		if _, err := os.Stat(path); err == nil {
			return path
		}
		break
	}
	require.Missing(t, "bin/devcluster is not built (make devcluster, which takes some minutes)")
	return ""
}

var shared struct {
	sync.Mutex
	cluster *Cluster
	err     error
}

// Main runs the tests of a program, and then stops the cluster that they shared.
func Main(m *testing.M) {
	code := m.Run()
	if c := shared.cluster; c != nil {
		if err := errors.Join(c.Stop(), os.RemoveAll(c.dir)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// Shared returns the cluster of the test program, and starts it for the first test.
func Shared(t testing.TB) *Cluster {
	t.Helper()
	program := Program(t)
	shared.Lock()
	defer shared.Unlock()
	if shared.cluster == nil && shared.err == nil {
		shared.cluster, shared.err = start(program)
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.cluster
}

// Start starts a cluster that only one test uses, and that ends with it. Flags are those of devcluster up; without any,
// it has no nodes.
func Start(t testing.TB, flags ...string) *Cluster {
	t.Helper()
	c, err := start(Program(t), flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Stop(), os.RemoveAll(c.dir)); err != nil {
			t.Error(err)
		}
	})
	return c
}

func start(program string, flags ...string) (*Cluster, error) {
	name := "kubetest"
	if !slices.Contains(flags, "--kubelet") {
		name = strings.Repeat("kubetest-", 12) // longer than paths of sockets may be
	}
	dir, err := os.MkdirTemp("", name)
	if err != nil {
		return nil, err
	}
	c := &Cluster{program: program, dir: dir, flags: flags}
	if err := errors.Join(os.CopyFS(dir, crds), c.Run()); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	c.Client, err = kube.Open(kube.Config{Kubeconfig: c.Kubeconfig, UserAgent: "kubetest", QPS: 400})
	return c, err
}

// Run starts the processes of a cluster that was stopped, with all that it had. Flags replace those that it was started
// with.
func (c *Cluster) Run(flags ...string) error {
	if len(flags) > 0 {
		c.flags = flags
	}
	home := filepath.Join(c.dir, "cluster")
	args := append([]string{
		"up", "--dir", home, "--crds", filepath.Join(c.dir, "crds"), "--until-eof", "--nodes=0",
	}, c.flags...)
	cmd := exec.CommandContext(context.Background(), c.program, args...) //nolint:gosec // the test's own
	var said strings.Builder
	cmd.Stderr = &said
	if _, err := cmd.StdinPipe(); err != nil { // it is open until the process ends, or this one does
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if path, ok := strings.CutPrefix(lines.Text(), "ready: KUBECONFIG="); ok {
			c.Kubeconfig, c.running = path, cmd
			return nil
		}
	}
	return fmt.Errorf("devcluster: %w: %s", cmd.Wait(), said.String())
}

// Stop ends the processes of a cluster.
func (c *Cluster) Stop() error { return c.end(syscall.SIGTERM) }

// Kill ends the processes of a cluster as a loss of power does.
func (c *Cluster) Kill() error { return c.end(syscall.SIGKILL) }

func (c *Cluster) end(by syscall.Signal) error {
	if c.running == nil {
		return nil
	}
	err := c.running.Process.Signal(by)
	ended := c.running.Wait()
	if by == syscall.SIGKILL {
		ended = nil // it was killed
	}
	c.running = nil
	return errors.Join(err, ended)
}

// Transport returns what reaches the API server as the administrator.
func (c *Cluster) Transport(t testing.TB) *http.Transport {
	t.Helper()
	pki := filepath.Join(filepath.Dir(c.Kubeconfig), "pki")
	pair, err := tls.LoadX509KeyPair(filepath.Join(pki, "admin.crt"), filepath.Join(pki, "admin.key"))
	if err != nil {
		t.Fatal(err)
	}
	authority, err := os.ReadFile(filepath.Join(pki, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	transport := &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool}}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// Namespace makes a namespace for a test.
func (c *Cluster) Namespace(t testing.TB) string {
	t.Helper()
	name := "test-" + uuid.NewString()[:8]
	Create(t, c, kube.Namespaces, "", &Object{Meta: kube.Meta{Name: name}})
	return name
}

// Create makes an object, and fails the test if that fails.
func Create[T any](t testing.TB, c *Cluster, r kube.Resource, namespace string, object *T) *T {
	t.Helper()
	made, err := kube.Create(t.Context(), c.Client, r, namespace, object)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// Get returns an object, and fails the test if it does not exist.
func Get[T any](t testing.TB, c *Cluster, r kube.Resource, namespace, name string) *T {
	t.Helper()
	got, err := kube.Get[T](t.Context(), c.Client, r, namespace, name)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// Await waits until so returns true for an object, which is nil as long as it does not exist.
func Await[T any](t testing.TB, c *Cluster, r kube.Resource, namespace, name string, so func(*T) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := kube.Await(ctx, c.Client, r, namespace, name, func(now *T) (bool, error) { return so(now), nil })
	if err != nil {
		t.Fatalf("%s %s: %v", r.Kind, name, err)
	}
}
