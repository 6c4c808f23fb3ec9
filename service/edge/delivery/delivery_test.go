package delivery_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/webhook"
	"github.com/mainstay-infra/mainstay/service/edge/delivery"
)

func TestAnAttemptIsJudgedByItsAnswer(t *testing.T) {
	t.Parallel()
	route := delivery.Route{RetryMax: 2}
	now := time.Now()
	for name, tt := range map[string]struct {
		before int
		res    webhook.Result
		want   delivery.Verdict
	}{
		"yes":                        {0, webhook.Result{Status: 204}, delivery.Verdict{Delivered: true, Attempts: 1}},
		"busy":                       {0, webhook.Result{Status: 503}, delivery.Verdict{RetryIn: time.Second, Attempts: 1}},
		"busy again":                 {1, webhook.Result{Status: 503}, delivery.Verdict{RetryIn: 2 * time.Second, Attempts: 2}},
		"busy for the last time":     {2, webhook.Result{Status: 503}, delivery.Verdict{Dead: delivery.Exhausted, Attempts: 3}},
		"no answer":                  {0, webhook.Result{Err: errors.New("dial")}, delivery.Verdict{RetryIn: time.Second, Attempts: 1}},
		"busy, and says until when":  {0, webhook.Result{Status: 429, RetryAfter: time.Minute}, delivery.Verdict{RetryIn: time.Minute, Attempts: 1}},
		"no":                         {0, webhook.Result{Status: 400}, delivery.Verdict{Dead: delivery.Permanent, Attempts: 1}},
		"never again":                {0, webhook.Result{Status: 410}, delivery.Verdict{Dead: delivery.Permanent, Gone: true, Attempts: 1}},
		"elsewhere":                  {0, webhook.Result{Status: 307}, delivery.Verdict{Dead: delivery.Permanent, Attempts: 1}},
		"a yes after many attempts":  {9, webhook.Result{Status: 200}, delivery.Verdict{Delivered: true, Attempts: 10}},
		"the guard refuses a target": {0, webhook.Result{Err: webhook.ErrBlockedTarget}, delivery.Verdict{Dead: delivery.Permanent, Attempts: 1}},
	} {
		got := delivery.Judge(delivery.Pending{Attempts: tt.before}, route, tt.res, now)
		if d := got.RetryIn - tt.want.RetryIn; d < 0 || d > time.Millisecond { // the jitter is a fraction below 1
			if d < -time.Millisecond || d > time.Millisecond {
				t.Errorf("%s: retry in %s, want %s", name, got.RetryIn, tt.want.RetryIn)
			}
		}
		got.RetryIn = tt.want.RetryIn
		if got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}

func TestTheHorizonIsTheLongestThatRetriesCanTake(t *testing.T) {
	t.Parallel()
	// Six attempts of ten seconds and the waits between them: 1, 2, 4, 8, 16 s.
	if got := delivery.Horizon(delivery.Route{RetryMax: 5, Timeout: 10 * time.Second}); got < 90*time.Second ||
		got > 92*time.Second {
		t.Errorf("%s", got)
	}
}

func TestShardsAreDealtOutCompletelyAndEvenly(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 40; n++ {
		var living []string
		for i := range n {
			living = append(living, fmt.Sprintf("replica-%02d", i))
		}
		var dealt []int64
		smallest, largest := 1<<30, 0
		for _, replica := range living {
			mine := delivery.Share(living, replica)
			dealt = append(dealt, mine...)
			smallest, largest = min(smallest, len(mine)), max(largest, len(mine))
		}
		slices.Sort(dealt)
		if !slices.Equal(dealt, delivery.AllShards()) {
			t.Errorf("%d replicas: dealt %v", n, dealt)
		}
		if largest-smallest > 1 {
			t.Errorf("%d replicas hold between %d and %d shards", n, smallest, largest)
		}
	}
	if got := delivery.Share([]string{"a"}, "dead"); len(got) != 0 {
		t.Errorf("a replica that is not among the living gets %v", got)
	}
}

func TestALaneStaysInItsShardAndLanesSpread(t *testing.T) {
	t.Parallel()
	used := map[int64]bool{}
	for i := range 1000 {
		lane := delivery.ShardOf("route", fmt.Sprint(i))
		if lane != delivery.ShardOf("route", fmt.Sprint(i)) || !slices.Contains(delivery.AllShards(), lane) {
			t.Fatalf("lane %d is in shard %d", i, lane)
		}
		used[lane] = true
	}
	if len(used) != len(delivery.AllShards()) {
		t.Errorf("a thousand lanes use %d shards", len(used))
	}
}

func TestAMessageIDCanAlwaysBeSigned(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"e1", "e.1", "ünï", strings.Repeat("x", 128), "a b"} {
		got := delivery.MessageID(id)
		if err := webhook.CheckID(got); err != nil {
			t.Errorf("%q becomes %q: %v", id, got, err)
		}
		if got != delivery.MessageID(id) {
			t.Errorf("%q has two ids", id)
		}
	}
	if delivery.MessageID("e1") != "e1" {
		t.Error("a good id was changed")
	}
}

func TestTheHorizonOfAnyRouteIsFoundAtOnce(t *testing.T) {
	t.Parallel()
	const first = 10 + 11 + 12 + 14 + 18 + 26 + 42 + 74 + 138 + 266 // until the waits stop growing
	for retries, want := range map[int]time.Duration{
		-5: 10 * time.Second, 0: 10 * time.Second, 1: 21 * time.Second, 3: (10 + 11 + 12 + 14) * time.Second,
		20: (first + 11*310) * time.Second, 100: (first + 91*310) * time.Second,
		math.MaxInt64: (first + (365*24*3600-first)/310*310) * time.Second, // whole waits within a year
	} {
		if got := delivery.Horizon(delivery.Route{RetryMax: retries, Timeout: 10 * time.Second}); got != want {
			t.Errorf("%d retries: %s, want %s", retries, got, want)
		}
	}
}
