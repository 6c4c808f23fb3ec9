package repository_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/repository"
	"github.com/mainstay-infra/mainstay/kit/require"
)

// disk is an ext4 image of 1 GiB with this machine's programs and libraries, or the file in
// BENCH_IMAGE.
var disk = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("BENCH_IMAGE"); path != "" {
		return path, nil
	}
	path := filepath.Join(os.TempDir(), "mainstay-bench-disk.raw")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	from, err := os.MkdirTemp("", "mainstay-bench-*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(from)
	script := `cd /usr && find bin sbin lib/x86_64-linux-gnu share/doc -xdev -type f -size -20M | sort |
		awk 'NR%2' | head -c 400000 | cpio -pdm --quiet "$0" 2>/dev/null || true
		while [ "$(du -sm "$0" | cut -f1)" -gt 800 ]; do
			find "$0" -type f -size +2M | head -20 | xargs rm -f
		done
		mke2fs -q -t ext4 -d "$0" "$1" 1G`
	if out, err := exec.Command("sh", "-c", script, from, path).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

func openDisk(b *testing.B) (*os.File, int64) {
	b.Helper()
	require.Program(b, "mke2fs", "e2fsprogs")
	path, err := disk()
	if err != nil {
		b.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = f.Close() })
	info, err := f.Stat()
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(info.Size())
	return f, info.Size()
}

func benchRepository(b *testing.B, blockSize int) (*repository.Repository, string) {
	b.Helper()
	path := filepath.Join(b.TempDir(), "r")
	r, err := repository.Create(b.Context(), openDir(b, path), repository.CreateOptions{BlockSize: blockSize}, repository.Options{})
	if err != nil {
		b.Fatal(err)
	}
	return r, path
}

func writeDisk(b *testing.B, r *repository.Repository, f *os.File, size int64) *repository.Backup {
	b.Helper()
	w, err := r.Begin(b.Context(), repository.Info{Tenant: tenant}, nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	if err := w.Disk(repository.Disk{Name: "root", Size: size, Reader: f, Whole: true}); err != nil {
		b.Fatal(err)
	}
	backup, err := w.Commit()
	if err != nil {
		b.Fatal(err)
	}
	return backup
}

// used returns the bytes of files below a folder.
func used(b *testing.B, folder string) (sum float64) {
	b.Helper()
	err := filepath.Walk(folder, func(_ string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			sum += float64(info.Size())
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return sum
}

func BenchmarkBackup(b *testing.B) {
	for _, blockSize := range []int{64 << 10, 128 << 10, 256 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dKiB", blockSize>>10), func(b *testing.B) {
			f, size := openDisk(b)
			for b.Loop() {
				r, path := benchRepository(b, blockSize)
				backup := writeDisk(b, r, f, size)
				b.ReportMetric(used(b, path)/1e6, "MB-stored")
				b.ReportMetric(used(b, filepath.Join(path, "index"))/1e3, "kB-index")
				b.ReportMetric(float64(backup.Items[0].New)/1e6, "MB-new")
			}
		})
	}
}

// The whole disk again, nothing of which is new.
func BenchmarkBackupUnchanged(b *testing.B) {
	f, size := openDisk(b)
	r, _ := benchRepository(b, 0)
	writeDisk(b, r, f, size)
	for b.Loop() {
		writeDisk(b, r, f, size)
	}
}

func BenchmarkRestore(b *testing.B) {
	f, size := openDisk(b)
	r, _ := benchRepository(b, 0)
	backup := writeDisk(b, r, f, size)
	for b.Loop() {
		v, err := r.View(b.Context(), tenant, backup.ID)
		if err != nil {
			b.Fatal(err)
		}
		item, err := v.Item("root")
		if err != nil {
			b.Fatal(err)
		}
		out, err := os.Create(filepath.Join(b.TempDir(), "restored"))
		if err != nil {
			b.Fatal(err)
		}
		if err := out.Truncate(size); err != nil {
			b.Fatal(err)
		}
		if err := item.WriteTo(b.Context(), out, repository.RestoreOptions{}); err != nil {
			b.Fatal(err)
		}
		if err := out.Sync(); err != nil {
			b.Fatal(err)
		}
		_, _ = out.Close(), v.Close()
	}
}

// The same by hand, for comparison.
func BenchmarkPeers(b *testing.B) {
	for _, peer := range []struct{ name, program, setup, script string }{
		{"qemu-img+zstd", "zstd", "", `zstd -q -3 -T0 -f -c "$0" >"$1/out.zst" && sync "$1/out.zst"`},
		{"qemu-img+zstd-restore", "zstd", `zstd -q -3 -T0 -f -c "$0" >"$1/out.zst"`,
			`zstd -q -d -f --sparse "$1/out.zst" -o "$1/raw" && qemu-img convert -f raw -O raw "$1/raw" "$1/back" && sync "$1/back"`},
		{"restic", "restic", "", `export RESTIC_PASSWORD=x; rm -rf "$1/r"; restic -q -r "$1/r" --no-cache init && restic -q -r "$1/r" --no-cache backup "$0"`},
		{"restic-restore", "restic", `export RESTIC_PASSWORD=x; restic -q -r "$1/r" --no-cache init && restic -q -r "$1/r" --no-cache backup "$0"`,
			`export RESTIC_PASSWORD=x; rm -rf "$1/back"; restic -q -r "$1/r" --no-cache restore latest --target "$1/back"`},
	} {
		b.Run(peer.name, func(b *testing.B) {
			require.Program(b, peer.program, strings.Split(peer.program, "-")[0])
			f, _ := openDisk(b)
			folder := b.TempDir()
			run := func(script string) {
				if out, err := exec.Command("sh", "-c", script, f.Name(), folder).CombinedOutput(); err != nil {
					b.Fatalf("%v: %s", err, out)
				}
			}
			if peer.setup != "" {
				run(peer.setup)
			}
			for b.Loop() {
				run(peer.script)
			}
			b.ReportMetric(used(b, folder)/1e6, "MB-stored")
		})
	}
}
