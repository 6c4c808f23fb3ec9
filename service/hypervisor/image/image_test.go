//go:build linux

package image_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/require"
	"github.com/mainstay-infra/mainstay/service/hypervisor/image"
)

const mib = 1 << 20

var generous = image.Limits{VirtualSize: 1 << 40, Written: 1 << 30, CPU: time.Minute, Memory: image.DefaultMemory}

// qemuImg runs qemu-img with a file in the test's folder as {}.
func qemuImg(t *testing.T, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("qemu-img"); err != nil {
		require.Missing(t, "qemu-img is not installed: apt-get install qemu-utils")
	}
	path := filepath.Join(t.TempDir(), "image")
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "{}", path)
	}
	if out, err := exec.CommandContext(
		t.Context(),
		"qemu-img",
		args...).CombinedOutput(); err != nil { //nolint:gosec // the test's own
		t.Fatalf("qemu-img %v: %v\n%s", args, err, out)
	}
	return path
}

func inspect(t *testing.T, path string) (image.Info, error) {
	t.Helper()
	f, err := os.Open(path) //nolint:gosec // the test's own
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	stat, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return image.Inspect(f, stat.Size())
}

// rawDisk is a disk with content that cannot be guessed.
func rawDisk(t *testing.T, size int) (path string, content []byte) {
	t.Helper()
	content = make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(content) // it never fails
	path = filepath.Join(t.TempDir(), "disk.raw")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, content
}

func TestImagesOfQEMUAreUnderstood(t *testing.T) {
	t.Parallel()
	for _, options := range []string{"compat=1.1", "compat=0.10", "cluster_size=512", "cluster_size=2M", "compression_type=zstd", "extended_l2=on,cluster_size=128k", "preallocation=metadata", "lazy_refcounts=on"} {
		path := qemuImg(t, "create", "-q", "-f", "qcow2", "-o", options, "{}", "64M")
		if info, err := inspect(t, path); err != nil || info.Format != image.Qcow2 || info.VirtualSize != 64*mib {
			t.Errorf("%s: %+v, %v", options, info, err)
		}
	}
	path, _ := rawDisk(t, mib)
	if info, err := inspect(t, path); err != nil || info.Format != image.Raw || info.VirtualSize != mib {
		t.Errorf("raw: %+v, %v", info, err)
	}
}

func TestImagesThatLeadElsewhereAreRefused(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, bytes.Repeat([]byte("the host's secret "), 64), 0o600); err != nil {
		t.Fatal(err)
	}
	backed := qemuImg(t, "create", "-q", "-f", "qcow2", "-u", "-F", "raw", "-b", secret, "{}", "1M")
	outside := qemuImg(t, "create", "-q", "-f", "qcow2", "-o", "data_file={}.data,data_file_raw=on", "{}", "1M")
	for path, want := range map[string]string{backed: "backing file", outside: "another file"} {
		_, err := inspect(t, path)
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	// Even if it were not refused: the reference is not followed.
	result := filepath.Join(t.TempDir(), "result")
	if err := image.Convert(
		t.Context(), backed, image.Info{Format: image.Qcow2, VirtualSize: mib}, result, generous, nil,
	); err != nil {
		t.Fatal(err)
	}
	flat := filepath.Join(t.TempDir(), "flat")
	if out, err := exec.CommandContext(
		t.Context(), "qemu-img", "convert", "-O", "raw", result, flat,
	).CombinedOutput(); err != nil { //nolint:gosec // the test's own
		t.Fatalf("%v\n%s", err, out)
	}
	if got, err := os.ReadFile(flat); err != nil || len(got) != mib ||
		bytes.Contains(got, []byte("secret")) { //nolint:gosec // the test's own
		t.Errorf("%d bytes, %v: the host's file is in the image", len(got), err)
	}
}

func TestHeadersThatLieAreRefused(t *testing.T) {
	t.Parallel()
	good, err := os.ReadFile(qemuImg(t, "create", "-q", "-f", "qcow2", "{}", "1M"))
	if err != nil {
		t.Fatal(err)
	}
	put := func(at int, v uint64, size int) func([]byte) []byte {
		return func(b []byte) []byte {
			var text [8]byte
			binary.BigEndian.PutUint64(text[:], v)
			copy(b[at:], text[8-size:])
			return b
		}
	}
	for what, change := range map[string]func([]byte) []byte{
		"version":              put(4, 4, 4),
		"backing file":         put(8, 512, 8),
		"clusters of 2^":       put(20, 40, 4),
		"claims a size":        put(24, math.MaxUint64, 8),
		"claims a size of 0":   put(24, 0, 8),
		"encrypted":            put(32, 2, 4),
		"table of":             put(36, math.MaxUint32, 4),
		"beyond its end":       put(40, math.MaxUint64-7, 8),
		"not known":            put(72, 1<<63, 8),
		"another file":         put(72, 1<<2, 8),
		"incomplete":           func(b []byte) []byte { return b[:80] },
		"in the format VMDK":   func([]byte) []byte { return []byte("KDMV" + strings.Repeat("\x00", 508)) },
		"in the format gzip":   func([]byte) []byte { return []byte("\x1f\x8b" + strings.Repeat("\x00", 510)) },
		"neither qcow2 nor":    func([]byte) []byte { return []byte("#!/bin/sh") },
		"neither qcow2 nor r":  func([]byte) []byte { return nil },
		"tables beyond its en": put(48, 1<<40, 8),
	} {
		raw := change(bytes.Clone(good))
		if _, err := image.Inspect(bytes.NewReader(raw), int64(len(raw))); !fault.Is(err, fault.Invalid) ||
			!strings.Contains(err.Error(), what) {
			t.Errorf("want %q: %v", what, err)
		}
	}
}

func TestAConvertedImageHasTheSameContentAndProgressIsTold(t *testing.T) {
	t.Parallel()
	path, content := rawDisk(t, 8*mib)
	result := filepath.Join(t.TempDir(), "result.qcow2")
	var told []float64
	if err := image.Convert(
		t.Context(), path, image.Info{Format: image.Raw, VirtualSize: 8 * mib}, result, generous,
		func(done float64) { told = append(told, done) },
	); err != nil {
		t.Fatal(err)
	}
	if len(told) == 0 || told[len(told)-1] != 1 {
		t.Errorf("progress: %v", told)
	}
	if info, err := inspect(t, result); err != nil || info.Format != image.Qcow2 || info.VirtualSize != 8*mib {
		t.Errorf("%+v, %v", info, err)
	}
	back := filepath.Join(t.TempDir(), "back.raw")
	if out, err := exec.CommandContext(
		t.Context(), "qemu-img", "convert", "-f", "qcow2", "-O", "raw", result, back,
	).CombinedOutput(); err != nil { //nolint:gosec // the test's own
		t.Fatalf("%v\n%s", err, out)
	}
	if got, err := os.ReadFile(back); err != nil || !bytes.Equal(got, content) { //nolint:gosec // the test's own
		t.Errorf("%d bytes of another content: %v", len(got), err)
	}
}

// A raw disk whose content looks like a qcow2 header is the guest's business.
func TestADiskIsReadAsTheFormatThatWasFound(t *testing.T) {
	t.Parallel()
	inner, err := os.ReadFile(
		qemuImg(t, "create", "-q", "-f", "qcow2", "-u", "-F", "raw", "-b", "/etc/hostname", "{}", "1M"),
	)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "disk.raw")
	inner = append(inner, make([]byte, mib-len(inner)%mib)...)
	if err := os.WriteFile(path, inner, 0o600); err != nil {
		t.Fatal(err)
	}
	result := filepath.Join(t.TempDir(), "result.qcow2")
	if err := image.Convert(
		t.Context(), path, image.Info{Format: image.Raw, VirtualSize: int64(len(inner))}, result, generous, nil,
	); err != nil {
		t.Fatal(err)
	}
	if info, err := inspect(t, result); err != nil || info.VirtualSize != int64(len(inner)) {
		t.Errorf("%+v, %v", info, err)
	}
}

func TestLimitsEndAConversionAndLeaveNothing(t *testing.T) {
	t.Parallel()
	path, _ := rawDisk(t, 4*mib)
	info := image.Info{Format: image.Raw, VirtualSize: 4 * mib}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for what, tt := range map[string]struct {
		ctx    context.Context
		limits image.Limits
		want   string
	}{
		"size of the disk":   {t.Context(), image.Limits{VirtualSize: mib, Written: 1 << 30, CPU: time.Minute, Memory: image.DefaultMemory}, "are allowed"},
		"size of the result": {t.Context(), image.Limits{VirtualSize: 1 << 30, Written: mib, CPU: time.Minute, Memory: image.DefaultMemory}, ""},
		"canceled":           {canceled, generous, "canceled"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			result := filepath.Join(t.TempDir(), "result")
			err := image.Convert(tt.ctx, path, info, result, tt.limits, nil)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v", err)
			}
			if _, err := os.Lstat(result); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a result is left: %v", err)
			}
		})
	}
}

func TestAnExistingFileIsNotOverwritten(t *testing.T) {
	t.Parallel()
	path, content := rawDisk(t, mib)
	if err := image.Convert(
		t.Context(), path, image.Info{Format: image.Raw, VirtualSize: mib}, path, generous, nil,
	); !fault.Is(err, fault.Conflict) {
		t.Errorf("%v", err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, content) { //nolint:gosec // the test's own
		t.Errorf("it was changed: %v", err)
	}
}

// Whatever is accepted has a size that a disk can have, and names a format that is taken.
func FuzzInspect(f *testing.F) {
	f.Add([]byte("QFI\xfb\x00\x00\x00\x03"+strings.Repeat("\x00", 120)), int64(1<<20))
	f.Add([]byte("KDMV"), int64(512))
	f.Add(make([]byte, 512), int64(512))
	f.Fuzz(func(t *testing.T, head []byte, size int64) {
		if size < int64(len(head)) {
			size = int64(len(head))
		}
		info, err := image.Inspect(bytes.NewReader(head), size)
		if err != nil {
			if info != (image.Info{}) || !fault.Is(err, fault.Invalid) {
				t.Fatalf("%+v, %v", info, err)
			}
			return
		}
		if info.VirtualSize <= 0 || info.VirtualSize%512 != 0 ||
			info.Format != image.Raw && info.Format != image.Qcow2 {
			t.Fatalf("%+v", info)
		}
	})
}
