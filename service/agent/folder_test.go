package agent_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	agentapi "github.com/mainstay-infra/mainstay/api/agent"
	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/rest"
	"github.com/mainstay-infra/mainstay/service/agent"
)

func TestAnAgentDoesNotStartOnADataFolderWithForeignFilesInPlaceOfItsOwn(t *testing.T) {
	t.Parallel()
	link := func(to string) func(string) error {
		return func(path string) error { return os.Symlink(to, path) }
	}
	pipe := func(path string) error { return syscall.Mkfifo(path, 0o600) }
	folder := func(path string) error { return os.Mkdir(path, 0o700) }
	file := func(path string) error { return os.WriteFile(path, []byte("precious"), 0o600) }
	target := t.TempDir()
	precious := filepath.Join(target, "precious.json")
	if err := file(precious); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		file string
		make func(path string) error
		is   string
	}{
		"artifacts elsewhere":     {"ota", link(target), "a symbolic link"},
		"twins elsewhere":         {"twins", link(target), "a symbolic link"},
		"reserve elsewhere":       {"reserve", link(precious), "a symbolic link"},
		"database elsewhere":      {"agent.db", link(filepath.Join(target, "new")), "a symbolic link"},
		"identity is a pipe":      {"identity.json", pipe, "a named pipe"},
		"reserve is a pipe":       {"reserve", pipe, "a named pipe"},
		"reserve is a folder":     {"reserve", folder, "a folder"},
		"artifacts are a file":    {"ota", file, "a regular file"},
		"the socket is not one":   {"agent.sock", file, "a regular file"},
		"a link to nothing":       {"identity.json", link("nothing"), "a symbolic link"},
		"the room of an identity": {"identity.json.room", folder, "a folder"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, "http://127.0.0.1:1")
			path := filepath.Join(s.cfg.Data, c.file)
			if err := c.make(path); err != nil {
				t.Fatal(err)
			}
			_, err := agent.New(
				t.Context(), s.cfg,
				agent.Deps{Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(), Now: time.Now},
			)
			f := fault.From(err)
			if f == nil || f.Field != "data" || !strings.Contains(f.Message, path+" is "+c.is) {
				t.Errorf("the start: %v", err)
			}
			checks := agent.Diagnose(t.Context(), s.cfg, time.Now)
			if last := checks[len(checks)-1]; last.Name != "data folder" || last.Verdict != agent.Problem {
				t.Errorf("the doctor: %+v", checks)
			}
			if left, err := os.ReadDir(s.cfg.Data); err != nil || len(left) != 1 {
				t.Errorf("the folder was changed: %v, %v", left, err)
			}
			if text, err := os.ReadFile(precious); err != nil || string(text) != "precious" {
				t.Errorf("a file elsewhere was changed: %q, %v", text, err)
			}
		})
	}
}

func TestTheDataFolderItselfMayBeALink(t *testing.T) {
	t.Parallel()
	s := newSite(t, "http://127.0.0.1:1")
	link := filepath.Join(t.TempDir(), "data")
	if err := os.Symlink(s.cfg.Data, link); err != nil {
		t.Fatal(err)
	}
	s.cfg.Data = link
	s.start().send("e")
	s.stop()
	s.start() // on what it has made itself
}

func TestAHookFindsTheArtifactEvenIfTheDataFolderIsARelativePath(t *testing.T) {
	t.Parallel()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	hook := filepath.Join(t.TempDir(), "hook")
	script := `#!/bin/sh
case $MAINSTAY_OTA_FILE in
/*) test "$(cat "$MAINSTAY_OTA_FILE")" = firmware ;;
*) echo "$MAINSTAY_OTA_FILE is relative"; exit 1 ;;
esac
`
	if err := os.WriteFile(hook, []byte(script), 0o700); err != nil { //nolint:gosec // it is a program
		t.Fatal(err)
	}
	artifacts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "firmware") // a client that left
	}))
	t.Cleanup(artifacts.Close)
	p := newPlane(t)
	s := newSite(t, p.url, func(c *agent.Config) { c.OTAHook = hook })
	if s.cfg.Data, err = filepath.Rel(here, s.cfg.Data); err != nil {
		t.Fatal(err)
	}
	s.start().online()
	if _, err := rest.Read(s.local.RegisterDevice(t.Context(), "pump", agentapi.DeviceInput{})); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the device is known", func() bool { return len(get[[]edgeapi.Twin](p, "/twins")) == 1 })
	call[any](p, http.MethodPost, "/devices/pump/ota", map[string]any{
		"version": "2", "url": artifacts.URL, "sha256": fmt.Sprintf("%x", sha256.Sum256([]byte("firmware"))),
	})
	var status edgeapi.OTAStatus
	eventually(t, "the update ends", func() bool {
		status = get[edgeapi.OTA](p, "/devices/pump/ota").Status
		return status.State == edgeapi.OTAStateSucceeded || status.State == edgeapi.OTAStateFailed ||
			status.State == edgeapi.OTAStateRolledBack
	})
	if status.State != edgeapi.OTAStateSucceeded {
		t.Errorf("%+v", status)
	}
}
