package repository_test

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/repository"
	"github.com/mainstay-infra/mainstay/kit/repository/store"
	"github.com/mainstay-infra/mainstay/kit/repository/store/dir"
)

// memory is a store in memory. hook, unless nil, is called before each operation and may fail it.
type memory struct {
	lock    sync.Mutex
	objects map[string][]byte
	hook    func(operation, name string) error
}

func newMemory() *memory { return &memory{objects: map[string][]byte{}} }

func (m *memory) begin(operation, name string) error {
	if m.hook != nil {
		return m.hook(operation, name)
	}
	return nil
}

func (m *memory) Put(ctx context.Context, name string, content []byte) error {
	if err := m.begin("put", name); err != nil {
		return err
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if _, has := m.objects[name]; has {
		return fs.ErrExist
	}
	m.objects[name] = bytes.Clone(content)
	return store.CheckName(name)
}

func (m *memory) get(name string) ([]byte, error) {
	m.lock.Lock()
	defer m.lock.Unlock()
	content, has := m.objects[name]
	if !has {
		return nil, fs.ErrNotExist
	}
	return content, nil
}

func (m *memory) Get(_ context.Context, name string, limit int64) ([]byte, error) {
	if err := m.begin("get", name); err != nil {
		return nil, err
	}
	content, err := m.get(name)
	if int64(len(content)) > limit {
		return nil, fault.New(fault.TooLarge, "too large")
	}
	return bytes.Clone(content), err
}

func (m *memory) GetRange(_ context.Context, name string, offset int64, p []byte) error {
	if err := m.begin("get", name); err != nil {
		return err
	}
	content, err := m.get(name)
	if err == nil && offset+int64(len(p)) > int64(len(content)) {
		return fault.New(fault.Invalid, "too short")
	}
	if err == nil {
		copy(p, content[offset:])
	}
	return err
}

func (m *memory) List(_ context.Context, prefix string) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		if err := m.begin("list", prefix); err != nil {
			yield(store.Info{}, err)
			return
		}
		m.lock.Lock()
		var found []store.Info
		for _, name := range slices.Sorted(maps.Keys(m.objects)) {
			if strings.HasPrefix(name, prefix) {
				found = append(found, store.Info{Name: name, Size: int64(len(m.objects[name]))})
			}
		}
		m.lock.Unlock()
		for _, info := range found {
			if !yield(info, nil) {
				return
			}
		}
	}
}

func (m *memory) Delete(_ context.Context, name string) error {
	if err := m.begin("delete", name); err != nil {
		return err
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	delete(m.objects, name)
	return nil
}

func (m *memory) Stat(_ context.Context, name string) (store.Info, error) {
	if err := m.begin("stat", name); err != nil {
		return store.Info{}, err
	}
	content, err := m.get(name)
	return store.Info{Name: name, Size: int64(len(content))}, err
}

// names returns the names of objects that begin with a prefix, sorted.
func (m *memory) names(prefix string) (names []string) {
	for info, _ := range m.List(context.Background(), prefix) { // it does not fail
		names = append(names, info.Name)
	}
	return names
}

// size returns how many bytes the objects have whose names begin with a prefix.
func (m *memory) size(prefix string) (sum int64) {
	for info, _ := range m.List(context.Background(), prefix) { // it does not fail
		sum += info.Size
	}
	return sum
}

func openDir(t testing.TB, path string) *dir.Dir {
	t.Helper()
	d, err := dir.Open(path, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// create makes a repository with small blocks.
func create(t testing.TB, s store.Store, cipher string, o repository.Options) *repository.Repository {
	t.Helper()
	r, err := repository.Create(t.Context(), s, repository.CreateOptions{BlockSize: repository.MinBlockSize, Cipher: cipher}, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// image returns bytes like those of a disk: zeros, text and noise, each different by seed.
func image(size int, seed uint64) []byte {
	b, random := make([]byte, size), rand.New(rand.NewPCG(seed, 1))
	for at := 0; at < size; {
		n := min(size-at, 1+random.IntN(200<<10))
		part := b[at : at+n]
		switch random.IntN(3) {
		case 0:
		case 1:
			for i := range part {
				part[i] = "the quick brown fox "[(i+n)%20]
			}
		default:
			for i := range part {
				part[i] = byte(random.Uint32())
			}
		}
		at += n
	}
	return b
}

const tenant = "tenant-a"

// backUp backs one disk up, the whole of it or what changed since a parent.
func backUp(t testing.TB, r *repository.Repository, info repository.Info, content []byte, parent *repository.Backup, changed ...repository.Range) *repository.Backup {
	t.Helper()
	b, err := tryBackUp(t.Context(), r, info, content, parent, changed...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func tryBackUp(ctx context.Context, r *repository.Repository, info repository.Info, content []byte, parent *repository.Backup, changed ...repository.Range) (*repository.Backup, error) {
	if info.Tenant == "" {
		info.Tenant = tenant
	}
	var from *repository.ID
	if parent != nil {
		from = &parent.ID
	}
	w, err := r.Begin(ctx, info, from, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = w.Abort() }()
	err = w.Disk(repository.Disk{
		Name: "root", Size: int64(len(content)), Reader: bytes.NewReader(content), Whole: parent == nil, Changed: changed,
	})
	if err != nil {
		return nil, err
	}
	return w.Commit()
}

// target is a disk in memory.
type target struct {
	lock sync.Mutex
	b    []byte
}

func (w *target) WriteAt(p []byte, offset int64) (int, error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	return copy(w.b[offset:], p), nil
}

func restore(t testing.TB, r *repository.Repository, b *repository.Backup) []byte {
	t.Helper()
	content, err := tryRestore(t.Context(), r, b)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func tryRestore(ctx context.Context, r *repository.Repository, b *repository.Backup) ([]byte, error) {
	v, err := r.View(ctx, b.Tenant, b.ID)
	if err != nil {
		return nil, err
	}
	defer v.Close()
	item, err := v.Item("root")
	if err != nil {
		return nil, err
	}
	w := &target{b: make([]byte, item.Size())}
	return w.b, item.WriteTo(ctx, w, repository.RestoreOptions{})
}

var _ io.WriterAt = (*target)(nil)

// The compressor makes its channels when it is first used. That must not be in a bubble of synctest.
func TestMain(m *testing.M) {
	r, err := repository.Create(context.Background(), newMemory(), repository.CreateOptions{}, repository.Options{})
	if err != nil {
		panic(err)
	}
	content := image(2<<20, 1)
	b, err := tryBackUp(context.Background(), r, repository.Info{}, content, nil)
	if err != nil {
		panic(err)
	}
	if got, err := tryRestore(context.Background(), r, b); err != nil || !bytes.Equal(got, content) {
		panic(err)
	}
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}
