package httpserve_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/problem"
)

func TestStreamsOfCredentialsThatActForManyAreCountedByOwner(t *testing.T) {
	t.Parallel()
	const each = 32 // the most of one caller
	render := httpserve.JSONErrors(slog.New(slog.DiscardHandler), problem.Flat)
	leave := make(chan struct{})
	var open, refused atomic.Int64
	var asked sync.WaitGroup
	h := httpserve.LimitInFlight(1000, render)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		httpserve.StreamOwner(r, r.Header.Get("Owner"))
		if httpserve.ReserveStream(r) != nil {
			refused.Add(1)
			asked.Done()
			return
		}
		open.Add(1)
		asked.Done()
		<-leave
	}))
	var all sync.WaitGroup
	for _, owner := range []string{"ann", "bob"} {
		for range each + 1 {
			asked.Add(1)
			all.Go(func() {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
				r.Header.Set("Authorization", "Bearer the-same")
				r.Header.Set("Owner", owner)
				h.ServeHTTP(httptest.NewRecorder(), r)
			})
		}
	}
	asked.Wait()
	close(leave)
	all.Wait()
	if open.Load() != 2*each || refused.Load() != 2 {
		t.Errorf("%d streams were opened and %d refused", open.Load(), refused.Load())
	}
}
