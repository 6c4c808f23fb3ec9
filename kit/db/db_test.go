package db_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
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
		want := row{ID: "a", N: 7, Flag: true, At: db.At(time.Now()), Meta: db.JSON[map[string]string]{V: map[string]string{"k": "v"}}}
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
		if err := d.Get(ctx, new(int), "SELECT n FROM demo WHERE id = ?", "nobody"); !fault.Is(db.NotFound(err, "no demo"), fault.NotFound) {
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
	dbtest.Open(t, cfg, nil)
	if _, err := db.Open(t.Context(), cfg); !fault.Is(err, fault.Unavailable) {
		t.Errorf("err = %v", err)
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
