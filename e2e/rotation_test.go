package e2e

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The server is killed in the middle of rotations, which are begun by renaming its key file.
func TestRotationsOfTheSecretKeySurviveKills(t *testing.T) {
	t.Parallel()
	tg := newTarget(t, nil)
	e := startEdge(t, "--allow-private-targets")
	e.route("takes all", tg.url+"/takes")
	site, _ := e.enroll("site")
	e.stop()
	current, previous := filepath.Join(e.data, "secret.key"), filepath.Join(e.data, "secret.key.previous")
	rename := func() {
		t.Helper()
		if err := os.Rename(current, previous); err != nil && !os.IsNotExist(err) { // not rotated yet
			t.Fatal(err)
		}
	}
	for range kills(t) {
		rename()
		e.launch()
		time.Sleep(time.Duration(rand.Int64N(int64(250 * time.Millisecond)))) // the moment of the kill
		e.kill()
	}
	rename()
	e.start()
	e.checkAudit()
	e.stop()
	if err := os.Remove(previous); err != nil {
		t.Fatal(err)
	}
	e.start()
	if !e.ingest(event("after", site, "{}")) {
		t.Error("the event is refused")
	}
	e.drained()
	if n := tg.deliveries("/takes")["after"]; n != 1 {
		t.Errorf("%d deliveries", n)
	}
	e.checkAudit()
}
