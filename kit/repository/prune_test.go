package repository_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/repository"
)

func prune(t testing.TB, r *repository.Repository, o repository.PruneOptions) repository.PruneReport {
	t.Helper()
	report, err := r.Prune(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestPruneFreesWhatNobodyNeedsAfterTheGracePeriod(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newMemory()
		r := create(t, s, "", repository.Options{})
		first, second := image(4<<20, 1), image(4<<20, 2)
		gone := backUp(t, r, repository.Info{}, first, nil)
		kept := backUp(t, r, repository.Info{}, second, nil)
		full := s.size("packs/")
		if err := r.Delete(t.Context(), tenant, gone.ID); err != nil {
			t.Fatal(err)
		}
		if report := prune(t, r, repository.PruneOptions{}); report.Doomed == 0 || report.Removed != 0 {
			t.Errorf("the first prune: %+v", report)
		}
		if report := prune(t, r, repository.PruneOptions{}); report.Waiting == 0 || report.Removed != 0 {
			t.Errorf("a prune before its time: %+v", report)
		}
		time.Sleep(2 * time.Hour)
		if report := prune(t, r, repository.PruneOptions{}); report.Removed == 0 || report.Freed == 0 {
			t.Errorf("the last prune: %+v", report)
		}
		if left := s.size("packs/"); left > full*2/3 {
			t.Errorf("%d bytes of %d are left", left, full)
		}
		if left := s.names("doomed/"); len(left) > 0 {
			t.Errorf("%v is left", left)
		}
		if !bytes.Equal(restore(t, r, kept), second) {
			t.Error("the other backup came back differently")
		}
	})
}

func TestPruneCopiesWhatLivesOutOfPacksThatAreMostlyDead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newMemory()
		r := create(t, s, "", repository.Options{})
		content := image(4<<20, 1)
		first := backUp(t, r, repository.Info{}, content, nil)
		clear(content[1<<20:])
		second := backUp(t, r, repository.Info{}, content, nil)
		if err := r.Delete(t.Context(), tenant, first.ID); err != nil {
			t.Fatal(err)
		}
		v, err := r.View(t.Context(), tenant, second.ID) // opened before its blocks move
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		if report := prune(t, r, repository.PruneOptions{}); report.Doomed != 1 || report.Copied == 0 {
			t.Errorf("%+v", report)
		}
		time.Sleep(2 * time.Hour)
		if report := prune(t, r, repository.PruneOptions{}); report.Removed != 1 {
			t.Errorf("%+v", report)
		}
		if !bytes.Equal(restore(t, r, second), content) {
			t.Error("it came back differently")
		}
		item, err := v.Item("root")
		if err != nil {
			t.Fatal(err)
		}
		w := &target{b: make([]byte, item.Size())}
		if err := item.WriteTo(t.Context(), w, repository.RestoreOptions{}); err != nil || !bytes.Equal(w.b, content) {
			t.Errorf("a reader that was open: %v", err)
		}
		if report := verify(t, r, repository.VerifyOptions{Full: true}); len(report.Problems) > 0 {
			t.Error(report.Err())
		}
	})
}

func TestWhatAKilledWriterLeftIsRemoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newMemory()
		r := create(t, s, "", repository.Options{})
		process := &actor{memory: s}
		other, err := repository.Open(t.Context(), process, repository.Key{Master: r.MasterKey()}, repository.Options{})
		if err != nil {
			t.Fatal(err)
		}
		process.left = 4 // its lease and a pack
		if _, err := tryBackUp(t.Context(), other, repository.Info{}, image(40<<20, 1), nil); !errors.Is(err, errKilled) {
			t.Fatalf("%v", err)
		}
		if len(s.names("packs/")) == 0 || len(s.names("leases/")) == 0 {
			t.Fatalf("it left only %v", s.names(""))
		}
		for range 5 {
			prune(t, r, repository.PruneOptions{})
			time.Sleep(2 * time.Hour)
		}
		for _, kind := range []string{"packs/", "index/", "leases/", "doomed/"} {
			if left := s.names(kind); len(left) > 0 {
				t.Errorf("%v is left", left)
			}
		}
	})
}

func TestAWriterThatLostItsLeaseDoesNotCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newMemory()
		r := create(t, s, "", repository.Options{})
		// Its clock stands still, so it does not know.
		stopped := time.Now()
		process := &actor{memory: s}
		w := beginWith(t, r, process, repository.Options{Now: func() time.Time { return stopped }, Lease: repository.LeaseTimes{Renew: 1000 * time.Hour}})
		content := image(1<<20, 1)
		if err := w.Disk(repository.Disk{Name: "root", Size: 1 << 20, Reader: bytes.NewReader(content), Whole: true}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			prune(t, r, repository.PruneOptions{})
			time.Sleep(2 * time.Hour)
		}
		if _, err := w.Commit(); !fault.Is(err, fault.Conflict) {
			t.Errorf("%v", err)
		}
		if all, _, err := r.List(t.Context(), tenant); err != nil || len(all) != 0 {
			t.Errorf("%v, %v", all, err)
		}
	})
}

func TestAWriterKnowsWhenItsLeaseHasExpired(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newMemory()
		r := create(t, s, "", repository.Options{})
		process := &actor{memory: s}
		w := beginWith(t, r, process, repository.Options{})
		process.fail("leases/")
		time.Sleep(20 * time.Minute)
		process.fail("")
		err := w.Disk(repository.Disk{Name: "root", Size: 1 << 20, Reader: bytes.NewReader(image(1<<20, 1)), Whole: true})
		if !fault.Is(err, fault.Conflict) {
			t.Errorf("%v", err)
		}
		if _, err := w.Commit(); !fault.Is(err, fault.Conflict) {
			t.Errorf("%v", err)
		}
	})
}

func beginWith(t *testing.T, r *repository.Repository, process *actor, o repository.Options) *repository.Writer {
	t.Helper()
	other, err := repository.Open(t.Context(), process, repository.Key{Master: r.MasterKey()}, o)
	if err != nil {
		t.Fatal(err)
	}
	w, err := other.Begin(t.Context(), repository.Info{Tenant: tenant}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// actor is the store as one process sees it. Requests take a random time before and after they are
// done, and the process may be killed: then nothing of it reaches the store any more.
type actor struct {
	*memory
	lock   sync.Mutex
	random *rand.Rand
	left   int    // operations until it is killed; 0: never
	refuse string // fails operations on names with this prefix
}

var errKilled = errors.New("the process was killed")

func (a *actor) operation(name string) error {
	a.lock.Lock()
	defer a.lock.Unlock()
	if a.left > 1 {
		a.left--
	}
	if a.left == 1 {
		return errKilled
	}
	if a.refuse != "" && strings.HasPrefix(name, a.refuse) {
		return errors.New("refused")
	}
	return nil
}

// fail fails operations on names with a prefix from now on.
func (a *actor) fail(prefix string) {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.refuse = prefix
}

func (a *actor) wait() {
	if a.random == nil {
		return
	}
	a.lock.Lock()
	d, kind := a.random.Float64(), a.random.IntN(100)
	a.lock.Unlock()
	switch {
	case kind < 90:
		d *= float64(2 * time.Second)
	case kind < 99:
		d *= float64(5 * time.Minute)
	default:
		d *= float64(4 * time.Hour)
	}
	time.Sleep(time.Duration(d))
}

func (a *actor) Put(ctx context.Context, name string, content []byte) error {
	a.wait()
	if err := a.operation(name); err != nil {
		return err
	}
	err := a.memory.Put(ctx, name, content)
	a.wait()
	return err
}

func (a *actor) Get(ctx context.Context, name string, limit int64) ([]byte, error) {
	a.wait()
	if err := a.operation(name); err != nil {
		return nil, err
	}
	return a.memory.Get(ctx, name, limit)
}

func (a *actor) Delete(ctx context.Context, name string) error {
	a.wait()
	if err := a.operation(name); err != nil {
		return err
	}
	return a.memory.Delete(ctx, name)
}

// Backups, deletions and prunes of several processes run beside each other, stop for hours and are
// killed, in many orders. No backup that was acknowledged is ever harmed, and in the end no garbage is
// left.
func TestNoInterleavingOfBackupsAndPrunesHarmsABackup(t *testing.T) {
	t.Parallel()
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	for seed := range rounds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { interleave(t, uint64(seed)) })
		})
	}
}

type model struct {
	lock     sync.Mutex
	contents map[repository.ID][]byte // acknowledged, and not deleted since
	given    int
	killed   int
	lost     int
	pruned   repository.PruneReport
}

func interleave(t *testing.T, seed uint64) {
	s := newMemory()
	r := create(t, s, "", repository.Options{})
	m := &model{contents: map[repository.ID][]byte{}}
	var actors sync.WaitGroup
	process := func(n int, kill bool) (*repository.Repository, *rand.Rand, *actor) {
		random := rand.New(rand.NewPCG(seed, uint64(n)))
		a := &actor{memory: s}
		other, err := repository.Open(t.Context(), a, repository.Key{Master: r.MasterKey()}, repository.Options{Scratch: t.TempDir()})
		if err != nil {
			t.Error(err)
		}
		a.random = rand.New(rand.NewPCG(seed, uint64(n)+1000))
		if kill && random.IntN(4) == 0 {
			a.left = 5 + random.IntN(60)
		}
		return other, random, a
	}
	for n := range 3 {
		actors.Go(func() {
			for round := range 4 {
				r, random, _ := process(n*100+round, true)
				m.backUpOnce(t, r, random)
			}
		})
	}
	for n := range 2 {
		actors.Go(func() {
			for round := range 8 {
				r, random, _ := process(1000+n*100+round, true)
				report, err := r.Prune(t.Context(), repository.PruneOptions{})
				if err != nil && !errors.Is(err, errKilled) && !fault.Is(err, fault.Conflict) {
					t.Errorf("prune: %v", err)
				}
				m.lock.Lock()
				m.pruned.Doomed += report.Doomed
				m.pruned.Removed += report.Removed
				m.pruned.GivenUp += report.GivenUp
				m.lock.Unlock()
				time.Sleep(time.Duration(random.Int64N(int64(2 * time.Hour))))
			}
		})
	}
	actors.Wait()
	m.check(t, r)
	for range 8 {
		time.Sleep(3 * time.Hour)
		prune(t, r, repository.PruneOptions{MaxDead: 1})
	}
	m.check(t, r)
	for _, kind := range []string{"leases/", "doomed/"} {
		if left := s.names(kind); len(left) > 0 {
			t.Errorf("%v is left", left)
		}
	}
	if len(m.contents) == 0 && len(s.names("packs/")) > 0 {
		t.Errorf("without backups, %v is left", s.names("packs/"))
	}
	t.Logf("%d backups of %d are left, %d processes were killed, %d leases lost; %+v", len(m.contents), m.given, m.killed, m.lost, m.pruned)
}

// backUpOnce backs up a disk that shares much with others, mostly on top of another backup, and
// sometimes deletes one.
func (m *model) backUpOnce(t *testing.T, r *repository.Repository, random *rand.Rand) {
	const blocks = 6
	m.lock.Lock()
	var parent *repository.Backup
	content := make([]byte, blocks*repository.MinBlockSize)
	for id, its := range m.contents {
		if random.IntN(2) == 0 {
			parent = &repository.Backup{ID: id}
			content = bytes.Clone(its)
		}
	}
	m.lock.Unlock()
	var changed []repository.Range
	for b := range blocks {
		if parent != nil && random.IntN(3) > 0 {
			continue
		}
		block := content[b*repository.MinBlockSize : (b+1)*repository.MinBlockSize]
		pattern := rand.New(rand.NewPCG(1, random.Uint64N(8)))
		for i := range block[:4096] {
			block[i] = byte(pattern.Uint32())
		}
		changed = append(changed, repository.Range{Offset: int64(b) * repository.MinBlockSize, Length: repository.MinBlockSize})
	}
	b, err := tryBackUp(t.Context(), r, repository.Info{}, content, parent, changed...)
	m.lock.Lock()
	switch {
	case err == nil:
		m.contents[b.ID] = content
		m.given++
	case errors.Is(err, errKilled):
		m.killed++
	case fault.Is(err, fault.Conflict):
		m.lost++
	case parent != nil && fault.Is(err, fault.NotFound): // deleted meanwhile
	default:
		t.Errorf("backup: %v", err)
	}
	var victim repository.ID
	for id := range m.contents {
		victim = id
	}
	doomed := random.IntN(2) == 0 && len(m.contents) > 1
	if doomed {
		// From here on its outcome is not known: it may be killed before or after.
		delete(m.contents, victim)
	}
	m.lock.Unlock()
	if doomed {
		if err := r.Delete(t.Context(), tenant, victim); err != nil && !errors.Is(err, errKilled) && !fault.Is(err, fault.NotFound) {
			t.Errorf("delete: %v", err)
		}
	}
}

// check holds the repository against what was acknowledged.
func (m *model) check(t *testing.T, r *repository.Repository) {
	t.Helper()
	all, problems, err := r.List(t.Context(), tenant)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	there := map[repository.ID]bool{}
	for _, b := range all {
		there[b.ID] = true
		got, err := tryRestore(t.Context(), r, b)
		if err != nil {
			t.Errorf("a visible backup: %v", err)
		}
		if want, known := m.contents[b.ID]; known && !bytes.Equal(got, want) {
			t.Error("a backup came back differently")
		}
	}
	for id := range maps.Keys(m.contents) {
		if !there[id] {
			t.Errorf("the acknowledged backup %v is gone", id)
		}
	}
	if report := verify(t, r, repository.VerifyOptions{Full: true}); len(report.Problems) > 0 {
		t.Error(report.Err())
	}
}

// A parent may have a block in a doomed pack alone, and be deleted while a backup copies from it.
func TestWhatAParentHasOnlyInADoomedPackIsStoredAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := create(t, newMemory(), "", repository.Options{})
		content := image(1<<20, 1)
		first := backUp(t, r, repository.Info{}, content, nil)
		early, err := r.Begin(t.Context(), repository.Info{Tenant: tenant}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Delete(t.Context(), tenant, first.ID); err != nil {
			t.Fatal(err)
		}
		if report := prune(t, r, repository.PruneOptions{}); report.Doomed == 0 {
			t.Fatalf("%+v", report)
		}
		disk := repository.Disk{Name: "root", Size: 1 << 20, Reader: bytes.NewReader(content), Whole: true}
		if err := early.Disk(disk); err != nil {
			t.Fatal(err)
		}
		parent, err := early.Commit()
		if err != nil {
			t.Fatal(err)
		}
		w, err := r.Begin(t.Context(), repository.Info{Tenant: tenant}, &parent.ID, nil)
		if err != nil {
			t.Fatal(err)
		}
		disk.Whole = false
		if err := w.Disk(disk); err != nil {
			t.Fatal(err)
		}
		if err := r.Delete(t.Context(), tenant, parent.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		if report := prune(t, r, repository.PruneOptions{}); report.Removed == 0 {
			t.Errorf("%+v", report)
		}
		b, err := w.Commit()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(restore(t, r, b), content) {
			t.Error("it came back differently")
		}
	})
}
