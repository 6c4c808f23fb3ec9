//go:build linux

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/cephlab"
	"github.com/mainstay-infra/mainstay/kit/require"
)

// devCeph runs `storage dev-ceph ARGS` in a folder.
func devCeph(t *testing.T, dir string, args ...string) (code int, out, errOut string) {
	t.Helper()
	return mainstay(t.Context(), t, dir, append([]string{"storage", "dev-ceph"}, args...)...)
}

// shortDir returns a folder whose path is short.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dev")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestDevCephRunsACluster(t *testing.T) {
	t.Parallel()
	if packages := cephlab.Missing(); len(packages) > 0 {
		require.Missing(t, "Ceph is not installed: apt-get install %s", strings.Join(packages, " "))
	}
	if os.Geteuid() != 0 {
		require.Missing(t, "dev-ceph needs root")
	}
	dir := shortDir(t)
	at := filepath.Join(dir, ".mainstay", "ceph")
	t.Cleanup(func() {
		if l, err := cephlab.Open(at); err == nil {
			l.Kill()
		}
	})
	code, out, errOut := devCeph(t, dir, "up", "--osds", "1", "--osd-size", "4GiB", "--backend", "lab", "-o", "json")
	var up struct {
		State, Name, Health string
		Raw                 int64 `json:"raw_bytes"`
		Daemons             []struct{ PID int }
		Settings            map[string]string
	}
	if err := json.Unmarshal([]byte(out), &up); err != nil || code != 0 || up.State != "running" || up.Name != "lab" ||
		up.Health == "" || up.Raw != 4<<30 || len(up.Daemons) != 4 || up.Daemons[3].PID == 0 ||
		up.Settings["STORE_CEPH_CLUSTERS"] != "lab=mainstay@"+at+"/ceph.conf" || !strings.Contains(errOut, "the pool rbd is made") {
		t.Fatalf("%d, %v: %s%s", code, err, out, errOut)
	}
	for _, step := range []struct {
		line string
		code int
		want []string // in what is printed
	}{
		{"up", 0, []string{"runs already", "HEALTH_", "\n  mainstay dev\n", "backend create lab --type ceph"}},
		{"up --osds 3", 2, []string{"--osds: the cluster in " + at + " has 1", "down --purge"}},
		{"up --osd-size 8GiB", 2, []string{"--osd-size"}},
		{"up --backend dev", 2, []string{"--backend: the cluster in " + at + " is named lab"}},
		{"status", 0, []string{"running", "of 4.0 GiB used", "osd.0", "client.rgw.r"}},
		{"down --purge", 2, []string{"Nobody is there to ask"}},
		{"down", 0, []string{"Its data stays."}},
		{"down", 0, []string{"Its data stays."}},
		{"status", 0, []string{"The cluster in " + at + " is stopped."}},
		{"status --template {{.state}}", 0, []string{"stopped"}},
		{"down --purge --yes", 0, []string{"Removed the cluster"}},
		{"down --purge --yes", 0, []string{"There is no cluster in " + at}},
		{"status -o json", 0, []string{`"state": "none"`, `"daemons": []`}},
	} {
		code, out, errOut := devCeph(t, dir, strings.Fields(step.line)...)
		for _, want := range step.want {
			if code != step.code || !strings.Contains(out+errOut, want) {
				t.Errorf("%s: exit code %d, want %d and %q:\n%s%s", step.line, code, step.code, want, out, errOut)
			}
		}
	}
	if _, err := os.Stat(at); !os.IsNotExist(err) {
		t.Errorf("the folder is left: %v", err)
	}
}

func TestDevCephChecksItsFlags(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	for line, want := range map[string]string{
		"up --osds 0":        "--osds must be between 1 and 16",
		"up --osds 17":       "--osds must be between 1 and 16",
		"up --osd-size 1GiB": "--osd-size must be at least 2GiB",
		"up --osd-size x":    "osd-size",
		"up --backend a=b":   "--backend must be letters",
		"up --backend -b":    "--backend must be letters",
		"up more":            "unexpected argument",
		"start":              `unknown command "start"`,
	} {
		if code, out, errOut := devCeph(t, dir, strings.Fields(line)...); code != 2 || !strings.Contains(errOut, want) {
			t.Errorf("%s: %d, want %q: %s%s", line, code, want, out, errOut)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("%v, %v", entries, err)
	}
}

// Where Ceph is not installed, apt-get is a program that only notes what it is asked.
func TestDevCephSaysWhatIsMissingAndInstallsItIfAsked(t *testing.T) {
	dir, bin := shortDir(t), t.TempDir()
	t.Setenv("PATH", bin)
	asked := filepath.Join(dir, "asked")
	program := "#!/bin/sh\necho \"$DEBIAN_FRONTEND $*\" >>" + asked + "\n[ \"$1\" = update ] && exit 100\nexit 0\n"
	if err := os.WriteFile(filepath.Join(bin, "apt-get"), []byte(program), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	code, out, errOut := devCeph(t, dir, "up")
	if os.Geteuid() != 0 {
		if code != 1 || !strings.Contains(errOut, "needs root") {
			t.Errorf("%d: %s%s", code, out, errOut)
		}
		return
	}
	const line = "apt-get install -y --no-install-recommends ceph-common ceph-base ceph-mon ceph-osd ceph-mgr radosgw"
	if code != 1 || !strings.Contains(errOut, "run '"+line+"', or repeat the command with --install") {
		t.Errorf("%d: %s%s", code, out, errOut)
	}
	if _, err := os.Stat(asked); !os.IsNotExist(err) {
		t.Errorf("it installs without being asked: %v", err)
	}
	code, out, errOut = devCeph(t, dir, "up", "--install")
	if code != 1 || !strings.Contains(errOut, "+ "+line+"\n") || !strings.Contains(errOut, "are still missing") {
		t.Errorf("%d: %s%s", code, out, errOut)
	}
	want := "noninteractive update\nnoninteractive " + strings.TrimPrefix(line, "apt-get ") + "\n"
	if got, err := os.ReadFile(asked); err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
}
