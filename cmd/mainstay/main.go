// Command mainstay is the Mainstay platform: its servers and their client.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/mainstay-infra/mainstay/app"
	"github.com/mainstay-infra/mainstay/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal requests a graceful stop. It also restores the default handling, so that a
	// second one kills a program that takes too long.
	context.AfterFunc(ctx, stop)
	stdio := cli.IO{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv}
	os.Exit(cli.Main(ctx, os.Args[1:], stdio, app.Commands()...))
}
