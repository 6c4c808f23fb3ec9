package ota

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/service/agent/store"
	rules "github.com/mainstay-infra/mainstay/service/edge/ota"
)

func TestEveryMoveIsOneThatTheControlPlaneAllows(t *testing.T) {
	t.Parallel()
	phases := []Phase{Pending, Downloading, Downloaded, Installing, Rebooting, Verifying, RollingBack}
	for _, from := range phases {
		for o := Done; o <= Installed; o++ {
			to := Next(from, o)
			if to == from || !rules.CanMove(rules.State(from), rules.State(to)) {
				t.Errorf("from %s with outcome %d to %s", from, o, to)
			}
		}
	}
	r := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // a fixed seed: every run tries the same
	for range 1000 {
		steps, p := 0, Pending
		for ; !p.Terminal(); steps++ {
			if p = Next(p, Outcome(r.IntN(5))); steps > 10 {
				t.Fatal("an update that does not end")
			}
		}
		if !rules.State(p).Terminal() {
			t.Fatalf("%s is not an end for the control plane", p)
		}
	}
	for _, end := range []Phase{Succeeded, Rejected, AlreadyInstalled, Failed, RolledBack, Stopped} {
		if Next(end, Done) != end {
			t.Errorf("%s is left", end)
		}
	}
}

// site is a manager on a folder, which can be stopped like a process and started
// again, with a hook that is a shell script.
type site struct {
	*Manager
	t        testing.TB
	dir      string
	db       *store.DB
	firmware string
	change   func(*Config)
	stop     func()
}

// newSite's hook notes its calls in the file calls and then runs script.
func newSite(t testing.TB, script string, change func(*Config)) *site {
	t.Helper()
	s := &site{t: t, dir: t.TempDir(), change: change}
	hook := "#!/bin/sh\necho \"$1 $MAINSTAY_DEVICE $MAINSTAY_OTA_VERSION\" >>" + s.path("calls") + "\n" + script + "\n"
	if err := os.WriteFile(s.path("hook"), []byte(hook), 0o700); err != nil { //nolint:gosec // it is a program
		t.Fatal(err)
	}
	var err error
	if s.db, err = store.Open(t.Context(), s.dir); err != nil {
		t.Fatal(err)
	}
	s.start()
	t.Cleanup(func() {
		s.stop()
		if err := s.db.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *site) path(name string) string { return filepath.Join(s.dir, name) }

func (s *site) start() {
	s.t.Helper()
	cfg := Config{
		DB:              s.db,
		Folder:          s.path("ota"),
		Hook:            s.path("hook"),
		MaxSize:         1 << 20,
		Parallel:        2,
		HookTimeout:     time.Minute,
		RebootWait:      time.Hour,
		DownloadTimeout: time.Hour,
		Client:          &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
		Log:             slog.New(slog.DiscardHandler),
		Now:             time.Now,
		Rand:            func() float64 { return 0 },
		Firmware:        func(context.Context, string) (string, error) { return s.firmware, nil },
	}
	if s.change != nil {
		s.change(&cfg)
	}
	var err error
	if s.Manager, err = New(cfg); err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { s.Run(ctx) })
	s.stop = sync.OnceFunc(func() { cancel(); work.Wait() })
}

// want is a request for the artifact at url.
func (s *site) want(device, request, url string, content []byte) Wanted {
	sum := sha256.Sum256(content)
	return Wanted{
		DeviceID: device,
		State:    Pending,
		Request: &Request{
			RequestID: request,
			Version:   "2.0",
			URL:       url,
			SHA256:    hex.EncodeToString(sum[:]),
			Size:      int64(len(content)),
		},
	}
}

func (s *site) ask(w Wanted) {
	s.t.Helper()
	if err := s.Want(s.t.Context(), w); err != nil {
		s.t.Fatal(err)
	}
}

// told takes reports, as the control plane would, until a request has ended there,
// and returns their states without repetitions.
func (s *site) told(request string) (states []Phase, message string) {
	s.t.Helper()
	state := rules.Pending
	for {
		r, err := s.NextReport(s.t.Context())
		if err != nil {
			s.t.Fatal(err)
		}
		if r == nil {
			select {
			case <-s.Reported():
				continue
			case <-time.After(time.Minute):
				s.t.Fatalf("no end of %s: %v", request, states)
			}
		}
		if r.RequestID == request {
			changed, err := rules.Check(r.RequestID, rules.State(r.State), request, state)
			if err != nil {
				s.t.Fatalf("the control plane would refuse %+v: %v", *r, err)
			}
			if state = rules.State(r.State); changed {
				states = append(states, r.State)
			}
		}
		if err := s.Told(s.t.Context(), r, false); err != nil {
			s.t.Fatal(err)
		}
		if r.RequestID == request && r.State.Terminal() {
			return states, r.Message
		}
	}
}

func (s *site) calls() []string {
	s.t.Helper()
	text, err := os.ReadFile(s.path("calls"))
	if err != nil && !os.IsNotExist(err) {
		s.t.Fatal(err)
	}
	return strings.Fields(strings.ReplaceAll(string(text), " ", "/"))
}

// checkEmpty waits until nothing is left of artifacts.
func (s *site) checkEmpty() {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		entries, err := os.ReadDir(s.path("ota"))
		if err != nil {
			s.t.Fatal(err)
		}
		if len(entries) == 0 {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%s is left", entries[0].Name())
		}
	}
}

func artifacts(t testing.TB, content []byte) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"one"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}))
	t.Cleanup(server.Close)
	return server
}

var smooth = []Phase{Downloading, Downloaded, Installing, Verifying, Succeeded}

func TestAnUpdateIsDownloadedInstalledAndVerified(t *testing.T) {
	t.Parallel()
	content := []byte("firmware")
	s := newSite(t, `cmp -s "$MAINSTAY_OTA_FILE" `+"$(dirname $0)/want"+` || exit 1; echo " all is  well"; echo`, nil)
	if err := os.WriteFile(s.path("want"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	s.ask(s.want("pump", "r1", artifacts(t, content).URL, content))
	states, message := s.told("r1")
	if !slices.Equal(states, smooth) || message != "all is  well" {
		t.Errorf("%v %q", states, message)
	}
	if got := s.calls(); !slices.Equal(got, []string{"install/pump/2.0", "verify/pump/2.0"}) {
		t.Errorf("calls %v", got)
	}
	s.checkEmpty()
}

func TestFailuresEndAsTheRulesSay(t *testing.T) {
	t.Parallel()
	content := []byte("firmware")
	server := artifacts(t, content)
	for name, c := range map[string]struct {
		script  string
		change  func(*Config)
		adapt   func(*Wanted)
		want    []Phase
		message string
	}{
		"install fails":   {`[ $1 = rollback ] || { echo no room; exit 3; }`, nil, nil, []Phase{Downloading, Downloaded, Installing, RollingBack, RolledBack}, "install failed: no room"},
		"verify fails":    {`[ $1 = verify ] && exit 1; exit 0`, nil, nil, []Phase{Downloading, Downloaded, Installing, Verifying, RollingBack, RolledBack}, "verify failed: exit status 1"},
		"rollback fails":  {`[ $1 = install ] && exit 0; echo $1 broke; exit 10`, nil, nil, []Phase{Downloading, Downloaded, Installing, Verifying, RollingBack, Failed}, "verify broke; rollback: rollback broke"},
		"hook hangs":      {`[ $1 = install ] && sleep 600; exit 0`, func(c *Config) { c.HookTimeout = 300 * time.Millisecond }, nil, []Phase{Downloading, Downloaded, Installing, RollingBack, RolledBack}, "install did not end within 300ms:"},
		"hook is missing": {`exit 0`, func(c *Config) { c.Hook += "-not" }, nil, []Phase{Downloading, Downloaded, Installing, RollingBack, Failed}, "install could not be started"},
		"no hook":         {`exit 0`, func(c *Config) { c.Hook = "" }, nil, []Phase{Rejected}, "--ota-hook"},
		"too large":       {`exit 0`, func(c *Config) { c.MaxSize = 3 }, nil, []Phase{Rejected}, "--ota-max-size"},
		"larger than it should be": {`exit 0`, func(c *Config) { c.MaxSize = 3 }, func(w *Wanted) { w.Request.Size = 0 },
			[]Phase{Downloading, Failed}, "--ota-max-size"},
		"other size":        {`exit 0`, nil, func(w *Wanted) { w.Request.Size = 3 }, []Phase{Downloading, Failed}, "not the 3 that were announced"},
		"other content":     {`exit 0`, nil, func(w *Wanted) { w.Request.SHA256 = strings.Repeat("0", 64) }, []Phase{Downloading, Failed}, "SHA-256"},
		"not there":         {`exit 0`, nil, func(w *Wanted) { w.Request.URL += "/missing" }, []Phase{Downloading, Failed}, "404"},
		"already installed": {`exit 0`, nil, func(w *Wanted) { w.Request.Version = "1.0" }, []Phase{AlreadyInstalled}, "1.0"},
		"forced": {`exit 0`, nil, func(w *Wanted) { w.Request.Version, w.Request.Force = "1.0", true },
			smooth, ""},
		"data folder lost": {`exit 0`, nil, func(w *Wanted) { w.State = Installing }, []Phase{Failed}, "lost"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, c.script, c.change)
			s.firmware = "1.0"
			w := s.want("pump", "r1", server.URL, content)
			if name == "not there" {
				missing := httptest.NewServer(http.NotFoundHandler())
				t.Cleanup(missing.Close)
				w.Request.URL = missing.URL
			} else if c.adapt != nil {
				c.adapt(&w)
			}
			s.ask(w)
			states, message := s.told("r1")
			if !slices.Equal(states, c.want) || !strings.Contains(message, c.message) {
				t.Errorf("%v %q", states, message)
			}
			s.checkEmpty()
		})
	}
}

func TestADeviceThatRebootsIsVerifiedWhenTheAgentStartsAgain(t *testing.T) {
	t.Parallel()
	content := []byte("firmware")
	s := newSite(t, `[ $1 = install ] && exit 10; exit 0`, nil) // RebootWait is an hour
	s.ask(s.want("pump", "r1", artifacts(t, content).URL, content))
	for phase := Pending; phase != Rebooting; {
		u, _, err := s.load(t.Context(), s.db, "pump")
		if err != nil || u.Phase.Terminal() {
			t.Fatalf("%+v, %v", u, err)
		}
		if phase = u.Phase; phase != Rebooting {
			<-s.Reported()
		}
	}
	s.stop()
	s.start()
	states, _ := s.told("r1")
	if want := []Phase{
		Downloading, Downloaded, Installing, Rebooting, Verifying, Succeeded,
	}; !slices.Equal(states, want) {
		t.Errorf("%v", states)
	}
}

func TestADownloadGoesOnWhereItBrokeOff(t *testing.T) {
	t.Parallel()
	content := bytes.Repeat([]byte("0123456789abcdef"), 8<<10)
	for name, change := range map[string]bool{"same artifact": false, "the artifact changed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var ranges []string
			var sent int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				ranges = append(ranges, r.Header.Get("Range"))
				body, tag := content, `"one"`
				if change && len(ranges) == 1 {
					body, tag = bytes.Repeat([]byte("x"), len(content)), `"old"`
				}
				w.Header().Set("ETag", tag)
				if len(ranges) < 4 {
					http.ServeContent(&breaking{w, len(content) / 4, &sent}, r, "", time.Time{}, bytes.NewReader(body))
					panic(http.ErrAbortHandler)
				}
				http.ServeContent(&breaking{w, 1 << 30, &sent}, r, "", time.Time{}, bytes.NewReader(body))
			}))
			t.Cleanup(server.Close)
			s := newSite(t, "exit 0", nil)
			s.ask(s.want("pump", "r1", server.URL, content))
			if states, message := s.told("r1"); !slices.Equal(states, smooth) {
				t.Errorf("%v %q", states, message)
			}
			if ranges[0] != "" || ranges[1] == "" || len(ranges) < 4 {
				t.Errorf("asked for %q", ranges)
			}
			if limit := int64(len(content)) + 4<<10; !change && sent > limit {
				t.Errorf("%d bytes were sent for an artifact of %d", sent, len(content))
			}
		})
	}
}

func TestWhyADownloadIsTriedAgainIsToldWithoutTheSecretsOfItsURL(t *testing.T) {
	t.Parallel()
	content := []byte("firmware")
	for name, c := range map[string]struct {
		fail http.HandlerFunc
		why  string
	}{
		"server error": {
			func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
			"the server answered 500",
		},
		"no connection": {
			func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, ": EOF",
		},
		"redirect loop": {
			func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "http://hunter:hunter2@"+r.Host+"/hunter3?token=hunter4", http.StatusFound)
			}, "stopped after 10 redirects",
		},
		"bad redirect": {
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", `http://hunter:hunter2/3@x/" ?token=hunter4`)
				w.WriteHeader(http.StatusFound)
			}, "failed to parse Location header",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mended atomic.Bool
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !mended.Load() {
					c.fail(w, r)
					return
				}
				_, _ = w.Write(content) // a client that left
			}))
			t.Cleanup(server.Close)
			s := newSite(t, "exit 0", nil)
			s.ask(s.want(
				"pump", "r1", strings.Replace(server.URL, "//", "//hunter:hunter2@", 1)+"/f?token=hunter4", content,
			))
			var r *Report
			for r == nil || r.Message == "" {
				select {
				case <-s.Reported():
				case <-time.After(time.Minute):
					t.Fatal("no reason is reported")
				}
				var err error
				if r, err = s.NextReport(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			listed, err := s.List(t.Context(), "", 1)
			if err != nil {
				t.Fatal(err)
			}
			for _, message := range []string{r.Message, listed[0].Message} {
				if !strings.Contains(message, c.why) || strings.Contains(message, "hunter") || r.State != Downloading {
					t.Errorf("%s: %q", r.State, message)
				}
			}
			mended.Store(true)
			if states, message := s.told("r1"); !slices.Equal(states, smooth) || message != "" {
				t.Errorf("%v %q", states, message)
			}
		})
	}
}

// breaking lets through so many bytes.
type breaking struct {
	http.ResponseWriter
	left int
	sent *int64
}

func (b *breaking) Write(p []byte) (int, error) {
	n := min(len(p), b.left)
	b.left -= n
	*b.sent += int64(n)
	if _, err := b.ResponseWriter.Write(p[:n]); err != nil {
		return 0, err
	}
	b.ResponseWriter.(http.Flusher).Flush()
	if n < len(p) {
		return n, http.ErrAbortHandler
	}
	return n, nil
}

func TestAnArtifactIsDownloadedOnceForAllDevices(t *testing.T) {
	t.Parallel()
	content := []byte("firmware")
	var downloads atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		downloads.Add(1)
		_, _ = w.Write(content) // a client that left
	}))
	t.Cleanup(server.Close)
	s := newSite(t, "exit 0", nil)
	s.stop() // so that all are known before the first begins
	const devices = 6
	for i := range devices {
		s.ask(s.want(fmt.Sprintf("d%d", i), fmt.Sprintf("r%d", i), server.URL, content))
	}
	s.start()
	ended := map[string]bool{}
	for len(ended) < devices {
		r, err := s.NextReport(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if r == nil {
			<-s.Reported()
			continue
		}
		if r.State.Terminal() {
			ended[r.DeviceID] = r.State == Succeeded
		}
		if err := s.Told(t.Context(), r, false); err != nil {
			t.Fatal(err)
		}
	}
	if n := downloads.Load(); n != 1 {
		t.Errorf("%d downloads", n)
	}
	s.checkEmpty()
}

func TestANewerRequestStopsTheOlderOneAndNothingMoreIsToldOfIt(t *testing.T) {
	t.Parallel()
	content := []byte("firmware")
	server := artifacts(t, content)
	s := newSite(
		t,
		`[ $MAINSTAY_OTA_REQUEST = old ] && [ $1 = install ] && { echo $$ >$(dirname $0)/began; sleep 600; }; exit 0`,
		nil,
	)
	s.ask(s.want("pump", "old", server.URL, content))
	for {
		if _, err := os.Stat(s.path("began")); err == nil {
			break
		}
		time.Sleep(time.Millisecond) // the hook is another process
	}
	s.ask(s.want("pump", "new", server.URL, content))
	if r, err := s.NextReport(t.Context()); err != nil || r != nil && r.RequestID == "old" {
		t.Errorf("%+v, %v", r, err)
	}
	if states, _ := s.told("new"); !slices.Equal(states, smooth) {
		t.Errorf("%v", states)
	}
	s.ask(s.want("other", "r", server.URL, content))
	s.ask(Wanted{DeviceID: "other"}) // the request was taken back
	u, _, err := s.load(t.Context(), s.db, "other")
	if err != nil || u.Phase != Stopped && !u.Phase.Terminal() {
		t.Errorf("%+v, %v", u, err)
	}
	if err := s.Retain(t.Context(), map[string]bool{"pump": true}); err != nil {
		t.Fatal(err)
	}
	if _, known, err := s.load(t.Context(), s.db, "other"); known || err != nil {
		t.Errorf("a device that is gone has an update: %v", err)
	}
	s.checkEmpty()
}

func TestAControlPlaneThatWillHearNoMoreOfAnUpdateStopsIt(t *testing.T) {
	t.Parallel()
	content := []byte("firmware")
	s := newSite(t, `sleep 600`, nil)
	s.ask(s.want("pump", "r1", artifacts(t, content).URL, content))
	for {
		r, err := s.NextReport(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if r == nil {
			<-s.Reported()
			continue
		}
		if err := s.Told(t.Context(), r, r.State == Installing); err != nil {
			t.Fatal(err)
		}
		if r.State == Installing {
			break
		}
	}
	u, _, err := s.load(t.Context(), s.db, "pump")
	if r, reportErr := s.NextReport(t.Context()); err != nil || reportErr != nil || r != nil || u.Phase != Stopped {
		t.Errorf("%+v %+v %v %v", u, r, err, reportErr)
	}
	s.checkEmpty()
}

// A process that dies leaves the phase that it was in. Whatever phase that is, the
// next process brings the update to its end, and the control plane hears of no
// illegal move.
func TestWhereverTheAgentIsStoppedTheUpdateComesToItsEnd(t *testing.T) {
	t.Parallel()
	content := bytes.Repeat([]byte("firmware"), 1000)
	server := artifacts(t, content)
	for _, bad := range []bool{false, true} {
		script, want := `sleep 0.02; exit 0`, Succeeded
		if bad {
			script, want = `sleep 0.02; [ $1 = verify ] && exit 1; exit 0`, RolledBack
		}
		for delay := range 12 {
			t.Run(fmt.Sprintf("%s after %d", want, delay), func(t *testing.T) {
				t.Parallel()
				s := newSite(t, script, nil)
				s.ask(s.want("pump", "r1", server.URL, content))
				for range 3 {
					time.Sleep(time.Duration(delay) * 8 * time.Millisecond) // the moment of the stop
					s.stop()
					s.start()
				}
				states, message := s.told("r1")
				if last := states[len(states)-1]; last != want {
					t.Errorf("%v %q", states, message)
				}
				u, _, err := s.load(t.Context(), s.db, "pump")
				if err != nil || u.Phase != want {
					t.Errorf("%+v, %v", u, err)
				}
				s.checkEmpty()
			})
		}
	}
}

func TestMessagesAreOneLineThatTheControlPlaneTakes(t *testing.T) {
	t.Parallel()
	out := &tail{}
	for range 1000 {
		_, _ = out.Write([]byte("noise\n")) // never fails
	}
	_, _ = out.Write([]byte("the end\x00\x1b[31m \xff" + strings.Repeat("é", 2000) + "\n\n"))
	message := clean(out.lastLine())
	if len(message) > maxMessage || strings.ContainsAny(message, "\x00\x1b\n") ||
		strings.ToValidUTF8(message, "") != message {
		t.Errorf("%q", message)
	}
	if len(out.text) > outputTail {
		t.Errorf("%d bytes are kept", len(out.text))
	}
}

func FuzzParseTwin(f *testing.F) {
	f.Add(
		[]byte(`{"ota":{"request_id":"r","version":"1","url":"http://a/b","sha256":"`+strings.Repeat("A", 64)+`"}}`),
		[]byte(`{"ota":{"request_id":"r","state":"installing"}}`),
	)
	f.Add([]byte(`{}`), []byte(`{}`))
	f.Add([]byte(`{"ota":null}`), []byte(`null`))
	f.Add([]byte(`{"ota":{"size":-1}}`), []byte(`[]`))
	f.Fuzz(func(t *testing.T, desired, reported []byte) {
		w, err := ParseTwin("d", json.RawMessage(desired), json.RawMessage(reported))
		if w.Request == nil {
			return
		}
		if err != nil || w.State.Terminal() || len(w.Request.SHA256) != 64 ||
			strings.ContainsAny(w.Request.SHA256, "/.") ||
			w.Request.Size < 0 {
			t.Errorf("%+v, %v", *w.Request, err)
		}
	})
}
