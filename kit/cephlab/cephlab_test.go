//go:build linux

package cephlab_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/cephlab"
	"github.com/mainstay-infra/mainstay/kit/durable"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/require"
)

// upEnv has the test program start the cluster of a folder, so that it can be killed meanwhile.
const upEnv = "CEPHLAB_TEST_UP"

func TestMain(m *testing.M) {
	dir := os.Getenv(upEnv)
	if dir == "" {
		os.Exit(m.Run())
	}
	_, err := cephlab.Up(context.Background(), dir, settings, func(step string) { _, _ = fmt.Println(step) }) //nolint:forbidigo // to the test
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// settings are those of the smallest whole cluster.
var settings = cephlab.Settings{Name: "lab", OSDs: 1, OSDBytes: 4 << 30, Manager: true, Gateway: true, Pool: "rbd"}

// folder returns one whose path is short.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "lab")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// killedAt starts a cluster in another process, which is killed when a step begins that has the text.
func killedAt(t *testing.T, dir, text string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // this program
	cmd.Env = append(os.Environ(), upEnv+"="+dir)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	reached := false
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if reached = strings.Contains(lines.Text(), text); reached {
			break
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // it was killed
	if !reached {
		t.Fatalf("there was no step %q: %s", text, said.String())
	}
}

// The steps are those of one cluster, which takes some seconds to make.
func TestAClusterComesBack(t *testing.T) {
	t.Parallel()
	if packages := cephlab.Missing(); len(packages) > 0 {
		require.Missing(t, "Ceph is not installed: apt-get install %s", strings.Join(packages, " "))
	}
	dir := folder(t)
	t.Cleanup(func() {
		if l, err := cephlab.Open(dir); err == nil {
			l.Kill()
		}
	})
	// The first start was killed before it had written anything whole.
	if err := os.WriteFile(filepath.Join(dir, ".lab.json-0"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{"monitor is made", "osd.0 is made", "OSDs start", "object gateway starts"} {
		killedAt(t, dir, step)
	}
	l := up(t, dir)
	if s, err := l.Status(t.Context()); err != nil || s.Inactive || s.Health == "" || s.Raw != settings.OSDBytes || s.Free <= 0 {
		t.Errorf("%+v, %v", s, err)
	}
	onLoopbackOnly(t, l)
	private(t, l.Dir)
	if _, err := l.Run(t.Context(), nil, "rbd", "--id", cephlab.User, "create", "--size", "1M", "rbd/kept"); err != nil {
		t.Error(err)
	}
	before := processes(l)
	if up(t, dir); !slices.Equal(processes(l), before) {
		t.Errorf("what runs was started again: %v, then %v", before, processes(l))
	}
	// An OSD that died.
	osd := slices.IndexFunc(l.Daemons(), func(d cephlab.Daemon) bool { return d.Program == "ceph-osd" })
	if err := syscall.Kill(before[osd], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	up(t, dir)
	if after := processes(l); after[osd] == 0 || after[osd] == before[osd] || after[0] != before[0] {
		t.Errorf("%v, then %v", before, after)
	}
	// A loss of power, and an ordinary end.
	l.Kill()
	l = up(t, dir)
	if err := l.Down(t.Context()); err != nil {
		t.Error(err)
	}
	if left := processes(l); slices.Max(left) != 0 {
		t.Errorf("%v still run", left)
	}
	l = up(t, dir)
	if out, err := l.Run(t.Context(), nil, "rbd", "ls", "rbd"); err != nil || out != "kept" {
		t.Errorf("%q, %v", out, err)
	}
	// What others have put there stays, and what a start that was killed was writing goes.
	for _, name := range []string{"mine", durable.TempPrefix + "1"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if kept, err := l.Purge(t.Context()); err != nil || !slices.Equal(kept, []string{"mine"}) {
		t.Errorf("%v, %v", kept, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 || slices.Max(processes(l)) != 0 {
		t.Errorf("left: %v, %v, %v", left, err, processes(l))
	}
}

func TestAClusterBelowWhichSomethingIsMountedIsNotRemoved(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root may mount")
	}
	dir, other := folder(t), t.TempDir()
	at := filepath.Join(dir, "osd.0")
	if err := errors.Join(os.WriteFile(filepath.Join(other, "theirs"), nil, 0o600), os.Mkdir(at, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount(other, at, "", syscall.MS_BIND, ""); err != nil {
		t.Skipf("mounts are not allowed here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(at, 0) })
	l := &cephlab.Lab{Dir: dir}
	if _, err := l.Purge(t.Context()); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), at) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(filepath.Join(other, "theirs")); err != nil {
		t.Error(err)
	}
	if err := syscall.Unmount(at, 0); err != nil {
		t.Fatal(err)
	}
	if kept, err := l.Purge(t.Context()); err != nil || len(kept) > 0 {
		t.Errorf("%v, %v", kept, err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something is left: %v", err)
	}
}

func up(t *testing.T, dir string) *cephlab.Lab {
	t.Helper()
	l, err := cephlab.Up(t.Context(), dir, settings, func(step string) { t.Log(step) })
	if err != nil {
		t.Fatal(err)
	}
	if !l.Ready() {
		t.Error("it is not ready")
	}
	return l
}

// processes returns the processes of the daemons; 0: it does not run.
func processes(l *cephlab.Lab) (pids []int) {
	for _, d := range l.Daemons() {
		pids = append(pids, append(l.PIDs(d), 0)[0])
	}
	return pids
}

// onLoopbackOnly reads from the kernel on which addresses the daemons listen.
func onLoopbackOnly(t *testing.T, l *cephlab.Lab) {
	t.Helper()
	listens := 0
	for _, pid := range processes(l) {
		open := map[string]bool{} // the sockets of the process
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, e.Name())); err == nil {
				open[target] = true
			}
		}
		for _, table := range []string{"tcp", "tcp6", "udp", "udp6"} {
			raw, err := os.ReadFile("/proc/net/" + table)
			if errors.Is(err, fs.ErrNotExist) {
				continue // this kernel has no IPv6
			}
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(raw)) {
				// sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode
				f := strings.Fields(line)
				if len(f) < 10 || !open["socket:["+f[9]+"]"] || f[2] != strings.Repeat("0", len(f[2])-5)+":0000" {
					continue // the heading, another process's, or a connection
				}
				listens++
				if !strings.HasPrefix(f[1], "0100007F:") {
					t.Errorf("process %d listens on %s (%s)", pid, f[1], table)
				}
			}
		}
	}
	if listens < len(l.Daemons()) {
		t.Errorf("only %d sockets listen", listens)
	}
}

// private checks that others read nothing of a folder.
func private(t *testing.T, dir string) {
	t.Helper()
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	for _, name := range []string{"keyring", "rgw.json", "lab.json", "ceph.conf"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

func TestOtherFoldersAreLeftAlone(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	file := filepath.Join(dir, "mine")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := cephlab.Up(t.Context(), dir, settings, nil); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "mine") {
		t.Errorf("%v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
	for _, path := range []string{
		filepath.Join(dir, strings.Repeat("x", 80)), filepath.Join(dir, "a b"), filepath.Join(dir, "a;b"), filepath.Join(dir, "$id"),
	} {
		if _, err := cephlab.Up(t.Context(), path, settings, nil); !fault.Is(err, fault.Invalid) || fault.From(err).Field != "dir" {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := cephlab.Open(dir); !fault.Is(err, fault.NotFound) {
		t.Errorf("%v", err)
	}
}

func TestADamagedRecordIsNamed(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "{", "{}", `{"fsid": "x"}`, `{"fsid": "0b25a3ac-b16c-4a1d-8cbd-1b8c6a7b4f3c", "osds": 2}`} {
		dir := folder(t)
		if err := os.WriteFile(filepath.Join(dir, "lab.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for name, f := range map[string]func() (*cephlab.Lab, error){
			"open": func() (*cephlab.Lab, error) { return cephlab.Open(dir) },
			"up":   func() (*cephlab.Lab, error) { return cephlab.Up(t.Context(), dir, settings, nil) },
		} {
			if _, err := f(); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "lab.json") {
				t.Errorf("%s of %s: %v", name, strconv.Quote(text), err)
			}
		}
	}
}

func TestOneProcessAtATimeStartsOrStopsACluster(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil { //nolint:gosec // descriptors are small
		t.Fatal(err)
	}
	l := &cephlab.Lab{Dir: dir}
	_, err = cephlab.Up(t.Context(), dir, settings, nil)
	_, purged := l.Purge(t.Context())
	for name, err := range map[string]error{"up": err, "down": l.Down(t.Context()), "purge": purged} {
		if !fault.Is(err, fault.Conflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}
