package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/require"
)

// smallDisk mounts a file system of 24 MiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root may mount a file system")
	}
	mkfs, mount, umount := require.Program(t, "mkfs.ext4", "e2fsprogs"), require.Program(
		t, "mount", "mount",
	), require.Program(t, "umount", "mount")
	dir := t.TempDir()
	image, point := filepath.Join(dir, "image"), filepath.Join(dir, "disk")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 24<<20); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(point, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(mkfs, "-q", "-m", "0", image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v\n%s", err, out)
	}
	if out, err := exec.Command(mount, "-o", "loop", image, point).CombinedOutput(); err != nil {
		t.Skipf("a file system cannot be mounted here: %v: %s", err, strings.TrimSpace(string(out)))
	}
	t.Cleanup(func() {
		if out, err := exec.Command(umount, point).CombinedOutput(); err != nil {
			t.Errorf("umount: %v\n%s", err, out)
		}
	})
	return point
}

// fill takes all room of a file system.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{1 << 20, 4 << 10, 1} {
		for err == nil {
			_, err = f.Write(make([]byte, size))
		}
		err = nil
	}
	if err := f.Close(); err != nil {
		t.Logf("close the ballast: %v", err)
	}
}

func TestAFullDiskRefusesEventsLosesNoneAndNeedsNoRestart(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t)
	full := make(chan struct{})
	tg := newTarget(t, func(r received) int {
		if r.EventID == "held" {
			<-full // so that its outcome has to be stored on the full disk
		}
		return http.StatusOK
	})
	answerHeld := sync.OnceFunc(func() { close(full) })
	t.Cleanup(answerHeld)
	e := startEdge(t, "--data", filepath.Join(disk, "edge"), "--allow-private-targets")
	e.route("all", tg.url+"/all")
	site, _ := e.enroll("site")
	acknowledged, refused := map[string]bool{}, map[string]bool{}
	payload := `"` + strings.Repeat("x", 32<<10) + `"`
	for i := range 5 {
		id := fmt.Sprintf("before-%d", i)
		ask(e.api(adminToken).IngestEvent(t.Context(), event(id, site, payload))).is(t, 202)
		acknowledged[id] = true
	}

	other, _ := e.enroll("other site")
	ask(e.api(adminToken).IngestEvent(t.Context(), event("held", other, "1"))).is(t, 202)
	acknowledged["held"] = true
	eventually(t, "the request is under way", func() bool { return tg.deliveries("/all")["held"] == 1 })

	ballast := filepath.Join(disk, "ballast")
	fill(t, ballast)
	// What the database's files have room for is still accepted.
	for i := 0; len(refused) < 10; i++ {
		if i == 2000 {
			t.Fatal("2,000 events of 32 KiB were accepted on a full disk of 24 MiB")
		}
		id := fmt.Sprintf("full-%d", i)
		res := ask(e.api(adminToken).IngestEvent(t.Context(), event(id, site, payload)))
		if res.err != nil {
			t.Fatalf("on a full disk: %v", res.err)
		}
		switch res.StatusCode {
		case http.StatusAccepted:
			acknowledged[id] = true
		case http.StatusInsufficientStorage:
			refused[id] = true
			if code, _, message := refusal(t, res.body); code != "storage_full" && code != "storage_failed" {
				t.Errorf("code %q: %s", code, message)
			}
		default:
			t.Fatalf("status %d on a full disk, want 507: %s", res.StatusCode, res.body)
		}
	}
	var batch []edgeapi.EventInput
	for i := range 50 {
		id := fmt.Sprintf("batch-%d", i)
		refused[id] = true
		batch = append(batch, event(id, site, payload))
	}
	ask(e.api(adminToken).IngestEvents(t.Context(), edgeapi.EventBatch{Events: batch})).is(t, 507)

	check := func(when string) {
		t.Helper()
		stored := e.events()
		if lost := missing(acknowledged, stored); len(lost) > 0 {
			t.Errorf("%s: acknowledged events that are not stored: %s", when, sample(lost))
		}
		for id := range refused {
			if stored[id] > 0 {
				t.Errorf("%s: the refused event %s is stored", when, id)
			}
		}
		e.checkAudit()
	}
	answerHeld()
	check("on the full disk")
	ask(e.api(adminToken).ListSites(t.Context(), &edgeapi.ListSitesParams{})).is(t, 200)
	res, err := browserless.Get(e.url() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("/healthz: %d on a full disk", res.StatusCode)
	}

	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	ask(e.api(adminToken).IngestEvent(t.Context(), event("after", site, payload))).is(t, 202)
	acknowledged["after"] = true
	e.drained()
	check("with room again")
	deliveries := tg.deliveries("/all")
	if lost := missing(acknowledged, deliveries); len(lost) > 0 {
		t.Errorf("acknowledged events that were not delivered: %s", sample(lost))
	}
	if more := repeated(deliveries); len(more) > 0 {
		t.Errorf("events that were delivered more than once though nothing crashed: %s", sample(more))
	}
	e.stop()
	e.start()
	check("after a restart")
	t.Logf("%d acknowledged, %d refused", len(acknowledged), len(refused))
}

func TestAServerStartsOnAFullDiskOrSaysWhyNot(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t)
	e := startEdge(t, "--data", filepath.Join(disk, "edge"))
	site, _ := e.enroll("site")
	ask(e.api(adminToken).IngestEvent(t.Context(), event("one", site, "1"))).is(t, 202)
	e.kill()
	ballast := filepath.Join(disk, "ballast")
	fill(t, ballast)
	e.launch()
	if _, ok := e.process.awaitOutput(listening); ok {
		e.ready()
		if e.events()["one"] != 1 {
			t.Error("the event is not there")
		}
		e.kill()
	} else if text := e.process.output.String(); !strings.Contains(text, "disk") && !strings.Contains(text, disk) {
		t.Errorf("the message names neither the disk nor its path: %s", text)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	e.start()
	if e.events()["one"] != 1 {
		t.Error("the event is lost")
	}
}

func TestAStartOnAFullDiskSaysSo(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t)
	ballast := filepath.Join(disk, "ballast")
	fill(t, ballast)
	for _, room := range []int64{0, 12 << 10, 64 << 10} {
		info, err := os.Stat(ballast)
		if err == nil {
			err = os.Truncate(ballast, info.Size()-room)
		}
		if err != nil {
			t.Fatal(err)
		}
		code, output := run(t, nil, "serve", "edge", "--data", filepath.Join(disk, "edge"), "--listen", "127.0.0.1:0")
		if code == 0 || !strings.Contains(output, "full") && !strings.Contains(output, "no space left") {
			t.Errorf("with %d bytes more: exit code %d, %s", room, code, output)
		}
	}
}
