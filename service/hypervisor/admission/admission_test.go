package admission_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/admission"
)

var strict = admission.Policy{
	MaxVCPUs: 4, MaxMemoryMiB: 2048, MaxDiskGiB: 20, MaxTTL: time.Hour, AllowedBackends: []string{"qemu", "sandbox"},
	Tenants: []admission.Tenant{{Name: "red", MaxVCPUs: 8, MaxMemoryMiB: 4096, MaxVMs: 3}, {Name: "blue", MaxVMs: 1}},
}

// modest is a request that every limit of strict allows, exactly.
var modest = admission.Request{Tenant: "red", Backend: "qemu", VCPUs: 4, MemoryMiB: 2048, DiskGiB: 20, TTL: time.Hour}

func TestWhatExceedsALimitIsRefusedByItsName(t *testing.T) {
	t.Parallel()
	half := admission.Usage{VMs: 2, VCPUs: 4, MemoryMiB: 2048}
	if err := strict.Check(modest, half); err != nil {
		t.Errorf("what is allowed: %v", err)
	}
	for limit, tt := range map[string]struct {
		change func(*admission.Request)
		usage  admission.Usage
	}{
		"policy.max_vcpus":                         {func(r *admission.Request) { r.VCPUs++ }, admission.Usage{}},
		"policy.max_memory_mib":                    {func(r *admission.Request) { r.MemoryMiB++ }, admission.Usage{}},
		"policy.max_disk_gib":                      {func(r *admission.Request) { r.DiskGiB++ }, admission.Usage{}},
		"policy.max_ttl_seconds":                   {func(r *admission.Request) { r.TTL += time.Second }, admission.Usage{}},
		"policy.allowed_backends":                  {func(r *admission.Request) { r.Backend = "firecracker" }, admission.Usage{}},
		"policy.tenants[red].max_vms_total":        {func(*admission.Request) {}, admission.Usage{VMs: 3}},
		"policy.tenants[red].max_vcpus_total":      {func(*admission.Request) {}, admission.Usage{VMs: 2, VCPUs: 5}},
		"policy.tenants[red].max_memory_mib_total": {func(*admission.Request) {}, admission.Usage{VMs: 2, MemoryMiB: 2049}},
		"policy.tenants[blue].max_vms_total":       {func(r *admission.Request) { r.Tenant = "blue" }, admission.Usage{VMs: 1}},
	} {
		r := modest
		tt.change(&r)
		err := strict.Check(r, tt.usage)
		if f := fault.From(err); f == nil || f.Limit != limit || f.Kind != fault.Invalid ||
			!strings.Contains(f.Message, limit) {
			t.Errorf("%s: %v", limit, err)
		}
	}
	r := modest
	r.TTL = 0
	if err := strict.Check(r, admission.Usage{}); err == nil || !strings.Contains(err.Error(), "has no ttl_seconds") {
		t.Errorf("without a time to live: %v", err)
	}
}

func TestWithoutLimitsEverythingIsAllowed(t *testing.T) {
	t.Parallel()
	var open admission.Policy
	if err := open.Check(
		admission.Request{Tenant: "red", Backend: "qemu", VCPUs: 512, MemoryMiB: 1 << 24, DiskGiB: 1 << 16},
		admission.Usage{VMs: 1 << 20},
	); err != nil {
		t.Error(err)
	}
}

// A tenant that is over its cap already, as after a change of the policy, gets nothing more.
func TestATenantOverItsCapGetsNothingMore(t *testing.T) {
	t.Parallel()
	r := modest
	r.VCPUs, r.MemoryMiB = 1, 1
	if err := strict.Check(r, admission.Usage{VMs: 1, VCPUs: 1 << 40}); err == nil {
		t.Error("allowed")
	}
}

func imageDir(t *testing.T) (dir string, p admission.Policy) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "images")
	for path, content := range map[string]string{"images/a.img": "a", "images/sub/b.img": "b", "secret": "secret"} {
		full := filepath.Join(filepath.Dir(dir), path)
		if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, admission.Policy{AllowedImageDirs: []string{"/nowhere", dir}}
}

func TestImagesComeFromAllowedFoldersOnly(t *testing.T) {
	t.Parallel()
	dir, p := imageDir(t)
	outside := filepath.Join(filepath.Dir(dir), "secret")
	for link, target := range map[string]string{"out": outside, "up": "../secret", "dir": filepath.Dir(dir), "in": "a.img", "loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"a.img": "a", "sub/b.img": "b", "sub/../a.img": "a", "in": "a"} {
		f, err := p.Files(false).Image(dir + "/" + path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if got, err := io.ReadAll(f); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", path, got, err)
		}
		_ = f.Close()
	}
	for _, path := range []string{outside, dir + "/../secret", dir + "/out", dir + "/up", dir + "/dir/secret", dir + "x/a.img", dir, dir + "/sub", dir + "/fifo", dir + "/loop", dir + "/none", "a.img", "", "/dev/zero", dir + "/a.img\x00"} {
		if f, err := p.Files(false).Image(path); err == nil {
			_ = f.Close()
			t.Errorf("%q was opened", path)
		} else if !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", path, err)
		}
	}
}

// Somebody who may write into the folder swaps a file for a link while it is opened.
func TestALinkThatIsPutThereMeanwhileDoesNotLeadOut(t *testing.T) {
	t.Parallel()
	dir, p := imageDir(t)
	path, done := filepath.Join(dir, "swapped"), make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			_ = os.Remove(path)
			_ = os.WriteFile(path, []byte("a"), 0o600)
			_ = os.Remove(path)
			_ = os.Symlink("../secret", path)
		}
	})
	for range 3000 {
		f, err := p.Files(false).Image(path)
		if err != nil {
			continue
		}
		got, err := io.ReadAll(f)
		_ = f.Close()
		if err == nil && strings.Contains(string(got), "secret") {
			t.Error("the file outside was opened")
			break
		}
	}
	close(done)
	work.Wait()
}

func TestWithoutAllowedFoldersOnlyAdminsNameFilesOfTheHost(t *testing.T) {
	t.Parallel()
	dir, _ := imageDir(t)
	var open admission.Policy
	_, err := open.Files(false).Image(filepath.Join(dir, "a.img"))
	f := fault.From(err)
	if f == nil || f.Limit != "policy.allowed_image_dirs" || f.Field != "image" ||
		!strings.Contains(f.Message, "catalog") {
		t.Errorf("a tenant: %v", err)
	}
	if _, other := open.Files(false).Image(filepath.Join(dir, "none")); other == nil || other.Error() != err.Error() {
		t.Errorf("a tenant learns what is not there: %v", other)
	}
	file, err := open.Files(true).Image(filepath.Join(dir, "a.img"))
	if err != nil {
		t.Fatalf("an admin: %v", err)
	}
	_ = file.Close()
}

// The daemon never takes its own files as an image, however they are reached and whatever is allowed.
func TestNothingOfTheDaemonsOwnFoldersIsOpenedForAnybody(t *testing.T) {
	t.Parallel()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(path string) string { return filepath.Join(top, path) }
	for _, path := range []string{"data/vms/1/disk", "data/secret.key", "moved/backups/b", "srv/disk", "data2/disk"} {
		if err := errors.Join(
			os.MkdirAll(filepath.Dir(at(path)), 0o700), os.WriteFile(at(path), []byte("x"), 0o600),
		); err != nil {
			t.Fatal(err)
		}
	}
	// A part of the data is on another disk; the others are ways to the data.
	for link, target := range map[string]string{
		"data/backups": "moved/backups", "srv/file": "data/vms/1/disk", "srv/folder": "data/vms", "alias": "data", "data/out": "srv/disk",
	} {
		if err := os.Symlink(at(target), at(link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(at("data/secret.key"), at("srv/key")); err != nil {
		t.Fatal(err)
	}
	own := []string{at("alias"), at("never made")}
	for name, p := range map[string]admission.Policy{"everywhere": {OwnDirs: own}, "allowed": {OwnDirs: own, AllowedImageDirs: []string{top, at("data")}}} {
		for _, admin := range []bool{true, false} {
			if !admin && len(p.AllowedImageDirs) == 0 {
				continue
			}
			files := p.Files(admin)
			for _, path := range []string{
				"data", "data/", "data/vms", "data/vms/1/disk", "data/secret.key", "alias/vms/1/disk", "srv/file", "srv/folder/1/disk", "srv/folder", "srv/key",
				"data/backups/b", "moved/backups/b", "moved/backups", "moved", "srv/../data/secret.key", "srv/disk", "",
			} {
				f, err := files.ImageOrFolder(at(path))
				if err == nil {
					_ = f.Close()
				}
				if !fault.Is(err, fault.Invalid) {
					t.Errorf("%s, admin %v: %q: %v", name, admin, path, err)
				}
			}
			f, err := files.ImageOrFolder(at("data2/disk"))
			if err != nil {
				t.Errorf("%s, admin %v: what is beside: %v", name, admin, err)
				continue
			}
			_ = f.Close()
		}
	}
}

func TestOnlyWhatGrowsIsCheckedWhenAVMChanges(t *testing.T) {
	t.Parallel()
	p := admission.Policy{MaxVCPUs: 4, MaxMemoryMiB: 1000, Tenants: []admission.Tenant{{Name: "acme", MaxVCPUs: 6, MaxVMs: 1}}}
	for _, tt := range []struct {
		tenant   string
		used     admission.Usage // with the VM
		from, to admission.Size
		limit    string
	}{
		{"", admission.Usage{}, admission.Size{VCPUs: 1, MemoryMiB: 1}, admission.Size{VCPUs: 4, MemoryMiB: 1000}, ""},
		{"", admission.Usage{}, admission.Size{VCPUs: 1, MemoryMiB: 1}, admission.Size{VCPUs: 5, MemoryMiB: 1}, "policy.max_vcpus"},
		{"", admission.Usage{}, admission.Size{VCPUs: 1, MemoryMiB: 1}, admission.Size{VCPUs: 1, MemoryMiB: 1001}, "policy.max_memory_mib"},
		// It has more than it may have by now.
		{"", admission.Usage{}, admission.Size{VCPUs: 9, MemoryMiB: 1}, admission.Size{VCPUs: 8, MemoryMiB: 1000}, ""},
		{"acme", admission.Usage{VMs: 2, VCPUs: 5}, admission.Size{VCPUs: 1}, admission.Size{VCPUs: 2}, ""},
		{"acme", admission.Usage{VMs: 2, VCPUs: 5}, admission.Size{VCPUs: 1}, admission.Size{VCPUs: 3}, "policy.tenants[acme].max_vcpus_total"},
		{"acme", admission.Usage{VMs: 2, VCPUs: 9}, admission.Size{VCPUs: 3}, admission.Size{VCPUs: 2, MemoryMiB: 9}, ""},
	} {
		err := p.CheckGrowth(tt.tenant, tt.used, tt.from, tt.to)
		if (err != nil) != (tt.limit != "") || err != nil && fault.From(err).Limit != tt.limit {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}
