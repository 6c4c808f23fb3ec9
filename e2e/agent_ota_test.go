package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	agentapi "github.com/mainstay-infra/mainstay/api/agent"
	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
)

// The agent is killed once in every phase that can be seen from outside: the
// artifact's server stops in the middle, and the hook, until a file says continue.
func TestAnUpdateOfADeviceSurvivesAKillInEveryPhase(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		hook   string // after it was let through
		phases []string
		want   edgeapi.OTAState
	}{
		{"good", `exit 0`, []string{"downloading", "installing", "verifying"}, edgeapi.OTAStateSucceeded},
		{"reboots", `[ $1 = install ] && exit 10; exit 0`, []string{"downloading", "installing", "rebooting", "verifying"}, edgeapi.OTAStateSucceeded},
		{"bad", `[ $1 = verify ] && { echo no pressure; exit 1; }; exit 0`, []string{"downloading", "installing", "verifying", "rolling_back"}, edgeapi.OTAStateRolledBack},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			content := bytes.Repeat([]byte("firmware"), 64<<10)
			sum := sha256.Sum256(content)
			var stopAt atomic.Int64
			stopAt.Store(int64(len(content) / 2))
			var ranges, sent atomic.Int64
			artifacts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Range") != "" {
					ranges.Add(1)
				}
				w.Header().Set("ETag", `"v2"`)
				http.ServeContent(&stopping{w, r, &stopAt, &sent}, r, "", time.Time{}, bytes.NewReader(content))
			}))
			t.Cleanup(artifacts.Close)

			dir := t.TempDir()
			hook := filepath.Join(dir, "hook")
			script := fmt.Sprintf(
				"#!/bin/sh\ncd %s\necho $1 >>calls\n: >in-$1\nwhile [ ! -e go-$1 ]; do sleep 0.01; done\n[ \"$(sha256sum <\"$MAINSTAY_OTA_FILE\")\" = \"%s  -\" ] || exit 99\n%s\n",
				dir, hex.EncodeToString(sum[:]), c.hook,
			)
			if err := os.WriteFile(hook, []byte(script), 0o700); err != nil { //nolint:gosec // it is a program
				t.Fatal(err)
			}
			letThrough := func(verb string) {
				if err := os.WriteFile(filepath.Join(dir, "go-"+verb), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			isIn := func(verb string) bool {
				_, err := os.Stat(filepath.Join(dir, "in-"+verb))
				return err == nil
			}

			e := startEdge(t, "--heartbeat-interval", "1s")
			a := startAgent(t, e.url(), "--ota-hook", hook, "--ota-reboot-wait", "1h")
			ask(a.api.RegisterDevice(t.Context(), "pump-1", agentapi.DeviceInput{})).is(t, 202)
			eventually(t, "the device is known", func() bool { return len(list[edgeapi.Device](e, "/devices")) == 1 })
			ask(
				e.api(adminToken).RequestOTA(
					t.Context(), "pump-1",
					edgeapi.OTAInput{Version: "2.0", Url: artifacts.URL + "/fw", Sha256: hex.EncodeToString(sum[:])},
				),
			).is(t, 200)

			at := func(phase string) bool {
				s := a.status()
				return s != nil && len(s.Updates) == 1 && s.Updates[0].State == phase
			}
			verbs := map[string]string{"installing": "install", "verifying": "verify", "rolling_back": "rollback"}
			for _, phase := range c.phases {
				eventually(t, phase, func() bool {
					return at(phase) && (phase != "downloading" || sent.Load() >= stopAt.Load()) &&
						(verbs[phase] == "" || isIn(verbs[phase]))
				})
				if phase == "downloading" {
					eventually(t, "half of the artifact is there", func() bool {
						info, err := os.Stat(filepath.Join(a.data, "ota", hex.EncodeToString(sum[:])+".part"))
						return err == nil && info.Size() > int64(len(content)/4)
					})
				}
				a.kill()
				stopAt.Store(int64(len(content)))
				if verb := verbs[phase]; verb != "" {
					letThrough(verb)
				}
				a.launch()
			}
			ota := func() edgeapi.OTAStatus {
				return got[edgeapi.OTA](e.api(adminToken).GetOTA(t.Context(), "pump-1")).is(t, 200).Status
			}
			eventually(t, "the control plane knows the end", func() bool { return ota().State == c.want })
			if c.name == "bad" && !strings.Contains(ota().Message, "no pressure") {
				t.Errorf("message %q", ota().Message)
			}
			if n := strings.Count(a.output(), "to="+string(c.want)); n != 1 {
				t.Errorf("the update came to its end %d times", n)
			}
			if ranges.Load() == 0 {
				t.Error("the download began anew after the kill")
			}
			eventually(t, "nothing is left of the artifact", func() bool {
				left, err := os.ReadDir(filepath.Join(a.data, "ota"))
				return err == nil && len(left) == 0
			})
		})
	}
}

// stopping sends up to a number of bytes and then nothing, until the client leaves.
type stopping struct {
	http.ResponseWriter
	r          *http.Request
	stop, sent *atomic.Int64
}

func (s *stopping) Write(p []byte) (int, error) {
	if s.sent.Load() >= s.stop.Load() && s.r.Header.Get("Range") == "" {
		_ = http.NewResponseController(s.ResponseWriter).Flush() // what was sent is to arrive
		<-s.r.Context().Done()
		return 0, s.r.Context().Err()
	}
	n, err := s.ResponseWriter.Write(p)
	s.sent.Add(int64(n))
	return n, err
}
