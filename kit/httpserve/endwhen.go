package httpserve

import (
	"context"
	"time"
)

// checkEvery is how often EndWhen asks.
const checkEvery = time.Second

// EndWhen returns a context that ends when over reports true, which is asked every second. So a
// stream ends with the permission of whoever opened it. ctx must end, as that of a request does.
func EndWhen(ctx context.Context, over func() bool) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	var timer *time.Timer
	ready := make(chan struct{}) // closed when timer is set
	timer = time.AfterFunc(checkEvery, func() {
		<-ready
		if ctx.Err() != nil {
			return
		}
		if over() {
			cancel()
			return
		}
		timer.Reset(checkEvery)
	})
	close(ready)
	context.AfterFunc(ctx, func() {
		timer.Stop()
		cancel()
	})
	return ctx
}
