package twin_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/agent/store"
	"github.com/mainstay-infra/mainstay/service/agent/twin"
)

func open(t *testing.T, dir string) (*twin.Store, func()) {
	t.Helper()
	d, err := store.Open(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := twin.Open(context.Background(), d, filepath.Join(dir, "twins"))
	if err != nil {
		t.Fatal(err)
	}
	return s, func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestFileNamesAreSafeAndDistinctForAnyDevice(t *testing.T) {
	t.Parallel()
	names := map[string]string{}
	long := strings.Repeat(":", 128)
	for _, device := range []string{"pump-1", "Pump_2.x", "a:b", "a%3Ab", "../../etc/passwd", ".", "..", ".hidden", "a/b", "é", "a\x00b", "CON", long, long[:127] + "a"} {
		name := twin.FileName(device)
		if strings.ContainsAny(name, "/\\\x00:") || strings.HasPrefix(name, ".") || len(name) > 255 ||
			filepath.Base(name) != name {
			t.Errorf("%q becomes %q", device, name)
		}
		if other, taken := names[name]; taken {
			t.Errorf("%q and %q share %q", device, other, name)
		}
		names[name] = device
	}
}

func TestWhatWaitsIsSentUntilItIsAnsweredAndNoPatchIsLostInBetween(t *testing.T) {
	t.Parallel()
	dir, ctx := t.TempDir(), t.Context()
	s, done := open(t, dir)
	must(t, s.Register(ctx, "pump", twin.Registration{Model: "A"}), s.Patch(ctx, "pump", json.RawMessage(`{"a":1}`)))
	if p, err := s.NextPatch(ctx, ""); p != nil || err != nil {
		t.Errorf("a patch is sent before the device is registered: %+v %v", p, err)
	}
	done()
	s, done = open(t, dir)
	defer func() { done() }()
	reg, err := s.NextRegistration(ctx, "")
	if err != nil || reg == nil || reg.Model != "A" {
		t.Fatalf("%+v, %v", reg, err)
	}
	// It changes while it is under way.
	must(t, s.Register(ctx, "pump", twin.Registration{Model: "B"}), s.Registered(ctx, reg, ""))
	if reg, err = s.NextRegistration(ctx, ""); err != nil || reg == nil || reg.Model != "B" {
		t.Fatalf("%+v, %v", reg, err)
	}
	must(t, s.Registered(ctx, reg, ""))
	first, err := s.NextPatch(ctx, "")
	if err != nil || first == nil || first.Patch != `{"a":1}` {
		t.Fatalf("%+v, %v", first, err)
	}
	must(t, s.Patch(ctx, "pump", json.RawMessage(`{"b":2}`)), s.Patched(ctx, first, json.RawMessage(`{"a":1}`), 1))
	second, err := s.NextPatch(ctx, "")
	if err != nil || second == nil || second.Patch != `{"a":1,"b":2}` {
		t.Fatalf("%+v, %v", second, err)
	}
	must(t, s.Patched(ctx, second, json.RawMessage(`{"a":1,"b":2}`), 2))
	tw, err := s.Get(ctx, "pump")
	if err != nil || tw.Pending || tw.ReportedVersion != 2 || string(tw.Reported) != `{"a":1,"b":2}` {
		t.Errorf("%+v, %v", tw, err)
	}
}

func TestFilesFollowTheTwinsAlsoAfterACrash(t *testing.T) {
	t.Parallel()
	dir, ctx := t.TempDir(), t.Context()
	s, done := open(t, dir)
	page := []twin.Pulled{
		{DeviceID: "a", Desired: json.RawMessage(`{"x":1}`), Reported: json.RawMessage(`{}`), DesiredVersion: 1},
		{DeviceID: "b", Desired: json.RawMessage(`{}`), Reported: json.RawMessage(`{}`)},
	}
	must(t, s.Pull(ctx, page), s.Register(ctx, "new", twin.Registration{}))
	folder := filepath.Join(dir, "twins")
	files := func() string {
		entries, err := os.ReadDir(folder)
		must(t, err)
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return strings.Join(names, " ")
	}
	if got := files(); got != "a.json b.json new.json" {
		t.Errorf("%s", got)
	}
	must(t, s.Retain(ctx, map[string]bool{"a": true})) // new is not registered there yet
	if got := files(); got != "a.json new.json" {
		t.Errorf("%s", got)
	}
	if _, err := s.Get(ctx, "b"); !fault.Is(err, fault.NotFound) {
		t.Errorf("%v", err)
	}
	done()
	// What a crash can leave: an old file, one of a device that is gone, half of one.
	must(
		t, os.WriteFile(filepath.Join(folder, "a.json"), []byte("old"), 0o600),
		os.WriteFile(filepath.Join(folder, "gone.json"), nil, 0o600),
		os.WriteFile(filepath.Join(folder, ".tmp-1"), nil, 0o600),
	)
	_, done = open(t, dir)
	defer done()
	text, err := os.ReadFile(filepath.Join(folder, "a.json"))
	if got := files(); err != nil || got != "a.json new.json" || !strings.Contains(string(text), `"x": 1`) {
		t.Errorf("%s %s %v", got, text, err)
	}
}
