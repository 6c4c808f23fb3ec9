package repository_test

import (
	"bytes"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/repository"
)

func verify(t testing.TB, r *repository.Repository, o repository.VerifyOptions) *repository.VerifyReport {
	t.Helper()
	report, err := r.Verify(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// small is a repository that has objects of every kind.
func small(t testing.TB, cipher string) (*memory, *repository.Repository, map[repository.ID][]byte) {
	t.Helper()
	s := newMemory()
	r, err := repository.Create(t.Context(), s, repository.CreateOptions{
		BlockSize: repository.MinBlockSize, Cipher: cipher, Locks: []repository.Lock{{Passphrase: "secret", WorkFactor: 2}},
	}, repository.Options{})
	if err != nil {
		t.Fatal(err)
	}
	contents := map[repository.ID][]byte{}
	var last *repository.Backup
	for i := range 3 {
		content := image(200<<10, uint64(i))
		last = backUp(t, r, repository.Info{}, content, nil)
		contents[last.ID] = content
		if i == 0 {
			if err := r.Delete(t.Context(), tenant, last.ID); err != nil {
				t.Fatal(err)
			}
			delete(contents, last.ID)
		}
	}
	if err := r.Protect(t.Context(), tenant, last.ID, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Prune(t.Context(), repository.PruneOptions{}); err != nil {
		t.Fatal(err)
	}
	// A writer that was killed leaves its lease.
	if _, err := r.Begin(t.Context(), repository.Info{Tenant: tenant}, nil, nil); err != nil {
		t.Fatal(err)
	}
	kinds := map[string]bool{}
	for _, name := range s.names("") {
		kind, _, _ := strings.Cut(name, "/")
		kinds[kind] = true
	}
	for _, kind := range []string{"config", "keys", "packs", "index", "backups", "removed", "protect", "leases", "doomed"} {
		if !kinds[kind] {
			t.Fatalf("there is no object of %s in %v", kind, s.names(""))
		}
	}
	return s, r, contents
}

func TestAWholeRepositoryVerifies(t *testing.T) {
	t.Parallel()
	_, r, contents := small(t, "")
	var seen int64
	report := verify(t, r, repository.VerifyOptions{Full: true, Progress: func(done, total int64) { seen = done }})
	if len(report.Problems) > 0 || report.Backups != len(contents) || seen != report.Bytes || seen == 0 {
		t.Errorf("%+v, %d bytes were read", report, seen)
	}
}

// Whatever byte is changed, Verify finds it, and what it does not call damaged is restored as it was.
func TestEveryChangedByteIsFound(t *testing.T) {
	t.Parallel()
	for _, cipher := range []string{repository.XChaCha20Poly1305, repository.Plain} {
		t.Run(cipher, func(t *testing.T) {
			t.Parallel()
			s, r, contents := small(t, cipher)
			for name, content := range maps.Clone(s.objects) {
				// All of the beginning and the end, and a sample of the rest.
				step := max(1, len(content)/40)
				for at := 0; at < len(content); {
					changed := bytes.Clone(content)
					changed[at] ^= 1 << (at % 8)
					s.objects[name] = changed
					check(t, r, contents, name)
					if at < 12 || at >= len(content)-12 {
						at++
					} else {
						at = min(at+step, len(content)-12)
					}
				}
				for _, cut := range [][]byte{{}, content[:len(content)/2], content[:len(content)-1], append(bytes.Clone(content), 0)} {
					s.objects[name] = cut
					check(t, r, contents, name)
				}
				s.objects[name] = content
			}
		})
	}
}

// check verifies a damaged repository.
func check(t *testing.T, r *repository.Repository, contents map[repository.ID][]byte, name string) {
	t.Helper()
	report := verify(t, r, repository.VerifyOptions{Full: true})
	if len(report.Problems) == 0 {
		t.Fatalf("a change of %s was not found", name)
	}
	for id, content := range contents {
		got, err := tryRestore(t.Context(), r, &repository.Backup{Info: repository.Info{Tenant: tenant}, ID: id})
		switch {
		case err == nil && !bytes.Equal(got, content):
			t.Fatalf("after a change of %s, a backup came back differently", name)
		case err != nil && report.Damaged[id] == "":
			t.Fatalf("after a change of %s, Verify calls a backup whole that fails with %v", name, err)
		case err == nil && report.Damaged[id] != "":
			t.Fatalf("after a change of %s, Verify calls a backup damaged (%s) that is whole", name, report.Damaged[id])
		}
	}
}

func TestObjectsCannotStandInForEachOther(t *testing.T) {
	t.Parallel()
	s, r, contents := small(t, "")
	for _, kind := range []string{"packs/", "index/", "backups/", "removed/", "keys/"} {
		names := s.names(kind)
		for i := 1; i < len(names); i++ {
			a, b := s.objects[names[0]], s.objects[names[i]]
			s.objects[names[0]], s.objects[names[i]] = b, a
			check(t, r, contents, names[0])
			s.objects[names[0]], s.objects[names[i]] = a, b
		}
	}
}

func TestADamagedIndexIsFoundAlsoIfTheCacheHasAGoodCopy(t *testing.T) {
	t.Parallel()
	s := newMemory()
	r := create(t, s, "", repository.Options{Cache: t.TempDir()})
	backUp(t, r, repository.Info{}, image(1<<20, 1), nil)
	if report := verify(t, r, repository.VerifyOptions{}); len(report.Problems) > 0 {
		t.Fatal(report.Err())
	}
	names := s.names("index/")
	if len(names) == 0 {
		t.Fatal("there is no index")
	}
	for _, name := range names {
		content := s.objects[name]
		for what, damaged := range map[string][]byte{
			"a changed byte": append(append([]byte{}, content[:len(content)/2]...), append([]byte{content[len(content)/2] ^ 1}, content[len(content)/2+1:]...)...),
			"a cut":          content[:len(content)-1],
			"nothing":        {},
		} {
			s.objects[name] = damaged
			report := verify(t, r, repository.VerifyOptions{})
			if len(report.Problems) != 1 || report.Problems[0].Object != name || len(report.Damaged) > 0 {
				t.Errorf("%s in %s: %+v", what, name, report)
			}
		}
		s.objects[name] = content
	}
}

func TestMissingObjectsAreFound(t *testing.T) {
	t.Parallel()
	s, r, contents := small(t, "")
	report := verify(t, r, repository.VerifyOptions{})
	if len(report.Problems) > 0 {
		t.Fatal(report.Err())
	}
	found := 0
	var known []repository.ID
	for id := range contents {
		known = append(known, id)
	}
	for _, kind := range []string{"packs/", "backups/"} {
		for _, name := range s.names(kind) {
			content := s.objects[name]
			delete(s.objects, name)
			// Without reading everything, and the newest manifest by what the caller knows.
			report := verify(t, r, repository.VerifyOptions{Known: map[string][]repository.ID{tenant: known}})
			if len(report.Damaged) > 0 && len(report.Problems) > 0 {
				found++
			}
			s.objects[name] = content
		}
	}
	if found != 4 {
		t.Errorf("%d of four removed objects were found", found)
	}
}

func TestARemovedManifestIsMissedByLaterBackups(t *testing.T) {
	t.Parallel()
	s := newMemory()
	r := create(t, s, "", repository.Options{})
	first := backUp(t, r, repository.Info{}, image(1000, 1), nil)
	old := maps.Clone(s.objects)
	second := backUp(t, r, repository.Info{}, image(1000, 2), nil)
	if second.Sequence <= first.Sequence {
		t.Errorf("the sequence went from %d to %d", first.Sequence, second.Sequence)
	}
	for name := range old {
		if strings.HasPrefix(name, "backups/") {
			delete(s.objects, name)
		}
	}
	report := verify(t, r, repository.VerifyOptions{})
	if report.Damaged[first.ID] == "" {
		t.Errorf("%+v", report)
	}
	if _, problems, err := r.List(t.Context(), tenant); err != nil || len(problems) != 1 {
		t.Errorf("%v, %v", problems, err)
	}
}

func TestADeletedBackupThatIsPutBackStaysDeleted(t *testing.T) {
	t.Parallel()
	s := newMemory()
	r := create(t, s, "", repository.Options{})
	b := backUp(t, r, repository.Info{}, image(1000, 1), nil)
	name := s.names("backups/")[0]
	manifest := s.objects[name]
	if err := r.Delete(t.Context(), tenant, b.ID); err != nil {
		t.Fatal(err)
	}
	s.objects[name] = manifest
	if all, _, err := r.List(t.Context(), tenant); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := r.View(t.Context(), tenant, b.ID); err == nil {
		t.Error("it can be read")
	}
}
