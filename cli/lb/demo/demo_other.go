//go:build !linux

package demo

import (
	"context"
	"io"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Config says how the demonstration runs.
type Config struct {
	Mode string
	Step time.Duration
	Stay bool
	Out  io.Writer
}

// Run fails: XDP is Linux's.
func Run(context.Context, Config) error {
	return fault.New(fault.Unavailable, "the load balancer works on Linux only")
}
