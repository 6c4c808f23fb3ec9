package repository_test

import (
	"bytes"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/repository"
)

var (
	mendLock = repository.Lock{Passphrase: "a passphrase", WorkFactor: 10}
	mendKey  = repository.Key{Passphrase: "a passphrase"}
)

// mendable returns a repository with one backup, and its store.
func mendable(t *testing.T) (*repository.Repository, *memory, *repository.Backup) {
	t.Helper()
	m := newMemory()
	r, err := repository.Create(t.Context(), m, repository.CreateOptions{
		BlockSize: repository.MinBlockSize, Locks: []repository.Lock{mendLock},
	}, repository.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r, m, backUp(t, r, repository.Info{}, image(1<<20, 1), nil)
}

func TestWhatOpensARepositoryIsMissedAndWrittenAgain(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(m *memory, key string){
		"no config":    func(m *memory, _ string) { delete(m.objects, "config") },
		"an empty one": func(m *memory, _ string) { m.objects["config"] = nil },
		"a changed one": func(m *memory, _ string) {
			m.objects["config"] = bytes.Replace(m.objects["config"], []byte("65536"), []byte("131072"), 1)
		},
		"a page of HTML": func(m *memory, _ string) { m.objects["config"] = []byte("<html>\nabc") },
		"a huge one":     func(m *memory, _ string) { m.objects["config"] = make([]byte, 1<<20) },
		"no key":         func(m *memory, key string) { delete(m.objects, key) },
		"an empty key":   func(m *memory, key string) { m.objects[key] = nil },
		"neither":        func(m *memory, key string) { delete(m.objects, key); delete(m.objects, "config") },
	} {
		r, m, b := mendable(t)
		if err := r.Check(t.Context(), mendKey); err != nil {
			t.Fatalf("%s: before: %v", name, err)
		}
		if mended, err := r.Mend(t.Context(), mendKey, mendLock); mended || err != nil {
			t.Errorf("%s: mended what was whole: %v", name, err)
		}
		harm(m, m.names("keys/")[0])
		if err := r.Check(t.Context(), mendKey); err == nil || fault.Is(err, fault.Unavailable) {
			t.Errorf("%s: not missed: %v", name, err)
		}
		if _, err := repository.Open(t.Context(), m, mendKey, repository.Options{}); fault.From(err).PublicCode() == "repository_not_found" {
			t.Errorf("%s: it is taken for an empty store", name)
		}
		if mended, err := r.Mend(t.Context(), mendKey, mendLock); !mended || err != nil {
			t.Errorf("%s: not mended: %v", name, err)
		}
		again, err := repository.Open(t.Context(), m, mendKey, repository.Options{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !bytes.Equal(restore(t, again, b), image(1<<20, 1)) {
			t.Errorf("%s: it came back differently", name)
		}
	}
}

func TestNoRepositoryIsMadeOverBackupsWhoseConfigIsLost(t *testing.T) {
	t.Parallel()
	_, m, _ := mendable(t)
	delete(m.objects, "config")
	_, err := repository.Create(t.Context(), m, repository.CreateOptions{Locks: []repository.Lock{mendLock}}, repository.Options{})
	if fault.From(err).PublicCode() != "backup_damaged" || m.objects["config"] != nil || len(m.names("keys/")) != 1 {
		t.Errorf("%v, %q, %v", err, m.objects["config"], m.names("keys/"))
	}
}

func TestAnotherRepositoryIsNotReplaced(t *testing.T) {
	t.Parallel()
	r, m, _ := mendable(t)
	_, other, _ := mendable(t)
	for _, name := range append(other.names("keys/"), "config") {
		m.objects[name] = other.objects[name]
	}
	theirs := bytes.Clone(m.objects["config"])
	if mended, err := r.Mend(t.Context(), mendKey, mendLock); mended || err == nil || !bytes.Equal(m.objects["config"], theirs) {
		t.Errorf("mended %v, %v", mended, err)
	}
}

// Create puts its key before the config: who is killed between the two leaves a key of another master key.
func TestAKeyThatAnotherAttemptHasLeftIsPassedOver(t *testing.T) {
	t.Parallel()
	_, m, b := mendable(t)
	_, other, _ := mendable(t)
	for range 8 { // whatever their order
		_, more, _ := mendable(t)
		for _, name := range append(more.names("keys/"), other.names("keys/")...) {
			content := more.objects[name]
			if content == nil {
				content = other.objects[name]
			}
			m.objects[name] = content
		}
	}
	r, err := repository.Open(t.Context(), m, mendKey, repository.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(restore(t, r, b), image(1<<20, 1)) {
		t.Error("it came back differently")
	}
}
