package accel

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/require"
)

// long is a limit that nothing here is meant to reach.
const long = 60 * time.Second

func realQEMU(t *testing.T) string {
	t.Helper()
	return require.Program(t, "qemu-system-x86_64", "qemu-system-x86")
}

func TestTheProbeGuestRunsUnderRealQEMU(t *testing.T) {
	t.Parallel()
	exit, said, err := boot(t.Context(), realQEMU(t), TCG, guestROM(), long)
	if err != nil || exit != guestRan {
		t.Errorf("exit code %d, %v: %s", exit, err, said)
	}
}

func TestAGuestThatHaltsOrDiesDoesNotCountAsRun(t *testing.T) {
	t.Parallel()
	program := realQEMU(t)
	halts, dies := guestROM(), guestROM()
	copy(halts, []byte{0xfa, 0xf4})    // cli, hlt
	copy(dies[0x98:], make([]byte, 8)) // there is no segment for 64-bit code
	if exit, said, err := boot(t.Context(), program, TCG, halts, time.Second); !errors.Is(
		err, context.DeadlineExceeded,
	) {
		t.Errorf("a guest that halts: exit code %d, %v: %s", exit, err, said)
	}
	if exit, said, err := boot(t.Context(), program, TCG, dies, long); err != nil || exit == guestRan {
		t.Errorf("a guest that dies: exit code %d, %v: %s", exit, err, said)
	}
}

func TestTheAnswerForThisHostAgreesWithABoot(t *testing.T) {
	t.Parallel()
	const limit = 2 * time.Second
	o := Options{QEMU: realQEMU(t), Limit: limit, CacheFile: filepath.Join(t.TempDir(), "accel")}
	r, err := Detect(t.Context(), o)
	if err != nil || r.Reason == "" || r.Cached {
		t.Fatalf("%+v, %v", r, err)
	}
	t.Logf("%s: %s", r.Accelerator, r.Reason)
	exit, said, err := boot(t.Context(), o.QEMU, KVM, guestROM(), limit)
	if ran := err == nil && exit == guestRan; ran != (r.Accelerator == KVM) {
		t.Errorf("detected %s, and under KVM: exit code %d, %v: %s", r.Accelerator, exit, err, said)
	}
}

// standIn makes a stand-in for QEMU which runs boot, a shell script, when it is to
// boot a guest, and options and a host for it, both as good as can be.
func standIn(t *testing.T, boot string) (Options, host) {
	t.Helper()
	dir := t.TempDir()
	script, err := filepath.Abs("testdata/qemu")
	if err != nil {
		t.Fatal(err)
	}
	// The script is linked, not written: what was just written cannot be executed
	// while another test's child still holds it open.
	if err := os.Symlink(script, filepath.Join(dir, "qemu")); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "version", "QEMU emulator version 7.2.0\nCopyright\n")
	write(t, dir, "boot", boot)
	write(t, dir, "kvm", "")
	return Options{QEMU: filepath.Join(dir, "qemu"), CacheFile: filepath.Join(dir, "cache"), Limit: long},
		host{device: filepath.Join(dir, "kvm"), release: "6.1", bootID: "b"}
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// boots is how many guests the stand-in was to boot.
func boots(t *testing.T, o Options) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(filepath.Dir(o.QEMU), "boots"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if n := strings.Count(string(b), "kvm\n"); n != strings.Count(string(b), "\n") {
		t.Errorf("not all were for KVM: %s", b)
	}
	return strings.Count(string(b), "\n")
}

func TestAnAnswerIsRememberedUntilWhatItHoldsForChanges(t *testing.T) {
	t.Parallel()
	o, h := standIn(t, "exit 85")
	want := 0
	check := func(when string, o Options, h host, cached bool) {
		t.Helper()
		if !cached {
			want++
		}
		r, err := detect(t.Context(), o, h)
		if err != nil || r.Accelerator != KVM || r.Cached != cached || r.Reason != "a probe guest ran under KVM" {
			t.Errorf("%s: %+v, %v", when, r, err)
		}
		if n := boots(t, o); n != want {
			t.Errorf("%s: %d boots, want %d", when, n, want)
		}
	}
	check("first", o, h, false)
	check("again", o, h, true)
	h.bootID = "another"
	check("after a boot", o, h, false)
	h.release = "6.2"
	check("with another kernel", o, h, false)
	write(t, filepath.Dir(o.QEMU), "version", "QEMU emulator version 8.0.0\n")
	check("with another QEMU", o, h, false)
	o.Limit++
	check("with another limit", o, h, false)
	check("again", o, h, true)
	o.CacheFile = ""
	check("without a file", o, h, false)
}

func TestADamagedFileIsIgnoredAndReplaced(t *testing.T) {
	t.Parallel()
	o, h := standIn(t, "exit 85")
	if _, err := detect(t.Context(), o, h); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(o.CacheFile)
	if err != nil {
		t.Fatal(err)
	}
	for name, damaged := range map[string]string{
		"empty":                  "",
		"cut":                    string(good[:len(good)/2]),
		"garbage":                "\x00\xff",
		"an unknown accelerator": strings.Replace(string(good), `"kvm"`, `"-monitor"`, 1),
		"endless":                strings.Repeat(" ", maxCache) + string(good),
	} {
		write(t, filepath.Dir(o.CacheFile), "cache", damaged)
		if r, err := detect(t.Context(), o, h); err != nil || r.Cached || r.Accelerator != KVM {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		if now, err := os.ReadFile(o.CacheFile); err != nil || string(now) != string(good) {
			t.Errorf("%s was replaced by %q, %v", name, now, err)
		}
	}
	o.CacheFile = filepath.Join(o.CacheFile, "below-a-file")
	if r, err := detect(t.Context(), o, h); err != nil || r.Accelerator != KVM ||
		!strings.Contains(r.Reason, "cannot be remembered") {
		t.Errorf("a file that cannot be written: %+v, %v", r, err)
	}
}

// hang is a script that never ends, nor does its child. Both hold the pipe of allGone.
const hang = "exec 3>alive; sleep 600 & sleep 600"

// allGone makes the pipe of hang; what it returns waits until nobody holds it.
func allGone(t *testing.T, o Options) (wait func()) {
	t.Helper()
	pipe := filepath.Join(filepath.Dir(o.QEMU), "alive")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	gone := make(chan error, 1)
	go func() {
		f, err := os.Open(pipe) // waits for the script
		if err == nil {
			_, err = io.Copy(io.Discard, f)
			_ = f.Close()
		}
		gone <- err
	}()
	return func() {
		t.Helper()
		select {
		case err := <-gone:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(long):
			t.Error("a process was left")
		}
	}
}

func TestAQEMUThatHangsEndsAtTheLimitAndLeavesNoProcess(t *testing.T) {
	t.Parallel()
	o, h := standIn(t, hang)
	o.Limit = 2 * time.Second
	gone := allGone(t, o)
	r, err := detect(t.Context(), o, h)
	if err != nil || r.Accelerator != TCG || !strings.Contains(r.Reason, "within 2s") {
		t.Errorf("%+v, %v", r, err)
	}
	gone()
	if r, err := detect(t.Context(), o, h); err != nil || r.Accelerator != TCG || !r.Cached || boots(t, o) != 1 {
		t.Errorf("it was not remembered: %+v, %v", r, err)
	}
}

func TestTheEndOfTheContextEndsTheProbeAndNothingIsRemembered(t *testing.T) {
	t.Parallel()
	o, h := standIn(t, "exec 3>alive; sleep 600 & echo >started; sleep 600")
	started := filepath.Join(filepath.Dir(o.QEMU), "started")
	if err := syscall.Mkfifo(started, 0o600); err != nil {
		t.Fatal(err)
	}
	gone := allGone(t, o)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = os.ReadFile(started) // waits for the script
		cancel()
	}()
	if r, err := detect(ctx, o, h); !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v", r, err)
	}
	gone()
	if _, err := os.Stat(o.CacheFile); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something was remembered: %v", err)
	}
}

func TestWhatShowsAtOnceIsNotRemembered(t *testing.T) {
	t.Parallel()
	o, h := standIn(
		t, "echo warning >&2; echo 'Could not access KVM kernel module: Device or resource busy' >&2; exit 1",
	)
	absent, unfit := h, h
	absent.device += "-absent"
	unfit.unfit = "KVM is a part of Linux"
	for want, h := range map[string]host{
		"QEMU ended with code 1: Could not access KVM": h,
		"is missing":             absent,
		"KVM is a part of Linux": unfit,
	} {
		r, err := detect(t.Context(), o, h)
		if err != nil || r.Accelerator != TCG || r.Cached || !strings.Contains(r.Reason, want) {
			t.Errorf("%+v, %v, want %s", r, err, want)
		}
	}
	if n := boots(t, o); n != 1 {
		t.Errorf("%d guests were booted", n)
	}
	if _, err := os.Stat(o.CacheFile); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something was remembered: %v", err)
	}
}

func TestAQEMUThatIsMissingOrBrokenIsAnErrorThatSaysWhatToDo(t *testing.T) {
	t.Parallel()
	if _, err := Detect(t.Context(), Options{QEMU: "/nonexistent/qemu"}); err == nil ||
		!strings.Contains(err.Error(), "apt-get install qemu-system-x86") {
		t.Errorf("a missing one: %v", err)
	}
	o, h := standIn(t, "")
	write(t, filepath.Dir(o.QEMU), "version", "")
	if _, err := detect(t.Context(), o, h); err == nil || !strings.Contains(err.Error(), "does not tell its version") {
		t.Errorf("one without a version: %v", err)
	}
}

func TestOfWhatIsSaidTheEndIsKept(t *testing.T) {
	t.Parallel()
	var kept tail
	for _, part := range []string{"lost", strings.Repeat("x", 3*keptOutput), "\xff", "the end\n"} {
		if n, err := kept.Write([]byte(part)); err != nil || n != len(part) {
			t.Errorf("%d, %v", n, err)
		}
	}
	if s := kept.String(); len(s) > keptOutput || !strings.HasSuffix(s, "xxthe end") {
		t.Errorf("%d bytes, ending in %q", len(s), s[len(s)-12:])
	}
}
