package accel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// Accelerator is how QEMU runs a guest's instructions, as in its option -accel.
type Accelerator string

const (
	// KVM runs them on the processor.
	KVM Accelerator = "kvm"
	// TCG translates them.
	TCG Accelerator = "tcg"
)

// Options configures Detect. The zero value is usable.
type Options struct {
	// QEMU is the program, by name or path; default: qemu-system-x86_64.
	QEMU string
	// CacheFile is the file in which the result is cached, in an existing folder; empty: no cache.
	CacheFile string
	// Limit is the timeout of the probe guest; default: 5 s. A good host needs less than half a
	// second. A limit of minutes would accept an emulated KVM.
	Limit time.Duration
}

// Result is an accelerator that works.
type Result struct {
	Accelerator Accelerator
	// Reason explains the result, for people.
	Reason string
	// Cached reports that the result is from the cache.
	Cached bool
}

// Detect detects the accelerator to use. It fails if QEMU is missing or does not run, and when ctx
// ends.
func Detect(ctx context.Context, o Options) (Result, error) {
	if o.QEMU == "" {
		o.QEMU = "qemu-system-x86_64"
	}
	if o.Limit <= 0 {
		o.Limit = 5 * time.Second
	}
	return detect(ctx, o, thisHost())
}

// host is what is known about a host without booting a guest.
type host struct {
	unfit   string // why KVM is out of the question, if it is
	device  string // of KVM
	release string // of the kernel
	bootID  string // of this boot; empty if it is not known
}

func thisHost() host {
	h := host{
		device:  "/dev/kvm",
		release: line("/proc/sys/kernel/osrelease"),
		bootID:  line("/proc/sys/kernel/random/boot_id"),
	}
	if runtime.GOOS != "linux" {
		h.unfit = "KVM is a part of Linux, and this is " + runtime.GOOS
	} else if runtime.GOARCH != "amd64" {
		h.unfit = "KVM runs guests of the host's own kind only, and this host is " + runtime.GOARCH
	}
	return h
}

// line returns the content of a one-line file, or "" if it cannot be read.
func line(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func detect(ctx context.Context, o Options, h host) (Result, error) {
	program, err := exec.LookPath(o.QEMU)
	if err != nil {
		return Result{}, fmt.Errorf("QEMU is missing (apt-get install qemu-system-x86): %w", err)
	}
	version, err := version(ctx, program, o.Limit)
	if err != nil {
		return Result{}, fmt.Errorf("%s does not tell its version: %w", program, err)
	}
	if reason := h.withoutKVM(); reason != "" {
		return Result{Accelerator: TCG, Reason: reason}, nil
	}
	rom := guestROM()
	key := cacheKey(h, version, rom, o.Limit)
	if r, ok := recall(o.CacheFile, key); ok {
		return r, nil
	}
	exit, said, err := boot(ctx, program, KVM, rom, o.Limit)
	if ctx.Err() != nil {
		return Result{}, fmt.Errorf("probe KVM: %w", ctx.Err())
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		r := Result{
			Accelerator: TCG,
			Reason: fmt.Sprintf("KVM is there, but a probe guest did not come to its end within %s; "+
				"this host may be a virtual machine without nested virtualization", o.Limit),
		}
		return remember(o.CacheFile, key, r), nil
	case err != nil:
		return Result{}, fmt.Errorf("probe KVM: %w", err)
	case exit == guestRan:
		return remember(o.CacheFile, key, Result{Accelerator: KVM, Reason: "a probe guest ran under KVM"}), nil
	}
	// This took no time and may change, so it is not cached.
	return Result{
		Accelerator: TCG,
		Reason:      fmt.Sprintf("the probe guest did not run under KVM: QEMU ended with code %d: %s", exit, lastLine(said)),
	}, nil
}

// withoutKVM returns why KVM cannot be used, as far as that is known without a guest.
func (h host) withoutKVM() string {
	if h.unfit != "" {
		return h.unfit
	}
	f, err := os.OpenFile(h.device, os.O_RDWR, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return h.device + " is missing: the processor's virtualization is switched off, or the module kvm_intel or kvm_amd is not loaded"
	case errors.Is(err, fs.ErrPermission):
		return h.device + " may not be opened: add this user to the group kvm"
	case err != nil:
		return "KVM does not open: " + err.Error()
	}
	_ = f.Close() // nothing was written
	return ""
}

// version returns the first line of QEMU's version output.
func version(ctx context.Context, program string, limit time.Duration) (string, error) {
	exit, said, err := run(ctx, limit, program, "--version")
	first, _, _ := strings.Cut(said, "\n")
	if err == nil && (exit != 0 || first == "") {
		err = fmt.Errorf("it ended with code %d: %s", exit, lastLine(said))
	}
	return first, err
}

func lastLine(said string) string { return said[strings.LastIndexByte(said, '\n')+1:] }
