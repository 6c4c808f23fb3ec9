package lb

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/mainstay-infra/mainstay/service/lb/configfile"
)

// watched is a document that is watched in a bubble, whose clock begins in 2000: files
// look as if from the future, so each look reads them.
type watched struct {
	*testing.T
	*watchedFile
	dir    string
	reload chan struct{}

	mu     sync.Mutex
	loads  []string // interfaces, in the order of loading
	refuse error
}

func watch(t *testing.T, text string) *watched {
	t.Helper()
	w := &watched{T: t, dir: t.TempDir(), reload: make(chan struct{})}
	w.watchedFile = &watchedFile{
		path:    filepath.Join(w.dir, "lb.yaml"),
		now:     time.Now,
		log:     slog.New(slog.DiscardHandler),
		metrics: newMetrics(prometheus.NewRegistry()),
	}
	w.adopt = func(cfg *configfile.Config) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.refuse != nil {
			return w.refuse
		}
		w.loads = append(w.loads, cfg.Interface)
		return nil
	}
	w.write(text)
	if err := w.begin(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.watch(t.Context(), w.reload)
	}()
	t.Cleanup(func() { <-done })
	return w
}

func (w *watched) write(text string) {
	w.Helper()
	if err := os.WriteFile(w.path, []byte(text), 0o600); err != nil {
		w.Fatal(err)
	}
}

// after lets some looks pass and returns what was loaded.
func (w *watched) after(looks int) string {
	time.Sleep(time.Duration(looks)*watchEvery + watchEvery/2)
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.loads, " ")
}

func TestAChangedFileIsLoadedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, "interface: a")
		if got := w.after(5); got != "a" {
			t.Errorf("loaded %s", got)
		}
		w.write("interface: b")
		if got := w.after(5); got != "a b" {
			t.Errorf("loaded %s", got)
		}
		loadedAt, err, _ := w.state()
		if err != nil || loadedAt.IsZero() || testutil.ToFloat64(w.metrics.reloadOK) != 1 ||
			testutil.ToFloat64(w.metrics.reloadedAt) != float64(loadedAt.UnixNano())/1e9 {
			t.Errorf("%v %v", loadedAt, err)
		}
	})
}

func TestAFileThatIsReplacedByASymbolicLinkIsLoaded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // as Kubernetes does
		w := watch(t, "interface: a")
		next := filepath.Join(w.dir, "next.yaml")
		if err := os.WriteFile(next, []byte("interface: b"), 0o600); err != nil {
			t.Fatal(err)
		}
		link := filepath.Join(w.dir, "link")
		if err := os.Symlink(next, link); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(link, w.path); err != nil {
			t.Fatal(err)
		}
		if got := w.after(3); got != "a b" {
			t.Errorf("loaded %s", got)
		}
	})
}

func TestABadFileChangesNothingAndIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, "interface: a")
		before, _, _ := w.state()
		w.write("interfac: b")
		if got := w.after(5); got != "a" {
			t.Errorf("loaded %s", got)
		}
		loadedAt, err, errAt := w.state()
		if err == nil || !strings.Contains(err.Error(), "did you mean interface?") || !errAt.After(before) ||
			loadedAt != before ||
			testutil.ToFloat64(w.metrics.reloadOK) != 0 {
			t.Errorf("%v at %v, loaded %v", err, errAt, loadedAt)
		}
		if again, _, at := w.state(); at != errAt || again != before {
			t.Error("it was tried again without a change")
		}
		if err := os.Remove(w.path); err != nil {
			t.Fatal(err)
		}
		w.after(3)
		if _, err, _ := w.state(); err == nil || !strings.Contains(err.Error(), "cannot read") {
			t.Errorf("%v", err)
		}
		w.write("interface: c")
		if got := w.after(3); got != "a c" {
			t.Errorf("loaded %s", got)
		}
		if _, err, _ := w.state(); err != nil {
			t.Errorf("%v", err)
		}
	})
}

func TestAFileThatIsStillBeingWrittenIsNotLoaded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, "interface: a")
		time.Sleep(watchEvery / 2) // so that each content is there for one look
		for _, half := range []string{"interface: b", "interface: bb", "interface: bbb", "interface: bbbb"} {
			w.write(half)
			time.Sleep(watchEvery)
		}
		if got := w.after(3); got != "a bbbb" {
			t.Errorf("loaded %s", got)
		}
	})
}

func TestASignalLoadsAtOnceEvenWithoutAChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, "interface: a")
		w.reload <- struct{}{}
		synctest.Wait()
		w.write("interface: b")
		w.reload <- struct{}{}
		synctest.Wait()
		if got := w.after(5); got != "a a b" {
			t.Errorf("loaded %s", got)
		}
	})
}
