package vm_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/kit/require"
	"github.com/mainstay-infra/mainstay/service/vm"
)

// building lets a service build with the real tool, in a folder that the tool can reach.
func building(t *testing.T) (folder string, change func(c *vm.Config)) {
	t.Helper()
	require.Program(t, "mmdebstrap", "mmdebstrap")
	if os.Geteuid() != 0 {
		require.Missing(t, "images are built in user namespaces, which takes root")
	}
	parent, err := os.MkdirTemp("/var/tmp", "mainstay-build-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(parent) })
	if err := os.Chmod(parent, 0o755); err != nil { //nolint:gosec // the tools reach what is below
		t.Fatal(err)
	}
	folder = filepath.Join(parent, "images")
	return folder, func(c *vm.Config) { c.ImageFolder = folder }
}

var debian = object{"name": "web", "distribution": "debian", "version": "12"}

// empty checks that builds have left neither files nor processes.
func empty(t *testing.T, folder string) {
	t.Helper()
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if out, err := exec.Command("pgrep", "-f", folder).Output(); err == nil {
		t.Errorf("processes are left: %s", out)
	}
}

func (m *manager) log(i vmapi.Image) string {
	m.Helper()
	return contracttest.As[vmapi.ImageLog](m.call("GET", "/api/images/"+i.Id.String()+"/log", m.admin, nil).Want(200)).Text
}

func TestABuildThatIsCancelledEndsItsToolAndLeavesNothing(t *testing.T) {
	t.Parallel()
	folder, change := building(t)
	m := start(t, change)
	a := m.call("POST", "/api/images/build", m.admin, debian).Want(201)
	i := contracttest.As[vmapi.Image](a)
	second := contracttest.As[vmapi.Image](m.call("POST", "/api/images/build", m.admin,
		object{"name": "later", "distribution": "debian"}).Want(201))
	m.eventually("the tool says something", func() bool { return strings.Contains(m.log(i), "downloading packages") })
	if waits := contracttest.As[vmapi.Image](m.call("GET", "/api/images/"+second.Id.String(), m.admin, nil).Want(200)); waits.State != "pending" {
		t.Errorf("a second image is %s", waits.State)
	}
	m.call("DELETE", "/api/images/"+i.Id.String(), m.admin, nil).Want(409)
	for _, job := range []string{*second.JobId, *i.JobId} {
		m.call("POST", "/api/jobs/"+job+"/cancel", m.admin, nil).Want(200)
	}
	if i := m.image(a); i.State != "cancelled" {
		t.Errorf("%+v", i)
	}
	m.eventually("the second is cancelled, too", func() bool {
		return contracttest.As[vmapi.Image](m.call("GET", "/api/images/"+second.Id.String(), m.admin, nil).Want(200)).State == "cancelled"
	})
	empty(t, folder)
}

func TestABuildThatTakesTooLongEnds(t *testing.T) {
	t.Parallel()
	folder, change := building(t)
	m := start(t, change, func(c *vm.Config) { c.ImageMaxTime = time.Second })
	if i := m.image(m.call("POST", "/api/images/build", m.admin, debian).Want(201)); i.State != "failed" ||
		!strings.Contains(*i.Error, "image-max-time") {
		t.Errorf("%+v", i)
	}
	empty(t, folder)
}

func TestABuildOnAFullDiskSaysWhatToDo(t *testing.T) {
	t.Parallel()
	folder, change := building(t)
	if err := os.Mkdir(folder, 0o711); err != nil { //nolint:gosec // the tools reach what is below
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=64m,mode=0711", "small", folder).CombinedOutput(); err != nil {
		require.Missing(t, "no small file system: %v %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", folder).Run() })
	imports, also := importing(t)
	m := start(t, change, also)
	i := m.image(m.call("POST", "/api/images/build", m.admin, debian).Want(201))
	if i.State != "failed" || !strings.Contains(*i.Error, "image-folder is full") {
		t.Errorf("%s: %s\n%s", i.State, *i.Error, m.log(i))
	}
	path := filepath.Join(imports, "large")
	if err := os.WriteFile(path, make([]byte, 96<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	i = m.image(m.call("POST", "/api/images/import", m.admin, object{"name": "large", "path": path, "format": "raw"}).Want(201))
	if i.State != "failed" || !strings.Contains(*i.Error, "image-folder is full") {
		t.Errorf("%s: %s", i.State, *i.Error)
	}
	empty(t, folder)
}

func TestABuildThatTakesMoreRoomThanIsAllowedEnds(t *testing.T) {
	t.Parallel()
	folder, change := building(t)
	m := start(t, change, func(c *vm.Config) { c.ImageMaxGiB = 0 })
	if i := m.image(m.call("POST", "/api/images/build", m.admin, debian).Want(201)); i.State != "failed" ||
		!strings.Contains(*i.Error, "image-max-gib") {
		t.Errorf("%s: %s", i.State, *i.Error)
	}
	empty(t, folder)
}

// What a service that was killed has left is removed when it starts again.
func TestWhatAKilledServiceHasLeftIsRemovedAtTheStart(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.stop()
	left := filepath.Join(m.config.ImageFolder, "01a20b56-c1bc-741c-92d0-a6ddefd10973", "guest", "root")
	if err := os.MkdirAll(left, 0o700); err != nil {
		t.Fatal(err)
	}
	m.begin()
	if entries, err := os.ReadDir(m.config.ImageFolder); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
}
