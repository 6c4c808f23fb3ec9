package keyring_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/keyring"
)

// sealing is the schema of a service that seals values: each one is bound to its thing.
var sealing = dbtest.Migrations{
	"keyring": keyring.Migrations(),
	"things": fstest.MapFS{"0001_things.sql": {Data: []byte(
		"-- +goose Up\nCREATE TABLE things (thing TEXT NOT NULL, copy BIGINT NOT NULL, secret TEXT NOT NULL);\n",
	)}},
}

var (
	keyA = strings.Repeat("a", 32)
	keyB = strings.Repeat("b", 32)
	keyC = strings.Repeat("c", 32)
)

// service is a service that seals values.
type service struct {
	t                             *testing.T
	db                            *db.DB
	keys                          *keyring.Keys
	sealer                        *auth.Sealer
	rotated, resealed, unreadable int
}

var errCrash = errors.New("the process is killed")

// open starts the service as far as its keys, without Settle.
func open(t *testing.T, d *db.DB, cfg keyring.Config) (*service, error) {
	t.Helper()
	keys, err := keyring.SecretKeys(t.Context(), d, cfg)
	if err != nil {
		return nil, err
	}
	s := &service{t: t, db: d, keys: keys}
	s.sealer, err = auth.NewSealer(keys.Current, "things", keys.Accepted...)
	return s, err
}

// settle renews what is stale. If crash is set, the transaction fails after that.
func (s *service) settle(crash bool) error {
	ctx := context.Background()
	return s.keys.Settle(ctx, s.db, s.renewer(crash))
}

func (s *service) renewer(crash bool) keyring.Renewer {
	ctx := context.Background()
	return func(tx *db.Tx, rotated bool) (unreadable int, err error) {
		s.rotated, s.resealed, s.unreadable = 0, 0, 0
		if rotated {
			s.rotated = 1
		}
		if s.resealed, s.unreadable, err = keyring.Reseal(ctx, tx, s.sealer, "things", "thing"); err == nil && crash {
			err = errCrash
		}
		return s.unreadable, err
	}
}

// run starts the service.
func run(t *testing.T, d *db.DB, cfg keyring.Config) *service {
	t.Helper()
	s, err := open(t, d, cfg)
	if err == nil {
		err = s.settle(false)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// refused fails the test unless the service does not start, with this code.
func refused(t *testing.T, d *db.DB, cfg keyring.Config, code string) {
	t.Helper()
	s, err := open(t, d, cfg)
	if err == nil {
		err = s.settle(false)
	}
	if f := fault.From(err); err == nil || f.Code != code || !strings.Contains(err.Error(), "--replace-lost-keys") {
		t.Errorf("want %s, got %v", code, err)
	}
}

func (s *service) store(thing, sealed string) {
	s.t.Helper()
	if err := s.db.Update(context.Background(), func(tx *db.Tx) error {
		_, err := tx.Exec(context.Background(), "INSERT INTO things (thing, copy, secret) VALUES (?, 1, ?)", thing, sealed)
		return err
	}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *service) seal(thing string) {
	s.t.Helper()
	s.store(thing, s.sealer.Seal([]byte("secret of "+thing), thing))
}

// reads fails the test unless everything opens but for the given number of values.
func (s *service) reads(want, damaged int) {
	s.t.Helper()
	var all []struct{ Thing, Secret string }
	if err := s.db.Select(context.Background(), &all, "SELECT thing, secret FROM things WHERE secret <> ''"); err != nil {
		s.t.Fatal(err)
	}
	opened := 0
	for _, v := range all {
		if got, err := s.sealer.Open(v.Secret, v.Thing); err == nil && string(got) == "secret of "+v.Thing {
			opened++
		}
	}
	if opened != want || len(all)-opened != damaged {
		s.t.Errorf("%d of %d values open; want %d, and %d that do not", opened, len(all), want, damaged)
	}
}

func configured(t *testing.T, current, accepted string) keyring.Config {
	cfg := config(t, t.TempDir())
	cfg.Configured, cfg.Accepted = current, accepted
	return cfg
}

func TestARotationLeavesNothingThatNeedsTheOldKey(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, sealing, func(t *testing.T, d *db.DB) {
		s := run(t, d, configured(t, keyA, ""))
		for _, thing := range []string{"one", "two", "three"} {
			s.seal(thing)
		}
		s.store("none", "")
		s.store("two", s.sealer.Seal([]byte("secret of two"), "two"))
		lost, err := auth.NewSealer([]byte(keyC), "things")
		if err != nil {
			t.Fatal(err)
		}
		s.store("four", lost.Seal([]byte("secret of four"), "four"))

		refused(t, d, configured(t, keyB, ""), "wrong_secret_key")
		refused(t, d, configured(t, keyB, keyC), "wrong_secret_key")
		s = run(t, d, configured(t, keyB, keyA))
		if s.rotated != 1 || s.resealed != 4 || s.unreadable != 1 || s.keys.Replaced {
			t.Errorf("%+v", s)
		}
		s = run(t, d, configured(t, keyB, ""))
		s.reads(4, 1)
		if s.rotated != 0 || s.resealed != 0 {
			t.Errorf("a start after it: %+v", s)
		}
		refused(t, d, configured(t, keyA, ""), "wrong_secret_key")
		run(t, d, configured(t, keyC, keyB))
		run(t, d, configured(t, keyC, "")).reads(5, 0)
	})
}

func TestARotationWinsOverDeclaringTheKeyLost(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t, sealing)
	run(t, d, configured(t, keyA, "")).seal("one")
	cfg := configured(t, keyB, keyA)
	cfg.Replace = true
	if s := run(t, d, cfg); s.rotated != 1 || s.keys.Replaced {
		t.Errorf("%+v", s)
	}
	run(t, d, configured(t, keyB, "")).reads(1, 0)
}

func TestARotationThatFailsLeavesEverythingAsItWas(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, sealing, func(t *testing.T, d *db.DB) {
		run(t, d, configured(t, keyA, "")).seal("one")
		s, err := open(t, d, configured(t, keyB, keyA))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.settle(true); !errors.Is(err, errCrash) {
			t.Fatal(err)
		}
		run(t, d, configured(t, keyA, "")).reads(1, 0)
		run(t, d, configured(t, keyB, keyA))
		run(t, d, configured(t, keyB, "")).reads(1, 0)
	})
}

// Replicas get the next key as an accepted one first, one after the other.
func TestReplicasRotateWithoutOneThatFails(t *testing.T) {
	t.Parallel()
	url := dbtest.PostgresURL(t)
	replica := func() *db.DB { return dbtest.Open(t, db.Config{URL: url, Schema: "test"}, sealing) }
	d1, d2 := replica(), replica()
	run(t, d1, configured(t, keyA, "")).seal("by the old key")

	one, two := run(t, d1, configured(t, keyA, keyB)), run(t, d2, configured(t, keyA, keyB))
	if one.rotated+two.rotated != 0 {
		t.Error("the next key is in use already")
	}
	one = run(t, d1, configured(t, keyB, keyA))
	if one.rotated != 1 || one.resealed != 1 {
		t.Errorf("%+v", one)
	}
	one.seal("by the new key")
	two.seal("by the old key, later")
	one.reads(3, 0)
	two.reads(3, 0)

	if err := two.keys.Renew(t.Context(), d2, two.renewer(false)); err != nil || two.resealed != 0 {
		t.Errorf("a replica with the old key has sealed %d values with it, %v", two.resealed, err)
	}
	if err := one.keys.Renew(t.Context(), d1, one.renewer(false)); err != nil || one.resealed != 1 || one.rotated != 0 {
		t.Errorf("%+v, %v", one, err)
	}
	run(t, d1, configured(t, keyB, "")).reads(3, 0) // if the other one never comes back
	two.reads(3, 0)

	two = run(t, d2, configured(t, keyA, keyB)) // it crashed, and starts with its old settings
	if two.rotated != 0 || string(two.keys.Current) != keyB {
		t.Errorf("a replica rotated back: %+v", two)
	}
	two.reads(3, 0)
	two = run(t, d2, configured(t, keyB, keyA))
	if two.rotated != 0 {
		t.Errorf("%+v", two)
	}
	run(t, d1, configured(t, keyB, "")).reads(3, 0)
	run(t, d2, configured(t, keyB, "")).reads(3, 0)
}

func TestReplicasThatRotateAtOnceRotateOnce(t *testing.T) {
	t.Parallel()
	url := dbtest.PostgresURL(t)
	var replicas []*service
	run(t, dbtest.Open(t, db.Config{URL: url, Schema: "test"}, sealing), configured(t, keyA, "")).seal("one")
	for range 3 {
		s, err := open(t, dbtest.Open(t, db.Config{URL: url, Schema: "test"}, sealing), configured(t, keyB, keyA))
		if err != nil {
			t.Fatal(err)
		}
		replicas = append(replicas, s)
	}
	late, err := open(t, replicas[0].db, configured(t, keyA, keyB))
	if err != nil {
		t.Fatal(err)
	}
	third, err := open(t, replicas[0].db, configured(t, keyC, keyA))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	for _, s := range replicas {
		go func() { ended <- s.settle(false) }()
	}
	rotated := 0
	for range replicas {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	for _, s := range replicas {
		rotated += s.rotated
	}
	if rotated != 1 {
		t.Errorf("they rotated %d times", rotated)
	}
	if err := late.settle(false); err != nil || late.resealed != 0 {
		t.Errorf("a replica with the old key sealed with it again: %v, %+v", err, late)
	}
	if err := third.settle(false); fault.From(err).Code != "wrong_secret_key" {
		t.Errorf("a replica that rotates to a third key: %v", err)
	}
	run(t, replicas[0].db, configured(t, keyB, "")).reads(1, 0)
}

// files is a service that keeps its keys in files.
type files struct {
	t   *testing.T
	db  *db.DB
	cfg keyring.Config
}

func newFiles(t *testing.T, d *db.DB) *files {
	f := &files{t, d, config(t, t.TempDir())}
	run(t, d, f.cfg).seal("one")
	return f
}

func (f *files) path(name string) string { return filepath.Join(f.cfg.Data, name) }

func (f *files) move(from, to string) {
	f.t.Helper()
	if err := os.Rename(f.path(from), f.path(to)); err != nil {
		f.t.Fatal(err)
	}
}

func (f *files) content(name string) string {
	f.t.Helper()
	text, err := os.ReadFile(f.path(name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		f.t.Fatal(err)
	}
	return string(text)
}

func (f *files) run() *service { f.t.Helper(); return run(f.t, f.db, f.cfg) }

func TestRenamingTheKeyFileRotates(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, sealing, func(t *testing.T, d *db.DB) {
		f := newFiles(t, d)
		for range 3 {
			before := f.content("secret.key")
			f.move("secret.key", "secret.key.previous")
			s := f.run()
			if s.rotated != 1 || s.resealed != 1 || f.content("secret.key") == before || f.content("secret.key") == "" {
				t.Errorf("%+v, %q", s, f.content("secret.key"))
			}
			if s := f.run(); s.rotated != 0 {
				t.Errorf("a start after it: %+v", s)
			}
		}
		for _, name := range []string{"secret.key", "secret.key.new"} {
			if info, err := os.Stat(f.path(name)); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, %v", name, info, err)
			}
		}
		for _, name := range []string{"secret.key.previous", "secret.key.new"} {
			if err := os.Remove(f.path(name)); err != nil {
				t.Fatal(err)
			}
		}
		f.run().reads(1, 0)
	})
}

// Whatever is renamed, mistyped or interrupted, the key of the database stays in some file, and the
// service starts with it or says what is missing.
func TestNoMistakeInARotationOfFilesLosesTheKey(t *testing.T) {
	t.Parallel()
	interrupted := func(f *files) { // before the commit
		f.t.Helper()
		s, err := open(f.t, f.db, f.cfg)
		if err != nil {
			f.t.Fatal(err)
		}
		if err := s.settle(true); !errors.Is(err, errCrash) {
			f.t.Fatal(err)
		}
	}
	for name, test := range map[string]func(f *files){
		"the new name is mistyped": func(f *files) {
			f.move("secret.key", "secret.key.prevoius")
			refused(f.t, f.db, f.cfg, "secret_key_missing")
			f.move("secret.key.prevoius", "secret.key.previous")
		},
		"interrupted before the commit": func(f *files) {
			f.move("secret.key", "secret.key.previous")
			interrupted(f)
			made := f.content("secret.key.new")
			interrupted(f)
			if f.content("secret.key") != "" || made == "" || f.content("secret.key.new") != made {
				f.t.Error("a second key was made, or used before the commit")
			}
		},
		"interrupted and taken back": func(f *files) {
			f.move("secret.key", "secret.key.previous")
			interrupted(f)
			f.move("secret.key.previous", "secret.key")
			if s := f.run(); s.rotated != 0 {
				f.t.Errorf("%+v", s)
			}
			f.move("secret.key", "secret.key.previous")
		},
		"interrupted after the commit": func(f *files) {
			f.move("secret.key", "secret.key.previous")
			f.run()
			if err := os.Remove(f.path("secret.key")); err != nil {
				f.t.Fatal(err)
			}
		},
		"the old file is moved back over the new one": func(f *files) {
			f.move("secret.key", "secret.key.previous")
			f.run()
			f.move("secret.key.previous", "secret.key")
			if s := f.run(); s.rotated != 0 {
				f.t.Errorf("it rotated back: %+v", s)
			}
			f.move("secret.key.new", "secret.key")
		},
		"the key of another database is renamed": func(f *files) {
			f.move("secret.key", "mine")
			if err := os.WriteFile(f.path("secret.key.previous"), []byte(strings.Repeat("ab", 32)), 0o600); err != nil {
				f.t.Fatal(err)
			}
			refused(f.t, f.db, f.cfg, "wrong_secret_key")
			f.move("mine", "secret.key.previous")
		},
		"another service's key takes its place": func(f *files) {
			f.move("secret.key", "secret.key.previous")
			f.run()
			f.move("secret.key", "mine")
			if err := os.WriteFile(f.path("secret.key"), []byte(strings.Repeat("ab", 32)), 0o600); err != nil {
				f.t.Fatal(err)
			}
			refused(f.t, f.db, f.cfg, "wrong_secret_key")
			f.move("mine", "secret.key")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFiles(t, dbtest.SQLite(t, sealing))
			test(f)
			f.run().reads(1, 0)
			if f.content("secret.key") == "" {
				t.Error("there is no secret.key")
			}
			f.run()
			f.move("secret.key", "secret.key.previous")
			if s := f.run(); s.rotated != 1 {
				t.Errorf("the next rotation: %+v", s)
			}
			f.run().reads(1, 0)
		})
	}
}

func TestTheLogReportsSecretsThatNoConfiguredKeyOpens(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t, sealing)
	run(t, d, configured(t, keyA, "")).seal("one")
	late := run(t, d, configured(t, keyA, keyB))
	run(t, d, configured(t, keyB, keyA))
	late.seal("late")
	var out bytes.Buffer
	cfg := configured(t, keyB, "")
	cfg.Log = slog.New(slog.NewTextHandler(&out, nil))
	run(t, d, cfg).reads(1, 1)
	if log := out.String(); !strings.Contains(log, "secrets=1") || !strings.Contains(log, "accepted-secret-key") {
		t.Errorf("%s", log)
	}
	run(t, d, configured(t, keyB, keyA)).reads(2, 0) // as the log says
	out.Reset()
	if run(t, d, cfg).reads(2, 0); out.Len() > 0 {
		t.Errorf("%s", out.String())
	}
}

func TestTheLogRemindsOfAKeyThatIsAcceptedForNothing(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t, sealing)
	const reminder = "is still accepted"
	start := func(current, accepted string) string {
		t.Helper()
		var out bytes.Buffer
		cfg := configured(t, current, accepted)
		cfg.Log = slog.New(slog.NewTextHandler(&out, nil))
		run(t, d, cfg)
		return out.String()
	}
	for _, step := range []struct {
		current, accepted string
		reminds           bool
	}{{keyA, "", false}, {keyA, keyB, false}, {keyB, keyA, false}, {keyB, keyA, true}, {keyB, "", false}} {
		if out := start(step.current, step.accepted); strings.Contains(out, reminder) != step.reminds {
			t.Errorf("%+v: %s", step, out)
		}
	}
}

func TestAKeyMovesFromTheFileToTheSetting(t *testing.T) {
	t.Parallel()
	f := newFiles(t, dbtest.SQLite(t, sealing))
	f.cfg.Configured = keyA
	refused(t, f.db, f.cfg, "wrong_secret_key")
	f.move("secret.key", "secret.key.previous")
	if s := f.run(); s.rotated != 1 || !bytes.Equal(s.keys.Current, []byte(keyA)) {
		t.Errorf("%+v", s)
	}
	if f.content("secret.key") != "" {
		t.Error("a file was made for a key that is configured")
	}
	run(t, f.db, configured(t, keyA, "")).reads(1, 0)

	f.cfg.Configured, f.cfg.Accepted = "", keyA // the setting is gone
	if err := os.Remove(f.path("secret.key.previous")); err != nil {
		t.Fatal(err)
	}
	refused(t, f.db, f.cfg, "secret_key_missing")
}
