package fanout_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fanout"
)

func options(atOnce int, items, bytes int64) fanout.Options {
	return fanout.Options{
		AtOnce: atOnce, Budget: fanout.NewBudget(items, bytes), Log: slog.New(slog.DiscardHandler),
	}
}

type ask func(context.Context, *fanout.Share) ([]string, error)

func peer(name string, f ask) fanout.Peer[string] {
	return fanout.Peer[string]{Name: name, Deadline: time.Second, Ask: f}
}

// answers returns a peer that responds immediately.
func answers(name string, items ...string) fanout.Peer[string] {
	return peer(name, func(_ context.Context, of *fanout.Share) ([]string, error) { return items, of.Take(len(items)) })
}

func TestAnswersComeInTheOrderOfThePeersAndTheMissingAreNamed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("refused")
		began := time.Now()
		items, missing, err := fanout.Ask(t.Context(), []fanout.Peer[string]{
			peer("slow", func(context.Context, *fanout.Share) ([]string, error) {
				time.Sleep(time.Second / 2)
				return []string{"one", "two"}, nil
			}),
			peer("hanging", func(ctx context.Context, _ *fanout.Share) ([]string, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}),
			peer("half", func(context.Context, *fanout.Share) ([]string, error) { return []string{"half"}, refused }),
			answers("empty"),
			peer("panicking", func(context.Context, *fanout.Share) ([]string, error) { panic("at the disco") }),
			answers("quick", "three"),
		}, options(10, 100, 0))
		if err != nil || !slices.Equal(items, []string{"one", "two", "three"}) {
			t.Errorf("%q, %v", items, err)
		}
		want := []fanout.Missing{
			{"hanging", context.DeadlineExceeded}, {"half", refused}, {"panicking", fanout.ErrBroke},
		}
		if !slices.Equal(missing, want) {
			t.Errorf("%+v", missing)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("took %s", took)
		}
	})
}

func TestNoMorePeersAreAskedAtATimeThanMayBe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		asked, most := 0, 0
		count := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			asked += n
			most = max(most, asked)
		}
		var peers []fanout.Peer[string]
		for i := range 10 {
			peers = append(peers, peer(fmt.Sprint(i), func(ctx context.Context, _ *fanout.Share) ([]string, error) {
				count(1)
				defer count(-1)
				<-ctx.Done() // each has its whole time
				return []string{"in time"}, nil
			}))
		}
		began := time.Now()
		items, missing, err := fanout.Ask(t.Context(), peers, options(4, 0, 0))
		if len(items) != 10 || len(missing) > 0 || err != nil {
			t.Errorf("%q, %+v, %v", items, missing, err)
		}
		if took := time.Since(began); most != 4 || took != 3*time.Second {
			t.Errorf("%d at a time, in %s", most, took)
		}
	})
}

func TestOneThatNeverEndsCostsTheOthersNothing(t *testing.T) {
	t.Parallel()
	for name, endless := range map[string]ask{
		"items": func(_ context.Context, of *fanout.Share) ([]string, error) {
			for {
				if err := of.Take(10); err != nil {
					return nil, err
				}
			}
		},
		"bytes": func(_ context.Context, of *fanout.Share) ([]string, error) {
			_, err := io.Copy(io.Discard, of.Reader(zeros{}))
			return nil, err
		},
	} {
		// One at a time, so that it has ended before the next is queried.
		items, missing, err := fanout.Ask(t.Context(), []fanout.Peer[string]{
			answers("before", "one"), peer("endless", endless), answers("after", "two"),
			peer("reads", func(_ context.Context, of *fanout.Share) ([]string, error) {
				text, err := io.ReadAll(of.Reader(strings.NewReader("three")))
				return []string{string(text)}, err
			}),
		}, options(1, 100, 1000))
		if err != nil || !slices.Equal(items, []string{"one", "two", "three"}) ||
			!slices.Equal(missing, []fanout.Missing{{"endless", fanout.ErrBudget}}) {
			t.Errorf("%s: %q, %+v, %v", name, items, missing, err)
		}
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return min(len(b), 64), nil }

func TestTheBudgetIsThatOfAllTogether(t *testing.T) {
	t.Parallel()
	items, missing, err := fanout.Ask(t.Context(), []fanout.Peer[string]{
		answers("a", "1", "2"), answers("b", "3", "4"), answers("c", "5"),
	}, options(1, 3, 0))
	if err != nil || !slices.Equal(items, []string{"1", "2", "5"}) ||
		!slices.Equal(missing, []fanout.Missing{{"b", fanout.ErrBudget}}) {
		t.Errorf("%q, %+v, %v", items, missing, err)
	}
	if err := fanout.NewBudget(3, 0).Of().Take(4); !errors.Is(err, fanout.ErrBudget) {
		t.Errorf("one that is asked alone: %v", err)
	}
}

func TestNobodyIsAskedForACallerWhoHasLeft(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	asked := 0
	items, missing, err := fanout.Ask(ctx, []fanout.Peer[string]{
		peer("a", func(context.Context, *fanout.Share) ([]string, error) {
			asked++
			leave()
			return []string{"one"}, nil
		}),
		peer("b", func(context.Context, *fanout.Share) ([]string, error) { asked++; return nil, nil }),
	}, options(1, 0, 0))
	if !errors.Is(err, context.Canceled) || items != nil || missing != nil || asked != 1 {
		t.Errorf("%q, %+v, %v; %d were asked", items, missing, err, asked)
	}
}

func TestWithoutPeersThereIsNothing(t *testing.T) {
	t.Parallel()
	if items, missing, err := fanout.Ask[string](t.Context(), nil, options(0, 0, 0)); items != nil || missing != nil || err != nil {
		t.Errorf("%q, %+v, %v", items, missing, err)
	}
}
