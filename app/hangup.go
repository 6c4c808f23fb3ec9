package app

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// hangups returns a channel that receives after each SIGHUP, until ctx ends. SIGHUP then no longer
// ends the process. Several signals in quick succession may count as one.
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
