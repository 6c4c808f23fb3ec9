package app

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// hangups has a value after each SIGHUP, which does not end the process any more, until ctx ends.
// Several that come together may be one.
func hangups(ctx context.Context) <-chan struct{} {
	signals, out := make(chan os.Signal, 1), make(chan struct{}, 1)
	signal.Notify(signals, syscall.SIGHUP)
	go func() {
		defer signal.Stop(signals)
		for {
			select {
			case <-ctx.Done():
				return
			case <-signals:
			}
			select {
			case out <- struct{}{}:
			default:
			}
		}
	}()
	return out
}
