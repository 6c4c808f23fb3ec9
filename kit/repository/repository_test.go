package repository_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/repository"
)

func TestWhatWasBackedUpIsRestored(t *testing.T) {
	t.Parallel()
	for _, cipher := range []string{repository.XChaCha20Poly1305, repository.Plain} {
		t.Run(cipher, func(t *testing.T) {
			t.Parallel()
			r := create(t, openDir(t, filepath.Join(t.TempDir(), "r")), cipher, repository.Options{Cache: t.TempDir()})
			for _, size := range []int{0, 1, repository.MinBlockSize, repository.MinBlockSize + 1, 5<<20 + 4321} {
				content := image(size, uint64(size))
				b := backUp(t, r, repository.Info{}, content, nil)
				if got := restore(t, r, b); !bytes.Equal(got, content) {
					t.Errorf("%d bytes came back differently", size)
				}
			}
		})
	}
}

func TestIncrementalBackupsAreWholeWithoutChains(t *testing.T) {
	t.Parallel()
	r := create(t, newMemory(), "", repository.Options{})
	random := rand.New(rand.NewPCG(7, 7))
	content := image(9<<20+100, 1)
	all := []*repository.Backup{backUp(t, r, repository.Info{}, content, nil)}
	versions := [][]byte{bytes.Clone(content)}
	for range 5 {
		var changed []repository.Range
		for range 3 {
			c := repository.Range{Offset: random.Int64N(int64(len(content))), Length: random.Int64N(100 << 10)}
			c.Length = min(c.Length, int64(len(content))-c.Offset)
			for i := range content[c.Offset : c.Offset+c.Length] {
				content[c.Offset+int64(i)] = byte(random.Uint32())
			}
			changed = append(changed, c)
		}
		b := backUp(t, r, repository.Info{}, content, all[len(all)-1], changed...)
		if b.Items[0].Read >= int64(len(content))/2 {
			t.Errorf("%d bytes were read", b.Items[0].Read)
		}
		all, versions = append(all, b), append(versions, bytes.Clone(content))
	}
	// Every other one is deleted, the first among them: the others stay whole.
	for i := 0; i < len(all); i += 2 {
		if err := r.Delete(t.Context(), tenant, all[i].ID); err != nil {
			t.Fatal(err)
		}
	}
	for i := 1; i < len(all); i += 2 {
		if !bytes.Equal(restore(t, r, all[i]), versions[i]) {
			t.Errorf("version %d came back differently", i)
		}
	}
}

func TestADiskThatGrewOrShrankSinceItsParentIsWhole(t *testing.T) {
	t.Parallel()
	r := create(t, newMemory(), "", repository.Options{})
	content := image(1<<20+1000, 3)
	first := backUp(t, r, repository.Info{}, content, nil)
	for _, size := range []int{1<<20 + 50, 1 << 20, 3 << 20, 2<<20 + 7, 1<<20 + 1000} {
		now := make([]byte, size)
		if n := copy(now, content); n < size {
			copy(now[n:], image(size-n, 4))
		}
		if got := restore(t, r, backUp(t, r, repository.Info{}, now, first)); !bytes.Equal(got, now) {
			t.Errorf("a disk of %d bytes came back differently", size)
		}
	}
}

func TestOnlyRangesOfAFirstBackupAreRead(t *testing.T) {
	t.Parallel()
	r := create(t, newMemory(), "", repository.Options{})
	content := make([]byte, 4<<20)
	copy(content[1<<20:], image(100<<10, 1))
	w, err := r.Begin(t.Context(), repository.Info{Tenant: tenant}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Disk(repository.Disk{
		Name: "root", Size: 4 << 20, Reader: bytes.NewReader(content), Changed: []repository.Range{{Offset: 1 << 20, Length: 100 << 10}},
	}); err != nil {
		t.Fatal(err)
	}
	b, err := w.Commit()
	if err != nil {
		t.Fatal(err)
	}
	if read := b.Items[0].Read; read != 128<<10 {
		t.Errorf("%d bytes were read", read)
	}
	if !bytes.Equal(restore(t, r, b), content) {
		t.Error("it came back differently")
	}
}

func TestRandomAccessReadsLikeTheDisk(t *testing.T) {
	t.Parallel()
	r := create(t, newMemory(), "", repository.Options{})
	content := image(3<<20+17, 5)
	v, err := r.View(t.Context(), tenant, backUp(t, r, repository.Info{}, content, nil).ID)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	item, err := v.Item("root")
	if err != nil {
		t.Fatal(err)
	}
	random, want := rand.New(rand.NewPCG(1, 2)), bytes.NewReader(content)
	for range 300 {
		a, b, at := make([]byte, random.IntN(200<<10)), make([]byte, 0), random.Int64N(int64(len(content))+100)
		b = append(b, a...)
		n, err := item.ReadAt(a, at)
		m, wanted := want.ReadAt(b, at)
		if n != m || !bytes.Equal(a[:n], b[:m]) || errors.Is(err, io.EOF) != errors.Is(wanted, io.EOF) {
			t.Fatalf("at %d: %d bytes and %v instead of %d and %v", at, n, err, m, wanted)
		}
	}
}

func TestTheSecondBackupOfTheSameContentStoresNothing(t *testing.T) {
	t.Parallel()
	s := newMemory()
	r := create(t, s, "", repository.Options{})
	content := image(4<<20, 6)
	if first := backUp(t, r, repository.Info{}, content, nil); first.Items[0].Stored == 0 {
		t.Fatal("the first stored nothing")
	}
	packs := len(s.names("packs/"))
	second := backUp(t, r, repository.Info{}, content, nil)
	if second.Items[0].New != 0 || len(s.names("packs/")) != packs {
		t.Errorf("%d bytes were new, and there are %d packs", second.Items[0].New, len(s.names("packs/")))
	}
}

func TestNothingOfOneTenantShowsInWhatAnotherStores(t *testing.T) {
	t.Parallel()
	s := newMemory()
	r := create(t, s, "", repository.Options{})
	content := image(2<<20, 6)
	a := backUp(t, r, repository.Info{Tenant: "a"}, content, nil)
	before := s.names("")
	b := backUp(t, r, repository.Info{Tenant: "b"}, content, nil)
	if b.Items[0].New != a.Items[0].New || b.Items[0].New == 0 {
		t.Errorf("%d bytes were new for b, %d for a", b.Items[0].New, a.Items[0].New)
	}
	if bytes.Equal(a.Items[0].Segments, b.Items[0].Segments) {
		t.Error("equal contents have equal ids")
	}
	places := map[string]bool{}
	for _, name := range s.names("packs/") {
		places[strings.Split(name, "/")[1]] = true
	}
	if len(places) != 2 {
		t.Errorf("the packs are at %v", places)
	}
	for _, name := range s.names("packs/") {
		if !slices.Contains(before, name) && bytes.Contains(s.objects[name], content[:64]) {
			t.Error("content is readable")
		}
	}
	for _, call := range []error{
		r.Delete(t.Context(), "b", a.ID),
		func() error { _, err := r.Get(t.Context(), "b", a.ID); return err }(),
		func() error { _, err := r.View(t.Context(), "b", a.ID); return err }(),
		r.Protect(t.Context(), "b", a.ID, time.Now().Add(time.Hour)),
	} {
		if !fault.Is(call, fault.NotFound) {
			t.Errorf("another tenant's backup: %v", call)
		}
	}
}

func TestAnInstallationWithNothingButTheKeyFindsEverything(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "r")
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	r, err := repository.Create(t.Context(), openDir(t, path), repository.CreateOptions{Locks: []repository.Lock{
		{Passphrase: "correct horse", WorkFactor: 10}, {Recipient: identity.Recipient().String()},
	}}, repository.Options{})
	if err != nil {
		t.Fatal(err)
	}
	content, memory := image(1<<20, 1), image(600<<10, 2)
	taken := time.Unix(1700000000, 0).UTC()
	w, err := r.Begin(t.Context(), repository.Info{
		Tenant: tenant, Of: "vm-1", Name: "nightly", Type: "full", Consistency: "filesystem", Taken: taken, Config: []byte(`{"vcpus":2}`),
	}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		w.Disk(repository.Disk{Name: "root", Size: 1 << 20, Reader: bytes.NewReader(content), Whole: true}),
		w.Stream("memory", bytes.NewReader(memory)), w.Stream("empty", bytes.NewReader(nil)),
	); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	for _, key := range []repository.Key{
		{Passphrase: "correct horse"}, {Identity: identity.String()}, {Master: r.MasterKey()},
	} {
		again, err := repository.Open(t.Context(), openDir(t, path), key, repository.Options{})
		if err != nil {
			t.Fatal(err)
		}
		all, problems, err := again.ListAll(t.Context())
		if err != nil || len(all) != 1 || len(problems) != 0 {
			t.Fatalf("%v, %v, %v", all, problems, err)
		}
		b := all[0]
		if b.Tenant != tenant || b.Of != "vm-1" || b.Consistency != "filesystem" || !b.Taken.Equal(taken) || string(b.Config) != `{"vcpus":2}` {
			text, _ := json.Marshal(b)
			t.Errorf("%s", text)
		}
		if !bytes.Equal(restore(t, again, b), content) {
			t.Error("the disk came back differently")
		}
		v, err := again.View(t.Context(), tenant, b.ID)
		if err != nil {
			t.Fatal(err)
		}
		item, err := v.Item("memory")
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(io.NewSectionReader(item, 0, item.Size()))
		if err != nil || !bytes.Equal(got, memory) {
			t.Errorf("the memory came back differently: %v", err)
		}
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, key := range []repository.Key{{Passphrase: "wrong"}, {Master: make([]byte, 32)}} {
		if _, err := repository.Open(t.Context(), openDir(t, path), key, repository.Options{}); !fault.Is(err, fault.Denied) {
			t.Errorf("a wrong key: %v", err)
		}
	}
}

func TestACancelledBackupIsNotVisible(t *testing.T) {
	t.Parallel()
	s := newMemory()
	r := create(t, s, "", repository.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	w, err := r.Begin(ctx, repository.Info{Tenant: tenant}, nil, func(p repository.Progress) {
		if p.Done > 1<<20 {
			cancel()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	err = w.Disk(repository.Disk{Name: "root", Size: 8 << 20, Reader: bytes.NewReader(image(8<<20, 1)), Whole: true})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := w.Commit(); !errors.Is(err, context.Canceled) {
		t.Errorf("commit: %v", err)
	}
	if all, problems, err := r.List(t.Context(), tenant); err != nil || len(all) != 0 || len(problems) != 0 {
		t.Errorf("%v, %v, %v", all, problems, err)
	}
	if left := s.names("leases/"); len(left) != 0 {
		t.Errorf("leases are left: %v", left)
	}
}

func TestAProtectedBackupIsNotDeleted(t *testing.T) {
	t.Parallel()
	now := time.Unix(1700000000, 0)
	r := create(t, newMemory(), "", repository.Options{Now: func() time.Time { return now }})
	b := backUp(t, r, repository.Info{ProtectedUntil: now.Add(time.Hour)}, image(1000, 1), nil)
	refused := func() {
		t.Helper()
		if err := r.Delete(t.Context(), tenant, b.ID); !fault.Is(err, fault.Conflict) {
			t.Errorf("%v", err)
		}
	}
	refused()
	if err := r.Protect(t.Context(), tenant, b.ID, now.Add(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	// A shorter protection changes nothing.
	if err := r.Protect(t.Context(), tenant, b.ID, now); err != nil {
		t.Fatal(err)
	}
	now = now.Add(90 * time.Minute)
	refused()
	now = now.Add(time.Hour)
	if err := r.Delete(t.Context(), tenant, b.ID); err != nil {
		t.Error(err)
	}
	if _, err := r.Get(t.Context(), tenant, b.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("%v", err)
	}
}

// parts notes what is restored.
type parts struct {
	mu      sync.Mutex
	content []byte
	written []bool // by block
}

func (p *parts) WriteAt(b []byte, offset int64) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.written[offset/repository.MinBlockSize] = true
	return copy(p.content[offset:], b), nil
}

func TestOnlyPartsAreRestored(t *testing.T) {
	t.Parallel()
	r := create(t, newMemory(), "", repository.Options{})
	content := image(20<<20+100, 5)
	b := backUp(t, r, repository.Info{}, content, nil)
	v, err := r.View(t.Context(), tenant, b.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = v.Close() }()
	item, err := v.Item("root")
	if err != nil {
		t.Fatal(err)
	}
	got := &parts{content: make([]byte, len(content)), written: make([]bool, len(content)/repository.MinBlockSize+1)}
	var last, total int64
	if err := item.WriteTo(t.Context(), got, repository.RestoreOptions{
		WriteZeros: true,
		Only:       []repository.Range{{Offset: 5<<20 + 1, Length: 10}, {Offset: 5 << 20, Length: 1}, {Offset: 20<<20 + 50, Length: 1 << 30}},
		Progress:   func(done, of int64) { last, total = done, of },
	}); err != nil {
		t.Fatal(err)
	}
	if last != total || total == 0 || total > 8<<20+100 {
		t.Errorf("%d of %d bytes were restored", last, total)
	}
	for block, is := range got.written {
		at := int64(block) * repository.MinBlockSize
		must := at == 5<<20 || at >= 20<<20
		may := at/(4<<20) == 1 || at/(4<<20) == 5
		end := min(at+repository.MinBlockSize, int64(len(content)))
		if must && !is || is && !may || is && !bytes.Equal(got.content[at:end], content[at:end]) {
			t.Errorf("block %d: restored %v", block, is)
		}
	}
	if err := item.WriteTo(t.Context(), got, repository.RestoreOptions{Only: []repository.Range{}}); err != nil {
		t.Error(err)
	}
}
