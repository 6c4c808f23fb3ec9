package vm_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/service/vm"
	"github.com/mainstay-infra/mainstay/service/vm/driver/drivertest"
)

// image returns the image of an answer, once its job has ended.
func (m *manager) image(a answer) (i vmapi.Image) {
	m.Helper()
	i = contracttest.As[vmapi.Image](a)
	m.eventually("the image has ended", func() bool {
		i = contracttest.As[vmapi.Image](m.call("GET", "/api/images/"+i.Id.String(), m.admin, nil).Want(200))
		return i.Completed != nil
	})
	return i
}

// importing lets a service import from a folder, which it returns.
func importing(t *testing.T) (folder string, change func(c *vm.Config)) {
	t.Helper()
	folder = t.TempDir()
	return folder, func(c *vm.Config) { c.ImageImportFolders = []string{folder} }
}

// disk writes a raw disk to a folder.
func disk(t *testing.T, folder, name string) string {
	t.Helper()
	path := filepath.Join(folder, name)
	if err := os.WriteFile(path, bytes.Repeat([]byte("disk"), 1024), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (m *manager) imported(name, token string, more object) vmapi.Image {
	m.Helper()
	body := object{"name": name, "path": disk(m.T, m.config.ImageImportFolders[0], name), "format": "raw"}
	for k, v := range more {
		body[k] = v
	}
	return m.image(m.call("POST", "/api/images/import", token, body).Want(201))
}

func TestAnImportedImageIsWhatAVMIsMadeOfAndStaysWhileThatExists(t *testing.T) {
	t.Parallel()
	_, folder := importing(t)
	m := start(t, folder)
	i := m.imported("base", m.admin, nil)
	if i.State != "completed" || i.Image != "base" || !i.Shared || i.Error != nil || i.OutputPath == nil ||
		i.SizeBytes != 4096 || len(i.Checksum) != 64 {
		t.Fatalf("%+v", i)
	}
	if content, ok := m.daemon.Image("base"); !ok || len(content) != 4096 {
		t.Errorf("the daemon has %d bytes", len(content))
	}
	m.call("POST", "/api/vms", m.admin, object{"name": "web", "image": "base"}).Want(201)
	m.settled("web", m.admin)
	path := "/api/images/" + i.Id.String()
	if a := m.call("DELETE", path, m.admin, nil).Want(409); !strings.Contains(a.Body, "web") {
		t.Errorf("%s", a.Body)
	}
	m.call("POST", path+"/resize", m.admin, object{"size_gb": 4000}).Want(400)
	r := contracttest.As[vmapi.Image](m.call("POST", path+"/resize", m.admin, object{"size_gb": 3}).Want(200))
	if r.VirtualSizeBytes != 3<<30 {
		t.Errorf("%+v", r)
	}
	m.call("POST", path+"/resize", m.admin, object{"size_gb": 2}).Want(400)
	m.call("DELETE", "/api/vms/web", m.admin, nil).Want(204)
	m.call("DELETE", path, m.admin, nil).Want(204)
	if _, ok := m.daemon.Image("base"); ok {
		t.Error("the daemon still has the image")
	}
	m.call("GET", path, m.admin, nil).Want(404)
	if left, err := os.ReadDir(m.config.ImageFolder); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestImagesOfTenantsHaveTheirOwnNamesAndAreNotSeenByOthers(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		folder, change := importing(m.T)
		m.stop()
		change(&m.config)
		m.begin()
		alice, bert := m.user("alice", "admin", "acme"), m.user("bert", "admin", "beta")
		plain := m.user("pat", "user", "")
		for _, tenant := range []string{"acme", "beta"} {
			i := m.imported("web", m.admin, object{"tenant": tenant})
			if i.Image != tenant+":web" || i.Shared || i.State != "completed" {
				m.Fatalf("%+v", i)
			}
		}
		m.imported("base", m.admin, nil)
		m.call("POST", "/api/images/import", alice, object{"name": "x", "path": disk(m.T, folder, "x"), "format": "raw", "tenant": "beta"}).
			Want(403)
		mine := contracttest.As[vmapi.ImageList](m.call("GET", "/api/images", alice, nil).Want(200))
		if mine.Total != 2 || mine.Items[0].Name != "base" || *mine.Items[1].Tenant != "acme" {
			m.Errorf("alice sees %+v", mine)
		}
		id := "/api/images/" + mine.Items[1].Id.String()
		for _, stranger := range []string{bert, plain} {
			m.call("GET", id, stranger, nil).Want(404)
			m.call("GET", id+"/log", stranger, nil).Want(404)
			m.call("POST", id+"/resize", stranger, object{"size_gb": 9}).Want(404)
		}
		m.call("DELETE", id, bert, nil).Want(404)
		shared := "/api/images/" + mine.Items[0].Id.String()
		m.call("DELETE", shared, bert, nil).Want(403)
		m.call("POST", shared+"/resize", bert, object{"size_gb": 9}).Want(403)

		// The same name is each tenant's own image; another tenant's is not there by any name.
		m.call("POST", "/api/vms", bert, object{"name": "b", "image": "web"}).Want(201)
		if v := m.settled("b", bert); v.Image != "beta:web" {
			m.Errorf("%+v", v)
		}
		m.call("POST", "/api/vms", bert, object{"name": "c", "image": "acme:web"}).Want(400)
		m.call("POST", "/api/vms", bert, object{"name": "d", "image": "base"}).Want(201)
		if a := m.call("GET", shared+"/log", bert, nil).Want(200); strings.Contains(a.Body, folder) {
			m.Errorf("bert reads a path of the host: %s", a.Body)
		}
		if a := m.call("GET", shared, bert, nil).Want(200); !strings.Contains(a.Body, `"output_path":null`) {
			m.Errorf("bert reads %s", a.Body)
		}
		m.call("DELETE", "/api/tenants/acme", m.admin, nil).Want(409)
	})
}

// A VM that is recorded before there is an image of the name does not get another tenant's later.
func TestAnImageThatAnotherTenantMakesLaterIsNotThere(t *testing.T) {
	t.Parallel()
	_, change := importing(t)
	m := start(t, change)
	eve := m.user("eve", "user", "beta")
	m.daemon.Fail(func(c drivertest.Call) *drivertest.Fault {
		if c.Operation == "CreateVM" {
			return &drivertest.Fault{Status: 400}
		}
		return nil
	})
	m.call("POST", "/api/vms", eve, object{"name": "early", "image": "acme:future"}).Want(201)
	m.settled("early", eve)
	m.daemon.Fail(nil)
	m.call("PUT", "/api/tenants/acme", m.admin, object{}).Want(200)
	alice := m.user("alice", "admin", "acme")
	future := m.imported("future", m.admin, object{"tenant": "acme"})
	made := len(m.daemon.Calls("CreateVM"))
	m.call("POST", "/api/vms/early/start", eve, object{}).Want(202)
	if v := m.settled("early", eve); v.State == "running" || !strings.Contains(v.LastError, "there is no image") ||
		len(m.daemon.Calls("CreateVM")) != made {
		t.Errorf("%+v", v)
	}
	// Who may delete the image is not told of VMs that they do not see.
	a := m.call("DELETE", "/api/images/"+future.Id.String(), alice, nil).Want(409)
	if strings.Contains(a.Body, "early") || !strings.Contains(a.Body, "and 1 more") {
		t.Errorf("%s", a.Body)
	}
	// An admin who sees all images may give one to another tenant.
	m.call("POST", "/api/vms", m.admin, object{"name": "given", "image": "acme:future", "tenant": "beta"}).Want(201)
	if v := m.settled("given", eve); !v.Provisioned {
		t.Errorf("%+v", v)
	}
}

func TestANameHasOneImageWhoeverIsFirst(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		folder, change := importing(m.T)
		m.stop()
		change(&m.config)
		m.begin()
		m.daemon.PutImage("taken")
		body := object{"name": "taken", "path": disk(m.T, folder, "x"), "format": "raw"}
		m.call("POST", "/api/images/import", m.admin, body).Want(409)
		body["name"] = "both"
		release := m.daemon.Hold("UploadImage")
		var mu sync.Mutex
		statuses := map[int]int{}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				a := m.call("POST", "/api/images/import", m.admin, body)
				mu.Lock()
				defer mu.Unlock()
				statuses[a.Status]++
			})
		}
		all.Wait()
		if statuses[201] != 1 || statuses[409] != 7 {
			m.Errorf("%v", statuses)
		}
		if a := m.call("POST", "/api/vms", m.admin, object{"name": "early", "image": "both"}).Want(409); !strings.Contains(a.Body, "wait for its job") {
			m.Errorf("%s", a.Body)
		}
		release()
	})
}

func TestFilesThatMayNotBeImportedAreRefused(t *testing.T) {
	t.Parallel()
	folder, change := importing(t)
	m := start(t, change)
	outside := disk(t, t.TempDir(), "secret")
	inside := disk(t, folder, "good")
	at := func(name string) string { return folder + "/" + name }
	for _, make := range []func() error{
		func() error { return os.Symlink(outside, at("link")) },
		func() error { return os.Symlink(filepath.Dir(outside), at("folder")) },
		func() error { return os.Symlink(inside, at("inner")) },
		func() error { return syscall.Mkfifo(at("fifo"), 0o600) },
		func() error { return os.Mkdir(at("dir"), 0o700) },
		func() error { return os.WriteFile(at("fake.qcow2"), make([]byte, 1024), 0o600) },
	} {
		if err := make(); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{
		outside, "/etc/passwd", at("link"), at("folder/secret"), at("inner"), at("fifo"), at("dir"), at("none"), folder,
		at("../good"), at("dir/../good"), "good", folder + "//good", at("good\x00"), at("good/"),
	} {
		m.call("POST", "/api/images/import", m.admin, object{"name": "x", "path": path, "format": "raw"}).Want(400)
	}
	for _, format := range []string{"qcow2", "iso"} {
		m.call("POST", "/api/images/import", m.admin, object{"name": "x", "path": at("fake.qcow2"), "format": format}).Want(400)
	}
	if n := contracttest.As[vmapi.ImageList](m.call("GET", "/api/images", m.admin, nil).Want(200)).Total; n != 0 {
		t.Errorf("%d images", n)
	}
	off := start(t)
	a := off.call("POST", "/api/images/import", off.admin, object{"name": "x", "path": inside, "format": "raw"}).Want(403)
	if !strings.Contains(a.Body, "image-import-folders") {
		t.Errorf("%s", a.Body)
	}
}

// A file that is swapped for a link between the request and the job is not read.
func TestALinkThatIsPutInPlaceOfAnImportIsNotFollowed(t *testing.T) {
	t.Parallel()
	folder, change := importing(t)
	m := start(t, change)
	path := disk(t, folder, "disk")
	release := m.daemon.Hold("UploadImage")
	const atOnce = 4
	for n := range atOnce {
		m.call("POST", "/api/images/import", m.admin, object{"name": fmt.Sprintf("first-%d", n), "path": path, "format": "raw"}).Want(201)
	}
	m.eventually("the first are given to the daemon", func() bool { return len(m.daemon.Calls("UploadImage")) == atOnce })
	second := m.call("POST", "/api/images/import", m.admin, object{"name": "second", "path": path, "format": "raw"}).Want(201)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", path); err != nil {
		t.Fatal(err)
	}
	release()
	if i := m.image(second); i.State != "failed" || !strings.Contains(*i.Error, "symbolic link") {
		t.Errorf("%+v", i)
	}
	if _, ok := m.daemon.Image("second"); ok {
		t.Error("the daemon has the image")
	}
}

func TestHostileNamesAndPackagesAreRefused(t *testing.T) {
	t.Parallel()
	m := start(t)
	many := make([]string, 101)
	for i := range many {
		many[i] = "hello"
	}
	for _, body := range []object{
		{"name": "../x"}, {"name": "a:b"}, {"name": "--option"}, {"name": "x y"}, {"name": "x\x00"}, {"name": "über"},
		{"name": strings.Repeat("x", 65)}, {"name": ""},
		{"packages": []string{"--option"}}, {"packages": []string{"../x"}}, {"packages": []string{"a b"}},
		{"packages": []string{"a,b"}}, {"packages": []string{"a\x00"}}, {"packages": []string{"nginx;id"}}, {"packages": []string{"ngïnx"}},
		{"packages": []string{"x"}}, {"packages": []string{"hello\n"}}, {"packages": []string{"-hello"}}, {"packages": many},
		{"distribution": "gentoo"}, {"version": "../12"}, {"version": "99"}, {"version": "--mode"},
	} {
		spec := object{"name": "x", "distribution": "debian"}
		for k, v := range body {
			spec[k] = v
		}
		m.call("POST", "/api/images/build", m.admin, spec).Want(400)
	}
}

func TestABuildWithoutItsToolSaysWhatToInstall(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	m := start(t)
	for distribution, tool := range map[string]string{"debian": "mmdebstrap", "fedora": "dnf", "arch": "pacstrap", "opensuse": "zypper"} {
		i := m.image(m.call("POST", "/api/images/build", m.admin, object{"name": distribution, "distribution": distribution}).Want(201))
		if i.State != "failed" || !strings.Contains(*i.Error, "no program "+tool) || !strings.Contains(*i.Error, "apt-get install") {
			t.Errorf("%s: %+v", distribution, *i.Error)
		}
		m.call("POST", "/api/images/build", m.admin, object{"name": distribution, "distribution": distribution}).Want(201)
	}
}

func TestAnImageThatWasBeingGivenToTheDaemonAtTheEndOfTheServiceIsGivenAgain(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		folder, change := importing(m.T)
		m.stop()
		change(&m.config)
		m.begin()
		release := m.daemon.Hold("UploadImage")
		a := m.call("POST", "/api/images/import", m.admin, object{"name": "x", "path": disk(m.T, folder, "x"), "format": "raw"}).Want(201)
		m.eventually("the daemon gets it", func() bool { return len(m.daemon.Calls("UploadImage")) == 1 })
		m.stop()
		m.daemon.PutImage("x") // the daemon finished it
		release()
		m.begin()
		if i := m.image(a); i.State != "completed" || i.SizeBytes != 4096 {
			m.Errorf("%+v", i)
		}
		if content, _ := m.daemon.Image("x"); len(content) != 4096 {
			m.Errorf("the daemon has %d bytes", len(content))
		}
	})
}

func TestAnImageWhoseUploadFailsIsNotInTheCatalogAndItsNameIsFree(t *testing.T) {
	t.Parallel()
	_, change := importing(t)
	m := start(t, change)
	for _, fault := range []*drivertest.Fault{{After: true}, {Status: 507, After: true}, {Status: 400}, {}} {
		m.daemon.Fail(func(c drivertest.Call) *drivertest.Fault {
			if c.Operation == "UploadImage" {
				return fault
			}
			return nil
		})
		if i := m.imported("x", m.admin, nil); i.State != "failed" || *i.Error == "" || i.OutputPath != nil {
			t.Errorf("%+v", i)
		}
		if _, ok := m.daemon.Image("x"); ok {
			t.Error("it is in the catalog")
		}
	}
	m.daemon.Fail(nil)
	if i := m.imported("x", m.admin, nil); i.State != "completed" {
		t.Errorf("%+v", i)
	}
	// The failed ones can be deleted, and that leaves the good one.
	for _, i := range contracttest.As[vmapi.ImageList](m.call("GET", "/api/images?state=failed", m.admin, nil).Want(200)).Items {
		m.call("DELETE", "/api/images/"+i.Id.String(), m.admin, nil).Want(204)
	}
	if _, ok := m.daemon.Image("x"); !ok {
		t.Error("the good image is gone, too")
	}
}

// Settings for cloud-init of which some are absent are as the daemon's contract wants them.
func TestAVMGetsTheSettingsForCloudInitThatWereGiven(t *testing.T) {
	t.Parallel()
	m := start(t)
	for name, init := range map[string]object{
		"data": {"user_data": "#cloud-config\n"}, "host": {"hostname": "web"}, "key": {"ssh_authorized_keys": []string{"ssh-ed25519 AAAA a"}},
	} {
		m.call("POST", "/api/vms", m.admin, object{"name": name, "image": "demo", "cloud_init": init}).Want(201)
		if v := m.settled(name, m.admin); !v.Provisioned {
			t.Errorf("%s: %s", name, v.LastError)
		}
	}
}
