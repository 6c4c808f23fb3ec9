package verb

import (
	"context"
	"sync/atomic"

	"github.com/spf13/cobra"
)

// Job is work of a server that a command waits for.
type Job struct {
	Ended    bool
	Err      error   // why it has not done what it should; nil unless Ended
	Progress float64 // from 0 to 1
}

const (
	// waitSeconds is how long one request waits for the end of a job.
	waitSeconds = 20
	// watchSeconds is the same while a person sees the progress.
	watchSeconds = 1
)

// Await waits until a job has ended, and returns its error. Meanwhile it shows a text and the progress. get asks for
// the job, and lets the server wait so many seconds for its end.
func (c *Call[A]) Await(
	ctx context.Context, text string, get func(ctx context.Context, wait int) (Job, error),
) error {
	const whole = 100
	var done atomic.Int64
	wait := waitSeconds
	if c.Progress().Watched() {
		wait = watchSeconds
	}
	of := func() (int64, int64) {
		if n := done.Load(); n > 0 {
			return n, whole
		}
		return 0, 0 // many jobs tell no progress
	}
	return c.whileOf(ctx, text, of, func() error {
		for {
			j, err := get(ctx, wait)
			if err != nil {
				return err
			}
			if j.Ended {
				return j.Err
			}
			done.Store(int64(j.Progress * whole))
		}
	})
}

// NoWaitFlag defines --no-wait, for commands that begin a job.
func NoWaitFlag(cmd *cobra.Command) {
	cmd.Flags().Bool("no-wait", false, "do not wait for the end of the job")
}

// NoWait reports whether --no-wait was given.
func (c *Call[A]) NoWait() bool {
	set, err := c.Cmd.Flags().GetBool("no-wait")
	return err == nil && set
}
