package image

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

func TestWhatOneTenantAsksForDoesNotKeepOthersWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns(2)
		var mu sync.Mutex
		var began []string
		leaves := map[string]func(){}
		ask := func(name string) {
			go func() {
				leave, err := turns.take(t.Context(), name[:1])
				if err != nil {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				began, leaves[name] = append(began, name), leave
			}()
			synctest.Wait()
		}
		for _, name := range []string{"a1", "a2", "a3", "a4", "b1", "c1", "b2"} {
			ask(name)
		}
		for _, name := range []string{"a1", "a2", "b1", "c1"} {
			mu.Lock()
			leave := leaves[name]
			mu.Unlock()
			leave()
			leave() // once counts
			synctest.Wait()
		}
		// When a1 leaves, a has one at work, and b none. When a2 leaves, a3 has waited longest of those with none.
		if got := strings.Join(began, " "); got != "a1 a2 b1 a3 c1 b2" {
			t.Errorf("they began as %s", got)
		}
	})
}

func TestWhoeverGivesUpWaitingLeavesNoGap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns(1)
		leave, err := turns.take(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		gave := make(chan error, 1)
		go func() {
			_, err := turns.take(ctx, "b")
			gave <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-gave; err == nil {
			t.Error("who gave up has a turn")
		}
		leave()
		last, err := turns.take(t.Context(), "c")
		if err != nil {
			t.Fatal(err)
		}
		last()
		if turns.free != 1 || len(turns.waiting) != 0 || len(turns.working) != 0 {
			t.Errorf("%+v", turns)
		}
	})
}
