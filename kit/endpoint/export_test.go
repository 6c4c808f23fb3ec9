package endpoint

import "context"

// Work makes the attempt of a job with these arguments.
func (e *Endpoints) Work(ctx context.Context, delivery string, attempts int64) error {
	return e.deliver(ctx, nil, work{Delivery: delivery, Attempts: attempts})
}

// MaxTries is the number of attempts before a delivery fails.
const MaxTries = maxTries
