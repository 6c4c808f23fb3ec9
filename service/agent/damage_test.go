package agent_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	agentapi "github.com/mainstay-infra/mainstay/api/agent"
	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/service/agent"
)

func hasAlert(s agentapi.Status, code string) bool {
	return slices.ContainsFunc(s.Alerts, func(a agentapi.Alert) bool { return a.Code == code })
}

func TestAnAgentWhoseDatabaseIsDamagedGoesOnAsTheSameSite(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	s := newSite(t, p.url).start()
	s.online()
	id, identity := s.status().SiteId, identityFile(t, s)
	s.stop()
	path := filepath.Join(s.cfg.Data, "agent.db")
	if err := os.WriteFile(path, bytes.Repeat([]byte("noise"), 10_000), 0o600); err != nil {
		t.Fatal(err)
	}
	s.start()
	s.send("e1")
	s.online()
	eventually(t, "the event arrived", func() bool { return slices.Equal(p.eventIDs(""), []string{"e1"}) })
	st := s.status()
	if st.SiteId != id || !hasAlert(st, "database_damaged") || len(get[[]edgeapi.Site](p, "/sites")) != 1 ||
		!bytes.Equal(identityFile(t, s), identity) {
		t.Errorf("%+v", st)
	}
	doctor := map[string]agent.Check{}
	for _, c := range agent.Diagnose(t.Context(), s.cfg, time.Now) {
		doctor[c.Name] = c
	}
	if c := doctor["database"]; c.Verdict != agent.Warning || c.Next == "" {
		t.Errorf("the doctor: %+v", doctor)
	}
	aside, err := filepath.Glob(path + ".damaged-*")
	if err != nil || len(aside) != 1 {
		t.Fatalf("%v, %v", aside, err)
	}
	if err := os.Remove(aside[0]); err != nil {
		t.Fatal(err)
	}
	if hasAlert(s.status(), "database_damaged") {
		t.Error("the alert is still there after the file was removed")
	}
}

// The file is damaged under a running agent, which cannot continue with it.
func TestAnAgentEndsWhenItsDatabaseTurnsOutToBeDamaged(t *testing.T) {
	t.Parallel()
	s := newSite(t, "http://127.0.0.1:1").start()
	for _, id := range []string{"a", "b", "c", "d"} {
		s.send(id)
	}
	s.stop()
	a, err := agent.New(
		t.Context(),
		s.cfg,
		agent.Deps{Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(), Now: time.Now},
	)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.cfg.Data, "agent.db")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, make([]byte, info.Size()), 0o600); err != nil { // the same file, now of zeroes
		t.Fatal(err)
	}
	done := make(chan error, 1)
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	go func() { done <- a.Serve(ctx, func([]string) {}) }()
	h := a.Handler()
	for i := 0; ctx.Err() == nil && len(done) == 0; i++ {
		body := strings.NewReader(`{"topic":"t","payload":1}`)
		limited, cancel := context.WithTimeout(ctx, time.Second) // it may end at this moment
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(limited, "POST", "/v1/events", body))
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(limited, "GET", "/v1/status", nil))
		cancel()
	}
	if err := <-done; !errors.Is(err, agent.ErrDamaged) {
		t.Errorf("%v", err)
	}
	_ = a.Close() // it may say that the file is damaged
	s.start()
	s.send("e")
	if !hasAlert(s.status(), "database_damaged") {
		t.Error("no alert")
	}
}

func TestAnAgentWhoseDatabaseIsMissingSaysSoUntilTheRecordOfItIsRemoved(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	for name, lose := range map[string]func(path string) error{
		"missing": os.Remove,
		"empty":   func(path string) error { return os.Truncate(path, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, p.url).start()
			s.online()
			id := s.status().SiteId
			s.stop()
			s.start()
			if hasAlert(s.status(), "database_missing") {
				t.Error("an alert although the database was there")
			}
			s.stop()
			if err := lose(filepath.Join(s.cfg.Data, "agent.db")); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			s.log = slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelError})
			for range 2 { // the alert outlives a restart
				s.start()
				if st := s.status(); st.SiteId != id || !hasAlert(st, "database_missing") {
					t.Errorf("%+v", st)
				}
				s.stop()
			}
			if !strings.Contains(log.String(), "the database was missing or empty") {
				t.Errorf("the log of errors: %s", log.String())
			}
			var found bool
			for _, c := range agent.Diagnose(t.Context(), s.cfg, time.Now) {
				found = found || c.Name == "database" && c.Verdict == agent.Warning && c.Next != ""
			}
			if !found {
				t.Error("the doctor says nothing of it")
			}
			marks, err := filepath.Glob(filepath.Join(s.cfg.Data, "agent.db.missing-*"))
			if err != nil || len(marks) != 1 {
				t.Fatalf("%v, %v", marks, err)
			}
			if err := os.Remove(marks[0]); err != nil {
				t.Fatal(err)
			}
			s.start()
			if hasAlert(s.status(), "database_missing") {
				t.Error("the alert is still there after the record was removed")
			}
		})
	}
}

func TestAnAgentThatWasNeverEnrolledMissesNoDatabase(t *testing.T) {
	t.Parallel()
	s := newSite(t, "http://127.0.0.1:1").start()
	if hasAlert(s.status(), "database_missing") {
		t.Error("a new site has an alert")
	}
}
