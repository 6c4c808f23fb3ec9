//go:build linux

package hypervisor_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
)

// breakingBackend panics when it starts a VM.
type breakingBackend struct{}

func (breakingBackend) Probe(context.Context) backend.Info { return backend.Info{Available: true} }

func (breakingBackend) Check(*backend.Spec) error { return nil }

func (breakingBackend) Start(context.Context, *backend.Spec) (backend.Instance, error) { panic("boom") }

func (breakingBackend) Find(context.Context, *backend.Spec) (backend.Instance, error) {
	return nil, nil
}

func (breakingBackend) Clean(context.Context, *backend.Spec) error { return nil }

func TestAVMWhoseStartPanicsHasFailedAndCanBeDeleted(t *testing.T) {
	t.Parallel()
	d := &daemon{
		T:        t,
		cfg:      settings(t, t.TempDir(), usualDocument),
		backends: map[string]backend.Backend{backend.QEMU: breakingBackend{}},
	}
	d.begin()
	kernel := filepath.Join(t.TempDir(), "vmlinuz")
	if err := os.WriteFile(kernel, []byte("a kernel"), 0o600); err != nil {
		t.Fatal(err)
	}
	vm := contracttest.As[hypervisorapi.VM](
		d.call(
			"POST", "/v1/vms", adminToken,
			object{"name": "a", "backend": "qemu", "kernel": kernel, "network": object{"mode": "none"}, "start": true},
		).Want(201),
	)
	d.await(vm.Id, "failed") // it was started in the background
	d.call("POST", "/v1/vms/"+vm.Id+"/start", adminToken, nil).Want(503)
	if got := d.vm(vm.Id); got.State != "failed" {
		t.Errorf("after a start by a caller it is %s", got.State)
	}
	d.call("DELETE", "/v1/vms/"+vm.Id, adminToken, nil).Want(204)
}
