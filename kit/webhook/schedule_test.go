package webhook_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/webhook"
)

func TestRetryAfterReadsSecondsAndDatesUpToTheCap(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	const limit = time.Hour
	cases := map[string]struct {
		want time.Duration
		ok   bool
	}{
		"":                              {0, false},
		"0":                             {0, true},
		"120":                           {2 * time.Minute, true},
		" 7 ":                           {7 * time.Second, true},
		"3601":                          {limit, true},
		"99999999999999999999999999999": {limit, true},
		"9223372036854775807":           {limit, true},
		"-1":                            {0, false},
		"1.5":                           {0, false},
		"soon":                          {0, false},
		"Sun, 01 Mar 2026 12:00:30 GMT": {30 * time.Second, true},
		"Sun, 01 Mar 2026 11:00:00 GMT": {0, true},
		"Sun, 01 Mar 2099 12:00:00 GMT": {limit, true},
	}
	for v, c := range cases {
		got, ok := webhook.RetryAfter(http.Header{"Retry-After": {v}}, now, limit)
		if got != c.want || ok != c.ok {
			t.Errorf("%q: %s, %t", v, got, ok)
		}
	}
}

func FuzzRetryAfterStaysWithinTheCap(f *testing.F) {
	for _, s := range []string{"0", "120", "Sun, 01 Mar 2026 12:00:30 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "-1", "1e9"} {
		f.Add(s)
	}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, v string) {
		got, ok := webhook.RetryAfter(http.Header{"Retry-After": {v}}, now, time.Minute)
		if got < 0 || got > time.Minute || !ok && got != 0 {
			t.Fatalf("%s, %t", got, ok)
		}
	})
}
