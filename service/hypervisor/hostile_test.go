//go:build linux

package hypervisor_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/qemu"
)

// takenOver is QEMU, but what it was told to copy a disk to is changed afterwards, as by a
// process that its guest has taken over.
type takenOver struct {
	*qemu.Backend
	copied func(target string) error
}

func (b *takenOver) OpenDisks(ctx context.Context, s *backend.Spec) (backend.Disks, error) {
	d, err := b.Backend.OpenDisks(ctx, s)
	return &takenOverDisks{d, b}, err
}

type takenOverDisks struct {
	backend.Disks
	b *takenOver
}

func (d *takenOverDisks) Copy(ctx context.Context, c backend.DiskCopy, progress func(float64)) error {
	return errors.Join(d.Disks.Copy(ctx, c, progress), d.b.copied(c.Target))
}

// withTakenOver is a daemon with such a QEMU, and a VM with a disk that is stopped.
func withTakenOver(t *testing.T) (*daemon, *takenOver, hypervisorapi.VM) {
	t.Helper()
	need(t, "qemu-system-x86_64", "qemu-img")
	b := &takenOver{
		qemu.New(qemu.Options{Program: "qemu-system-x86_64", Accel: "tcg", Log: discard}),
		func(string) error { return nil },
	}
	d := &daemon{
		T:        t,
		cfg:      settings(t, t.TempDir(), usualDocument),
		backends: map[string]backend.Backend{backend.QEMU: b},
	}
	d.begin()
	return d, b, contracttest.As[hypervisorapi.VM](
		d.call("POST", "/v1/vms", acmeToken, object{"name": "one", "memory_mib": 64, "disk_gib": 1}).Want(201),
	)
}

func qemuImgOn(args ...string) error {
	out, err := exec.CommandContext(
		context.Background(),
		"qemu-img",
		args...).CombinedOutput() //nolint:gosec // the test's own
	if err != nil {
		return errors.Join(err, errors.New(string(out)))
	}
	return nil
}

func TestWhatATakenOverQEMUWritesIntoACopyOpensNoFileOfTheHost(t *testing.T) {
	t.Parallel()
	d, b, vm := withTakenOver(t)
	secret := rawImage(t, "TOP SECRET", 1<<30)
	path := "/v1/vms/" + vm.Id
	first := d.finished(d.call("POST", path+"/backups", acmeToken, nil))
	hostile := func(args ...string) func(string) error {
		return func(target string) error {
			made := target + ".made"
			defer func() { _ = os.Remove(made) }()
			if err := qemuImgOn(
				append(append([]string{"create", "-q", "-f", "qcow2"}, args...), made, "1G")...); err != nil {
				return err
			}
			raw, err := os.ReadFile(made)
			return errors.Join(err, os.WriteFile(target, raw, 0o600))
		}
	}
	for what, copied := range map[string]func(string) error{
		"a backing file": func(target string) error {
			return qemuImgOn("rebase", "-u", "-f", "qcow2", "-b", secret, "-F", "raw", target)
		},
		"another file": hostile("-o", "data_file="+filepath.Join(t.TempDir(), "data")+",data_file_raw=on"),
		"a size":       hostile("-o", "cluster_size=4096"), // of a disk of its own
		"its bytes":    func(target string) error { return os.Truncate(target, 1<<42) },
		"no qcow2":     func(target string) error { return os.WriteFile(target, make([]byte, 1<<20), 0o600) },
	} {
		b.copied = copied
		if what == "a size" {
			b.copied = func(target string) error {
				return errors.Join(copied(target), qemuImgOn("resize", "-q", "-f", "qcow2", target, "2G"))
			}
		}
		for _, a := range []answer{
			d.call("POST", path+"/backups", acmeToken, nil),
			d.call("POST", path+"/backups", acmeToken, object{"kind": "incremental"}),
			d.call("POST", path+"/clone", acmeToken, object{"name": "clone"}),
		} {
			if why := d.failed(a); !strings.Contains(why, "the image") {
				t.Errorf("%s: %s: %s", what, a.What, why)
			}
		}
		if left, err := os.ReadDir(filepath.Join(d.cfg.Data, "backups")); err != nil || len(left) != 1 ||
			left[0].Name() != *first.BackupId+".qcow2" {
			t.Errorf("%s: left: %v, %v", what, left, err)
		}
	}
	if n := len(d.vms()); n != 1 {
		t.Errorf("%d VMs", n)
	}
}

// The process may keep the file that it copied to open for as long as it likes.
func TestATakenOverQEMUCannotChangeABackupOrACloneLater(t *testing.T) {
	t.Parallel()
	d, b, vm := withTakenOver(t)
	var mu sync.Mutex
	var held []*os.File
	b.copied = func(target string) error {
		f, err := os.OpenFile(target, os.O_RDWR, 0)
		mu.Lock()
		defer mu.Unlock()
		held = append(held, f)
		return err
	}
	path := "/v1/vms/" + vm.Id
	backup := d.finished(d.call("POST", path+"/backups", acmeToken, nil))
	clone := d.finished(d.call("POST", path+"/clone", acmeToken, object{"name": "clone"}))
	mu.Lock()
	defer mu.Unlock()
	for i, kept := range []string{filepath.Join(d.cfg.Data, "backups", *backup.BackupId+".qcow2"), filepath.Join(d.cfg.Data, "vms", *clone.VmId, "disk.qcow2")} {
		before, err := os.ReadFile(kept)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := held[i].WriteAt([]byte("taken over"), 0); err != nil {
			t.Fatal(err)
		}
		if after, err := os.ReadFile(kept); err != nil || string(after) != string(before) {
			t.Errorf("%s was changed: %v", kept, err)
		}
		if info, err := os.Stat(kept); err != nil || info.Mode().Perm() != 0o600 ||
			info.Sys().(*syscall.Stat_t).Nlink != 1 {
			t.Errorf("%s: %v, %v", kept, info, err)
		}
		_ = held[i].Close()
	}
}

func TestABackupThatIsNotAsItWasStoredIsNotRead(t *testing.T) {
	t.Parallel()
	d, _, vm := withTakenOver(t)
	path := "/v1/vms/" + vm.Id
	full := d.finished(d.call("POST", path+"/backups", acmeToken, nil))
	second := d.finished(d.call("POST", path+"/backups", acmeToken, object{"kind": "incremental"}))
	whole := d.finished(d.call("POST", path+"/backups", acmeToken, nil)) // stands on none of them
	file := func(id *string) string { return filepath.Join(d.cfg.Data, "backups", *id+".qcow2") }
	good, err := os.ReadFile(file(full.BackupId))
	if err != nil {
		t.Fatal(err)
	}
	secret := rawImage(t, "TOP SECRET", 1<<30)
	for what, damage := range map[string]func() error{
		"a backing file": func() error {
			return qemuImgOn("rebase", "-u", "-f", "qcow2", "-b", secret, "-F", "raw", file(full.BackupId))
		},
		"a byte":  func() error { return os.WriteFile(file(full.BackupId), append([]byte("QFJ"), good[3:]...), 0o600) },
		"shorter": func() error { return os.Truncate(file(full.BackupId), int64(len(good))-1) },
		"gone":    func() error { return os.Remove(file(full.BackupId)) },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		// The second one builds on it.
		for _, id := range []string{*full.BackupId, *second.BackupId} {
			d.call("GET", "/v1/backups/"+id+"/export", acmeToken, nil).Refused(409, "backup_damaged", "")
			for _, into := range []object{{"name": "again"}, {"vm": vm.Id}} {
				if why := d.failed(d.call("POST", "/v1/backups/"+id+"/restore", acmeToken, into)); !strings.Contains(
					why, "is damaged",
				) {
					t.Errorf("%s: %v: %s", what, into, why)
				}
			}
		}
		d.call("GET", "/v1/backups/"+*whole.BackupId+"/export", acmeToken, nil).Want(200)
		if err := os.WriteFile(file(full.BackupId), good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d.call("GET", "/v1/backups/"+*second.BackupId+"/export", acmeToken, nil).Want(200)
	if left, err := filepath.Glob(filepath.Join(d.cfg.Data, "backups", ".export-*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// What a linked clone stands on is what its VM's process wrote.
func TestADiskThatWasMadeToStandOnAnotherFileIsNotShared(t *testing.T) {
	t.Parallel()
	d, _, vm := withTakenOver(t)
	secret := rawImage(t, "TOP SECRET", 1<<30)
	qemuImg(
		t, "rebase", "-u", "-f", "qcow2", "-b", secret, "-F", "raw",
		filepath.Join(d.cfg.Data, "vms", vm.Id, "disk.qcow2"),
	)
	if why := d.failed(
		d.call("POST", "/v1/vms/"+vm.Id+"/clone", acmeToken, object{"name": "linked", "linked": true}),
	); !strings.Contains(why, "backing file") {
		t.Errorf("%s", why)
	}
	if left, err := os.ReadDir(filepath.Join(d.cfg.Data, "bases")); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}
