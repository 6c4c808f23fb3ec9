package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/app"
	"github.com/mainstay-infra/mainstay/cli"
)

// mainstay runs a command line in a folder, and returns its exit code and what it prints.
func mainstay(ctx context.Context, t *testing.T, dir string, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	code = cli.Main(ctx, args, cli.IO{
		In: strings.NewReader(""), Out: &o, Err: &e, Dir: dir, ConfigDir: dir, Getenv: func(string) string { return "" },
	}, app.Commands()...)
	return code, o.String(), e.String()
}

// serveStorage runs the storage gateway until the test ends, and returns its URL and its data folder.
func serveStorage(t *testing.T) (url, data string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	data = t.TempDir()
	done := make(chan int, 1)
	log, to := io.Pipe()
	go func() {
		code := cli.Main(ctx, []string{"serve", "storage", "--listen", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--data", data},
			cli.IO{In: strings.NewReader(""), Out: to, Err: to, Getenv: func(string) string { return "" }}, app.Commands()...)
		_ = to.Close() // a pipe's does not fail
		done <- code
	}()
	t.Cleanup(func() {
		stop()
		if code := <-done; code != 0 {
			t.Errorf("it ended with %d", code)
		}
	})
	lines, address := bufio.NewScanner(log), regexp.MustCompile(`service=storage url=(http://\S+)`)
	for lines.Scan() {
		if m := address.FindStringSubmatch(lines.Text()); m != nil {
			go func() { _, _ = io.Copy(io.Discard, log) }() // or the service would wait for a reader
			return m[1], data
		}
	}
	t.Fatal("it did not start")
	return "", ""
}

// The steps are those of a person: each needs what the ones before it have made.
func TestTheCommandsOfStorageWorkWithTheService(t *testing.T) {
	t.Parallel()
	url, data := serveStorage(t)
	dir := t.TempDir()
	for _, step := range []struct {
		line string
		code int
		want string // in what is printed
	}{
		{"version", 0, "mainstay-storage"},
		{"health", 0, "The gateway can work."},
		{"backend discover local", 0, "local has 0 volumes: 0 are new, 0 are missing."},
		{"backend list", 0, "local   nfs"},
		{"cluster health local", 0, "STATUS"},
		{"cluster capabilities local -o json", 0, `"snapshots": true`},
		{"pool list --backend local", 0, "nfs_export"},
		{"osd list -o json", 0, "[]"},
		{"node list -q", 0, ""},
		{"policy set fast --backend local --kind block --description quick", 0, "The policy fast is set."},
		{"policy list", 0, "fast      local"},
		{"tenant set acme --volumes 1 --capacity 1MiB", 0, "The tenant acme is set."},
		{"volume create data --size 1MiB --policy fast", 0, "Made the volume data of 1.0 MiB."},
		{"volume create data --size 1MiB --policy fast", 0, "Made the volume data of 1.0 MiB."},
		{"volume create data --size 2MiB --policy fast", 1, "there is a volume named data already"},
		{"volume create data --size 2MiB --tenant acme", 4, "hint: 'mainstay storage tenant list' shows the quotas"},
		{"volume create data --size 1MiB --tenant acme", 0, "Made the volume data of 1.0 MiB."},
		{"tenant list", 0, "acme   1 of 1    1.0 MiB of 1.0 MiB"},
		{"volume show data", 2, "several volumes match data"},
		{"volume list --tenant acme --template {{.name}}/{{.state}}", 0, "data/available\n"},
		{"volume create other --size 1MiB", 0, "Made the volume other of 1.0 MiB."},
		{"volume expand other --size 3MiB", 0, "The volume other has 3.0 MiB."},
		{"volume expand other --size 1MiB", 1, "must be larger than the volume"},
		{"snapshot create other --name before", 0, "Took the snapshot before of other."},
		{"volume snapshots other -o name", 0, "before\n"},
		{"snapshot clone before copy --size 4MiB", 0, "Made the volume copy of 4.0 MiB."},
		{"snapshot restore before --name again", 0, "Restored to the volume again of 3.0 MiB."},
		{"snapshot delete before --yes", 1, "volumes were made of the snapshot"},
		{"snapshot delete before --force --yes", 0, "Deleted the snapshot before."},
		{"volume create soon --size 1MiB --no-wait -o json", 0, `"kind": "volume.create"`},
		{"volume delete copy --yes", 0, "Deleted the volume copy."},
		{"volume show copy", 3, "there is no volume copy"},
		{"job list --kind volume.delete", 0, "volume.delete   succeeded   100%"},
		{"backend cordon local", 0, "Nothing new is made in local."},
		{"volume create late --size 1MiB", 5, "backend uncordon BACKEND"},
		{"backend uncordon local", 0, "Volumes are made in local again."},
		{"backend create missing --type nfs", 1, "the setting directories has no entry missing"},
		{"policy delete fast --yes", 0, "Deleted the policy fast."},
		{"bucket create logs", 1, "no backend has buckets"},
		{"bucket create logs", 1, "'mainstay storage backend list' shows what the backends can do"},
		{"bucket list -o json", 0, "[]"},
		{"bucket keys logs --data " + data, 1, "there is no bucket logs"},
		{"bucket keys logs --data " + dir, 1, "is this the data folder of the service?"},
		{"bucket keys", 2, "accepts 1 arg"},
		{"tenant delete acme --yes", 1, "the tenant has 1 volumes"},
		{"audit list --action volume.delete", 0, "anonymous   volume.delete"},
		{"audit verify", 0, "Whole"},
	} {
		args := append([]string{"storage", "--server", url}, strings.Fields(step.line)...)
		code, out, errOut := mainstay(t.Context(), t, dir, args...)
		if code != step.code || !strings.Contains(out+errOut, step.want) {
			t.Errorf("%s: exit code %d, want %d and %q:\n%s%s", step.line, code, step.code, step.want, out, errOut)
		}
	}
	_, id, _ := mainstay(t.Context(), t, dir, "storage", "--server", url, "job", "list", "-q", "--limit", "1")
	for _, verb := range []string{"show", "wait", "watch"} {
		code, out, errOut := mainstay(t.Context(), t, dir, "storage", "--server", url, "job", verb, strings.TrimSpace(id))
		if code != 0 || !strings.Contains(out, "succeeded") {
			t.Errorf("job %s: exit code %d: %s%s", verb, code, out, errOut)
		}
	}
	if code, _, errOut := mainstay(
		t.Context(), t, dir, "storage", "--server", url, "job", "cancel", strings.TrimSpace(id),
	); code != 1 || !strings.Contains(errOut, "CONFLICT") {
		t.Errorf("a job that has ended is canceled: %d %s", code, errOut)
	}
}
