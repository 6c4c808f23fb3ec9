package audit_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/kit/webhook"
)

// A process that is killed between a commit and its checkpoint leaves an older one.
func TestACheckpointThatLagsBehindIsNoBreak(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		f := open(t, d)
		f.append(2)
		f.checkpoint()
		f.append(3)
		f = f.again()
		f.whole(5)
		f.append(1)
		f.whole(6)
	})
}

func TestAMissingFileIsBegunAnewWithAWarning(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(path string) error{
		"removed":   os.Remove,
		"truncated": func(path string) error { return os.Truncate(path, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t, dbtest.SQLite(t, tables))
			if strings.Contains(f.out.String(), "WARN") {
				t.Errorf("a new log: %s", f.out)
			}
			f.append(2)
			f.checkpoint()
			if err := spoil(f.cfg.Checkpoints); err != nil {
				t.Fatal(err)
			}
			f = f.again()
			if !strings.Contains(f.out.String(), "the audit checkpoint file is missing") {
				t.Errorf("no warning: %s", f.out)
			}
			f.append(1)
			f.checkpoint()
			f.whole(3)
			if v := f.verify(); v.Checkpoints.Count != 1 || v.Checkpoints.First.Seq != 3 {
				t.Errorf("%+v", v.Checkpoints)
			}
		})
	}
}

func TestALineThatWasCutOffIsPassedOver(t *testing.T) {
	t.Parallel()
	f := open(t, dbtest.SQLite(t, tables))
	f.append(2)
	f.checkpoint()
	f.append(1)
	f.checkpoint()
	info, err := os.Stat(f.cfg.Checkpoints)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(f.cfg.Checkpoints, info.Size()-20); err != nil {
		t.Fatal(err)
	}
	f = f.again()
	f.append(1)
	f.checkpoint()
	f = f.again()
	f.whole(4)
	if v := f.verify(); v.Checkpoints.Count != 2 || v.Checkpoints.Cut != 1 || v.Checkpoints.Newest.Seq != 4 {
		t.Errorf("%+v", v.Checkpoints)
	}
}

func TestAFileThatIsRemovedUnderARunningServiceIsWrittenAgain(t *testing.T) {
	t.Parallel()
	f := open(t, dbtest.SQLite(t, tables))
	f.append(1)
	f.checkpoint()
	if err := os.Remove(f.cfg.Checkpoints); err != nil {
		t.Fatal(err)
	}
	f.append(1)
	f.checkpoint()
	if v := f.again().verify(); !v.OK || v.Checkpoints.Count != 2 {
		t.Errorf("%+v", v)
	}
}

func TestTheFileIsPrivateAndBounded(t *testing.T) {
	t.Parallel()
	var now time.Time
	f := open(t, dbtest.SQLite(t, tables), func(c *audit.Config) {
		now = time.Now().Add(-30 * 24 * time.Hour)
		c.Now = func() time.Time { return now }
	})
	for range 1500 {
		now = now.Add(25 * time.Minute)
		f.append(1)
		f.checkpoint()
	}
	text, err := os.ReadFile(f.cfg.Checkpoints)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte("\n")); n > 1300 || n < 300 {
		t.Errorf("%d lines", n)
	}
	if !strings.Contains(string(text[:300]), `"seq":1,`) {
		t.Errorf("the first checkpoint is gone: %.300s", text)
	}
	if info, err := os.Stat(f.cfg.Checkpoints); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	f.again().whole(1500)
}

func TestAFileThatCannotBeReadRefusesTheStart(t *testing.T) {
	t.Parallel()
	f := open(t, dbtest.SQLite(t, tables))
	cfg := f.cfg
	cfg.Registry, cfg.Checkpoints = nil, t.TempDir() // a folder
	if _, err := audit.Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "audit-checkpoints") {
		t.Errorf("%v", err)
	}
}

// /dev/full refuses every write, as a full disk does.
func TestAFullDiskStopsCheckpointsAndNothingElse(t *testing.T) {
	t.Parallel()
	f := open(t, dbtest.SQLite(t, tables), func(c *audit.Config) { c.Checkpoints = filepath.Join(t.TempDir(), "full") })
	if err := os.Symlink("/dev/full", f.cfg.Checkpoints); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	for range 20 {
		f.append(1)
	}
	for !strings.Contains(f.out.String(), syscall.ENOSPC.Error()) {
		time.Sleep(5 * time.Millisecond)
	}
	cancel()
	<-done
	if v := f.verify(); !v.OK || v.Entries != 20 {
		t.Errorf("%+v", v)
	}
	if n := strings.Count(f.out.String(), "audit checkpoints cannot be written"); n != 1 {
		t.Errorf("%d lines:\n%s", n, f.out)
	}
}

func TestRunWritesACheckpointAfterChangesAndWhenItEnds(t *testing.T) {
	t.Parallel()
	f := open(t, dbtest.SQLite(t, tables))
	f.append(3)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	for f.verify().Checkpoints.Newest.Seq != 3 {
		time.Sleep(5 * time.Millisecond)
	}
	f.append(2)
	cancel()
	<-done
	if v := f.again().verify(); v.Checkpoints.Newest.Seq != 5 {
		t.Errorf("%+v", v.Checkpoints)
	}
	if f.metric("audit_checkpoint_timestamp_seconds") == 0 {
		t.Error("the metric says never")
	}
}

func TestCheckpointsAreSentAsWebhooksUntilOneIsTaken(t *testing.T) {
	t.Parallel()
	text := webhook.NewSecret()
	secret, err := webhook.ParseSecret(text)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var got []string
	attempts := 0
	taken := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		attempts++
		if err := secret.Verify(r.Header, body, time.Now(), webhook.DefaultTolerance); err != nil {
			t.Error(err)
		}
		if attempts == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		got = append(got, string(body))
		if len(got) == 1 {
			close(taken)
		}
	}))
	defer server.Close()
	f := open(
		t, dbtest.SQLite(t, tables), func(c *audit.Config) { c.Send = audit.Endpoint{URL: server.URL, Secret: text} },
	)
	f.append(2)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	<-taken
	cancel()
	<-done
	mu.Lock()
	defer mu.Unlock()
	if !strings.Contains(got[0], fmt.Sprintf("%q:2", "seq")) || !strings.Contains(got[0], "signature") {
		t.Errorf("%s", got[0])
	}
}

func TestAnEndpointThatCannotBeUsedRefusesTheStart(t *testing.T) {
	t.Parallel()
	f := open(t, dbtest.SQLite(t, tables))
	for field, e := range map[string]audit.Endpoint{"audit-checkpoint-url": {URL: "ftp://x"}, "audit-checkpoint-secret": {URL: "http://x", Secret: "short"}} {
		cfg := f.cfg
		cfg.Registry, cfg.Send = nil, e
		if _, err := audit.Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
