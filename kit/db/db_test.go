package db_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

type row struct {
	ID   string                     `db:"id"`
	N    int64                      `db:"n"`
	Flag bool                       `db:"flag"`
	At   db.Time                    `db:"at"`
	Meta db.JSON[map[string]string] `db:"meta"`
}

var tables = dbtest.Migrations{"demo": fstest.MapFS{"0001_demo.sql": {Data: []byte(`-- +goose Up
CREATE TABLE demo (id TEXT PRIMARY KEY, n BIGINT NOT NULL, flag BOOLEAN NOT NULL, at BIGINT, meta TEXT NOT NULL);
-- +goose Down
DROP TABLE demo;
`)}}}

func TestARowComesBackAsItWasStored(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		want := row{
			ID:   "a",
			N:    7,
			Flag: true,
			At:   db.At(time.Now()),
			Meta: db.JSON[map[string]string]{V: map[string]string{"k": "v"}},
		}
		if err := d.Update(ctx, func(tx *db.Tx) error {
			if err := tx.Insert(ctx, "demo", want); err != nil {
				return err
			}
			return tx.Insert(ctx, "demo", row{ID: "b"})
		}); err != nil {
			t.Fatal(err)
		}
		var got []row
		if err := d.Select(ctx, &got, "SELECT * FROM demo WHERE id IN (?, ?) ORDER BY id", "a", "b"); err != nil {
			t.Fatal(err)
		}
		if !got[0].At.Equal(want.At.Time) || got[0].Meta.V["k"] != "v" || !got[0].Flag || got[0].N != 7 {
			t.Errorf("got %+v, want %+v", got[0], want)
		}
		if !got[1].At.IsZero() || got[1].At.Ptr() != nil {
			t.Error("the zero time did not stay NULL")
		}
	})
}

func TestAFailedTransactionLeavesNothingAndRunsNoOnCommit(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		boom := errors.New("boom")
		err := d.Update(ctx, func(tx *db.Tx) error {
			tx.OnCommit(func() { t.Error("OnCommit ran") })
			if err := tx.Insert(ctx, "demo", row{ID: "a"}); err != nil {
				return err
			}
			return boom
		})
		if !errors.Is(err, boom) {
			t.Fatalf("err = %v", err)
		}
		var n int
		if err := d.Get(ctx, &n, "SELECT count(*) FROM demo"); err != nil || n != 0 {
			t.Errorf("%d rows left, %v", n, err)
		}
	})
}

func TestADuplicateKeyIsRecognised(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		err := d.Update(ctx, func(tx *db.Tx) error {
			if err := tx.Insert(ctx, "demo", row{ID: "a"}); err != nil {
				return err
			}
			return tx.Insert(ctx, "demo", row{ID: "a"})
		})
		if !db.IsUnique(err) {
			t.Errorf("IsUnique(%v) = false", err)
		}
		if err := d.Get(ctx, new(int), "SELECT n FROM demo WHERE id = ?", "nobody"); !fault.Is(
			db.NotFound(err, "no demo"), fault.NotFound,
		) {
			t.Errorf("NotFound: %v", err)
		}
	})
}

func TestConcurrentCallersShareCommitsAndEachGetsItsOwnResult(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		batches := 0
		b := db.NewBatcher(d, 10, func(ctx context.Context, tx *db.Tx, items []int64) ([]string, error) {
			batches++
			if len(items) > 10 {
				t.Errorf("%d items in a batch of at most 10", len(items))
			}
			results := make([]string, len(items))
			for i, n := range items {
				results[i] = fmt.Sprint(n)
				if err := tx.Insert(ctx, "demo", row{ID: results[i], N: n}); err != nil {
					return nil, err
				}
			}
			return results, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		var callers sync.WaitGroup
		for n := range int64(100) {
			callers.Go(func() {
				if got, err := b.Do(t.Context(), n); err != nil || got != fmt.Sprint(n) {
					t.Errorf("Do(%d) = %q, %v", n, got, err)
				}
			})
		}
		go func() { b.Run(ctx); close(stopped) }()
		callers.Wait()
		cancel()
		<-stopped
		var ids []string
		if err := d.Select(t.Context(), &ids, "SELECT id FROM demo"); err != nil || len(ids) != 100 {
			t.Errorf("%d rows, %v", len(ids), err)
		}
		if batches > 100 || batches < 10 {
			t.Errorf("%d batches", batches)
		}
	})
}

func TestABatchThatFailsFailsAllItsCallersAndTheNextOneSucceeds(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t, tables)
	refuse := true
	b := db.NewBatcher(d, 10, func(_ context.Context, _ *db.Tx, items []int) ([]int, error) {
		if refuse {
			return nil, fault.New(fault.StorageFailed, "full")
		}
		return items, nil
	})
	go b.Run(t.Context())
	if _, err := b.Do(t.Context(), 1); !fault.Is(err, fault.StorageFailed) {
		t.Errorf("err = %v", err)
	}
	refuse = false
	if got, err := b.Do(t.Context(), 2); err != nil || got != 2 {
		t.Errorf("got %d, %v", got, err)
	}
}

func TestASecondProcessIsKeptOutOfASQLiteFile(t *testing.T) {
	t.Parallel()
	cfg := db.Config{Path: filepath.Join(t.TempDir(), "one.db")}
	if err := db.CheckFree(cfg.Path); err != nil {
		t.Errorf("before there is a file: %v", err)
	}
	first, err := db.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Open(t.Context(), cfg); !fault.Is(err, fault.Unavailable) {
		t.Errorf("err = %v", err)
	}
	if err := db.CheckFree(cfg.Path); !fault.Is(err, fault.Unavailable) {
		t.Errorf("while it is used: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := db.CheckFree(cfg.Path); err != nil {
		t.Errorf("after it was closed: %v", err)
	}
}

func TestTwoReplicasCanMigrateAtOnce(t *testing.T) {
	t.Parallel()
	url := dbtest.PostgresURL(t)
	var replicas sync.WaitGroup
	for range 4 {
		replicas.Go(func() { dbtest.Open(t, db.Config{URL: url, Schema: "demo"}, tables) })
	}
	replicas.Wait()
}

func TestABadDatabaseURLIsRefusedWithoutShowingItsPassword(t *testing.T) {
	t.Parallel()
	_, err := db.Open(t.Context(), db.Config{URL: "postgres://u:hunter2@host:notaport/x"})
	if !fault.Is(err, fault.Invalid) {
		t.Fatalf("err = %v", err)
	}
	if msg := fault.From(err).Message; strings.Contains(msg, "hunter2") {
		t.Errorf("message %q", msg)
	}
}

func TestACallerThatGivesUpAtAnyMomentLeavesNoTransactionOpen(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t, tables)
	update := func(ctx context.Context) error {
		return d.Update(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE demo SET n = n + 1")
			return err
		})
	}
	for n := range 3000 {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for range n % 300 {
				runtime.Gosched() // a little later each time
			}
			cancel()
		}()
		_ = update(ctx) // given up or done
		cancel()
		if err := update(t.Context()); err != nil {
			t.Fatalf("after %d tries nobody can write: %v", n, err)
		}
	}
}

func TestADatabaseWithNewerTablesIsRefused(t *testing.T) {
	t.Parallel()
	newer := fstest.MapFS{
		"0002_more.sql": {
			Data: []byte("-- +goose Up\nCREATE TABLE more (id TEXT PRIMARY KEY);\n-- +goose Down\nDROP TABLE more;\n"),
		},
	}
	maps.Copy(newer, tables["demo"].(fstest.MapFS))
	dbtest.Each(t, dbtest.Migrations{"demo": newer}, func(t *testing.T, d *db.DB) {
		for range 2 {
			if err := d.Migrate(t.Context(), "demo", newer); err != nil {
				t.Fatal(err)
			}
		}
		err := d.Migrate(t.Context(), "demo", tables["demo"])
		if !fault.Is(err, fault.Conflict) ||
			!strings.Contains(
				fault.From(err).Message, "the tables of demo are at version 2, and this program knows 1 at most",
			) {
			t.Errorf("%v", err)
		}
	})
}

func TestOthersCannotReadTheFilesOfADatabase(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "test.db")
	if err := os.WriteFile(path, nil, 0o644); err != nil { // as an older version made it
		t.Fatal(err)
	}
	d := dbtest.Open(t, db.Config{Path: path}, tables)
	if err := d.Update(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "CREATE TABLE another (id TEXT)")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) < 3 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", file, info.Mode(), err)
		}
	}
}

func TestWhatComesBeforeTheCommitIsPartOfTheTransaction(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		insert := func(tx *db.Tx, id string) error { return tx.Insert(t.Context(), "demo", row{ID: id}) }
		if err := d.Update(t.Context(), func(tx *db.Tx) error {
			tx.BeforeCommit(func(context.Context) error {
				tx.BeforeCommit(func(context.Context) error { return insert(tx, "third") })
				return insert(tx, "second")
			})
			return insert(tx, "first")
		}); err != nil {
			t.Fatal(err)
		}
		boom := errors.New("boom")
		if err := d.Update(t.Context(), func(tx *db.Tx) error {
			tx.BeforeCommit(func(context.Context) error { return boom })
			return insert(tx, "fourth")
		}); !errors.Is(err, boom) {
			t.Errorf("%v", err)
		}
		var ids []string
		if err := d.Select(t.Context(), &ids, "SELECT id FROM demo ORDER BY id"); err != nil ||
			!slices.Equal(ids, []string{"first", "second", "third"}) {
			t.Errorf("%v, %v", ids, err)
		}
	})
}

func TestABatchWhoseWriterPanicsFailsAndTheNextOneIsWritten(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t, tables)
	b := db.NewBatcher(d, 10, func(ctx context.Context, tx *db.Tx, ids []string) ([]bool, error) {
		if ids[0] == "bad" {
			panic("boom")
		}
		return make([]bool, len(ids)), tx.Insert(ctx, "demo", row{ID: ids[0]})
	})
	go b.Run(t.Context())
	if _, err := b.Do(t.Context(), "bad"); err == nil || !strings.Contains(err.Error(), "boom") {
		t.Errorf("%v", err)
	}
	if _, err := b.Do(t.Context(), "good"); err != nil {
		t.Errorf("%v", err)
	}
}

func TestABatchThatLingersIsWrittenWhenItIsFullOrItsTimeIsUp(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t, tables)
	var sizes []int
	b := db.NewBatcher(d, 3, func(_ context.Context, _ *db.Tx, items []int) ([]int, error) {
		sizes = append(sizes, len(items))
		return items, nil
	})
	b.Linger = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() { b.Run(ctx); close(stopped) }()
	var callers sync.WaitGroup
	for n := range 3 { // a full batch does not linger
		callers.Go(func() { _, _ = b.Do(t.Context(), n) })
	}
	callers.Wait()
	callers.Go(func() { _, _ = b.Do(t.Context(), 4) })
	cancel() // nor does the last one
	<-stopped
	b.Linger = time.Nanosecond
	last, stop := context.WithCancel(t.Context())
	stopped = make(chan struct{})
	go func() { b.Run(last); close(stopped) }()
	callers.Wait()
	stop()
	<-stopped
	if !slices.Equal(sizes, []int{3, 1}) {
		t.Errorf("batches of %v", sizes)
	}
}

func TestListsInQueriesArePaddedToFewSizes(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]int{1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 100: 128} {
		list := make([]int64, n)
		for i := range list {
			list[i] = int64(i)
		}
		query, args, err := db.In("a = ? AND b IN (?)", []byte("x"), list)
		if err != nil || strings.Count(query, "?") != want+1 || len(args) != want+1 || args[want] != int64(n-1) {
			t.Errorf("%d elements: %d placeholders, %v, %v", n, strings.Count(query, "?"), args, err)
		}
		if len(list) != n {
			t.Errorf("the caller's list has %d elements", len(list))
		}
	}
}

func TestAQueryThatIsAskedOftenSeesWhatWasChangedBetween(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		for n := range int64(50) {
			if err := d.Update(
				t.Context(),
				func(tx *db.Tx) error { return tx.Insert(t.Context(), "demo", row{ID: fmt.Sprint(n), N: n}) },
			); err != nil {
				t.Fatal(err)
			}
			var count, last int64
			if err := d.Get(t.Context(), &count, "SELECT count(*) FROM demo"); err != nil || count != n+1 {
				t.Fatalf("%d rows, %v", count, err)
			}
			var all []int64
			if err := d.Select(
				t.Context(), &all, "SELECT n FROM demo WHERE n >= ? ORDER BY n", n-1,
			); err != nil || len(all) == 0 ||
				all[len(all)-1] != n {
				t.Fatalf("%v, %v", all, err)
			}
			if err := d.Get(t.Context(), &last, "SELECT n FROM demo WHERE id = ?", "nobody"); !errors.Is(
				err, db.ErrNoRows,
			) {
				t.Fatalf("%v", err)
			}
		}
		// A change of the tables does not leave statements behind that do not fit.
		if err := d.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "ALTER TABLE demo ADD COLUMN extra BIGINT NOT NULL DEFAULT 7")
			return err
		}); err != nil {
			t.Fatal(err)
		}
		var count int64
		if err := d.Get(t.Context(), &count, "SELECT count(*) FROM demo"); err != nil || count != 50 {
			t.Errorf("%d rows, %v", count, err)
		}
	})
}

func TestANumberedTableNeedsNoIndexForItsKeyOnSQLite(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t, dbtest.Migrations{"numbered": fstest.MapFS{"0001_numbered.sql": {Data: []byte(`-- +goose Up
CREATE TABLE numbered (seq BIGINT PRIMARY KEY, text TEXT NOT NULL);
-- +goose Down
DROP TABLE numbered;
`)}}})
	const large = int64(1) << 62
	if err := d.Update(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "INSERT INTO numbered (seq, text) VALUES (?, 'x')", large)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var got, indexes int64
	if err := d.Get(t.Context(), &got, "SELECT seq FROM numbered"); err != nil || got != large {
		t.Errorf("seq %d, %v", got, err)
	}
	if err := d.Get(t.Context(), &indexes, "SELECT count(*) FROM pragma_index_list('numbered')"); err != nil ||
		indexes != 0 {
		t.Errorf("%d indexes, %v", indexes, err)
	}
}

func TestPagesAreDeletedUntilNoneIsLeft(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		if err := d.Update(ctx, func(tx *db.Tx) error {
			for n := range int64(10) {
				if err := tx.Insert(ctx, "demo", row{ID: fmt.Sprint(n), N: n}); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		const query = "DELETE FROM demo WHERE id IN (SELECT id FROM demo WHERE n < ? LIMIT ?)"
		for _, want := range []int64{7, 0} {
			if n, err := d.DeletePages(ctx, 3, query, 7); n != want || err != nil {
				t.Errorf("%d rows are gone, %v, want %d", n, err, want)
			}
		}
		if n, err := d.DeletePages(ctx, 0, query, 10); n != 0 || err == nil {
			t.Errorf("pages of no rows: %d, %v", n, err)
		}
		var left int
		if err := d.Get(ctx, &left, "SELECT count(*) FROM demo"); err != nil || left != 3 {
			t.Errorf("%d rows are left, %v", left, err)
		}
	})
}

func TestAScopeSelectsNothingUnlessItSaysWhat(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t, tables)
	ctx := t.Context()
	if err := d.Update(ctx, func(tx *db.Tx) error {
		for n := range int64(4) {
			if err := tx.Insert(ctx, "demo", row{ID: fmt.Sprint(n), N: n % 2}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	odd := db.Where("n = ? OR n = ?", 1, 9)
	for _, c := range []struct {
		scope db.Scope
		want  int
	}{
		{db.Scope{}, 0},
		{db.Scope{}.And("n = ?", 1), 0},
		{db.Scope{}.And("1 = 1 OR n = ?", 1), 0},
		{db.All(), 4},
		{odd, 2},
		{odd.And("id = ?", "1"), 1},
		{odd.And("id = ? OR id = ?", "0", "3"), 1},
		{db.All().And("id = ?", "0"), 1},
	} {
		condition, args := c.scope.SQL()
		var n int
		if err := d.Get(ctx, &n, "SELECT count(*) FROM demo WHERE "+condition, args...); err != nil || n != c.want {
			t.Errorf("%s: %d rows, %v, want %d", condition, n, err, c.want)
		}
	}
	one, two := odd.And("id = ?", "1"), odd.And("id = ?", "3")
	if _, args := one.SQL(); args[2] != "1" {
		t.Errorf("%v of a scope that another was made beside: %v", args, two)
	}
}
