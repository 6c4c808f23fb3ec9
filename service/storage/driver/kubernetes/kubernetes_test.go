package kubernetes_test

import (
	"os"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/kubetest"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/drivertest"
	"github.com/mainstay-infra/mainstay/service/storage/driver/kubernetes"
)

const mib = 1 << 20

func TestMain(m *testing.M) { kubetest.Main(m) }

// lab is a namespace of a cluster, with a CSI driver.
type lab struct {
	*testing.T
	cluster   *kubetest.Cluster
	csi       *kubetest.CSI
	namespace string
	class     string
}

func newLab(t *testing.T, c *kubetest.Cluster) *lab {
	t.Helper()
	l := &lab{T: t, cluster: c, namespace: c.Namespace(t)}
	l.csi = kubetest.StartCSI(t, c, "csi."+l.namespace+".test") // of this test alone
	l.class = l.csi.AddClass(t, nil)
	return l
}

func (l *lab) open() *kubernetes.Driver {
	l.Helper()
	d, err := kubernetes.Open(l.Context(), kubernetes.Config{Kubeconfig: l.cluster.Kubeconfig, Namespace: l.namespace})
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { _ = d.Close() })
	return d
}

func (l *lab) write(t *testing.T, volume driver.Name, at int64, content []byte) {
	t.Helper()
	f, err := os.OpenFile(l.csi.Content(t, l.namespace, volume.Native), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(content, at); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

func (l *lab) read(t *testing.T, volume driver.Name, at int64, length int) []byte {
	t.Helper()
	f, err := os.Open(l.csi.Content(t, l.namespace, volume.Native))
	if err != nil {
		t.Fatal(err)
	}
	content := make([]byte, length)
	if _, err := f.ReadAt(content, at); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	return content
}

func TestClaimsPassTheSuiteOfDrivers(t *testing.T) {
	t.Parallel()
	c := kubetest.Shared(t)
	for _, kind := range []driver.Kind{driver.Block, driver.Filesystem} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			drivertest.Run(t, func(t *testing.T) drivertest.Backend {
				l := newLab(t, c)
				return drivertest.Backend{Driver: l.open(), Pool: l.class, Kind: kind, Write: l.write, Read: l.read}
			})
		})
	}
}
