//go:build !linux

package demo

import (
	"context"
	"io"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Config holds the options of the demonstration.
type Config struct {
	Mode string
	Step time.Duration
	Stay bool
	Out  io.Writer
}

// Run returns an error: XDP requires Linux.
func Run(context.Context, Config) error {
	return fault.New(fault.Unavailable, "the load balancer works on Linux only")
}
