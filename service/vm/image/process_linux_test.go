package image

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/require"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		require.Missing(t, "tools run in user namespaces, which takes root")
	}
}

// reachable returns a folder that other accounts reach.
func reachable(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "mainstay-image-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = remove(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	guest := filepath.Join(dir, "guest")
	if err := give(guest); err != nil {
		t.Fatal(err)
	}
	return guest
}

func sh(t *testing.T, ctx context.Context, dir, script string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := tool{name: "sh", args: []string{"-c", script}, dir: dir}.run(ctx, &out)
	return out.String(), err
}

func TestAToolIsRootOfItsOwnFolderAndNobodyElsewhere(t *testing.T) {
	t.Parallel()
	needRoot(t)
	dir := reachable(t)
	out, err := sh(t, t.Context(), dir, "id -u; echo $$; touch mine && chown 42:42 mine && stat -c %u mine; env")
	if err != nil || !strings.HasPrefix(out, "0\n1\n42\n") || strings.Contains(out, "SECRET") {
		t.Errorf("%q, %v", out, err)
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, script := range []string{
		"cat " + secret, "cat /etc/shadow", "echo x >/etc/mainstay-test", "mknod disk b 254 0 && cat disk",
		"mount -o remount,rw /",
	} {
		if out, err := sh(t, t.Context(), dir, script+" && echo REACHED"); err == nil && strings.Contains(out, "REACHED") {
			t.Errorf("%s: %s", script, out)
		}
	}
	var stat syscall.Stat_t
	if err := syscall.Stat(filepath.Join(dir, "mine"), &stat); err != nil || stat.Uid != nobodyBase+42 {
		t.Errorf("the file is of %d, %v", stat.Uid, err)
	}
}

// A tool that hangs, and what it has put into sessions of its own, end with the job.
func TestAllThatAToolHasStartedEndsWithIt(t *testing.T) {
	t.Parallel()
	needRoot(t)
	dir := reachable(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := fault.New(fault.Unavailable, "enough")
	pr, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pr.Close()
	done := make(chan error, 1)
	go func() {
		done <- tool{name: "sh", args: []string{
			"-c", "trap '' TERM INT HUP; setsid sh -c 'trap \"\" TERM; echo up; while :; do touch alive; sleep 0.05; done' & while :; do sleep 1; done",
		}, dir: dir}.run(ctx, pw)
		pw.Close()
	}()
	if _, err := pr.Read(make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	cancel(reason)
	if err := <-done; !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "enough") {
		t.Errorf("%v", err)
	}
	alive := filepath.Join(dir, "alive")
	_ = os.Remove(alive)
	for range 10 { // another process would make it again
		time.Sleep(30 * time.Millisecond)
		if _, err := os.Stat(alive); err == nil {
			t.Fatal("a process of the tool still runs")
		}
	}
}

func TestALogKeepsUpWithAFloodAndHoldsOnlyPrintableLines(t *testing.T) {
	t.Parallel()
	needRoot(t)
	var mu sync.Mutex
	var stored []string
	l := newLogger(t.Context(), func(text string) error {
		mu.Lock()
		defer mu.Unlock()
		stored = append(stored, text)
		return nil
	})
	script := `printf 'a\033[2Jb\000c\n'; head -c 10000 /dev/zero | tr '\0' x; echo; head -c 3000000 /dev/zero | tr '\0' '\n' | sed s/^/line/; ` +
		`echo no end`
	if err := (tool{name: "sh", args: []string{"-c", script}, dir: reachable(t)}).run(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	all := strings.Join(stored, "")
	if !strings.HasSuffix(all, "no end\n") || !strings.Contains(all, "lines left out") {
		t.Errorf("the log ends with %q", all[max(0, len(all)-100):])
	}
	for _, piece := range stored {
		if len(piece) > maxPiece+100 || strings.ContainsFunc(piece, func(r rune) bool { return r != '\n' && (r < ' ' || r > '~') }) {
			t.Errorf("a piece of %d bytes", len(piece))
		}
	}
}

func TestWhatAToolMayHaveSwappedIsNotOpened(t *testing.T) {
	t.Parallel()
	needRoot(t)
	dir := reachable(t)
	if _, err := sh(t, t.Context(), dir,
		"echo good >file; ln -s /etc/hostname link; ln file hard; cp file twice; mkfifo fifo; mkdir folder"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ours"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"file", "link", "hard", "fifo", "folder", "ours", "none"} {
		if f, err := owned(filepath.Join(dir, name), os.O_RDONLY); err == nil {
			t.Errorf("%s is opened", name)
			f.Close()
		}
	}
	f, err := owned(filepath.Join(dir, "twice"), os.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}
