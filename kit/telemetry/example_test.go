package telemetry_test

import (
	"context"
	"log/slog"
	"time"
)

// withoutTime makes the output of an example reproducible; handlers omit a zero time.
type withoutTime struct{ slog.Handler }

func (h withoutTime) Handle(ctx context.Context, r slog.Record) error {
	r.Time = time.Time{}
	return h.Handler.Handle(ctx, r)
}
