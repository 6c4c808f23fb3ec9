package edge

import (
	"context"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/search"
	"github.com/mainstay-infra/mainstay/service/edge/topicmap"
)

// describePause is the rest between two steps of describeOld, as a multiple of the time that one
// took, so that others write meanwhile.
const describePause = 1

// describeOld prepares what a version without searches stored for them, as far as the migration left
// it. Until it is done, searches of events read more and find the same, and other searches find only
// what is described.
func (s *Service) describeOld(ctx context.Context) {
	begin, steps := time.Now(), 0
	for _, work := range []struct {
		what string
		step func(context.Context, *db.DB) (more bool, err error)
	}{{"objects", describeRows}, {"topics of events", topicmap.Fill}} {
		for more := true; more && ctx.Err() == nil; {
			start := time.Now()
			var err error
			more, err = work.step(ctx, s.db)
			pause := describePause * time.Since(start)
			if err != nil && ctx.Err() == nil {
				s.log.Warn("what older versions stored could not be prepared for searches; trying again",
					"what", work.what, "error", err)
				more, pause = true, 10*time.Second
			}
			if steps++; more && steps%100 == 1 {
				s.log.Info("preparing what older versions stored for searches", "what", work.what,
					"for", time.Since(begin).Round(time.Second))
			}
			timer := time.NewTimer(pause)
			select {
			case <-ctx.Done():
				timer.Stop()
			case <-timer.C:
			}
		}
	}
	if steps > 2 && ctx.Err() == nil {
		s.log.Info("what older versions stored is prepared for searches", "took", time.Since(begin).Round(time.Second))
	}
}

// describedRows is how many rows describeRows writes in a transaction.
const describedRows = 500

// describeRows writes the column search of rows that a migration left without it. It reports whether
// there are more.
func describeRows(ctx context.Context, d *db.DB) (more bool, err error) {
	err = d.Update(ctx, func(tx *db.Tx) error {
		room := describedRows
		for _, step := range []func() (int, error){
			func() (int, error) { return search.Describe(ctx, tx, "sites", "id", room, (*Site).described) },
			func() (int, error) {
				return search.Describe(ctx, tx, "devices", "device_id", room, (*Device).described)
			},
			func() (int, error) { return search.Describe(ctx, tx, "routes", "id", room, (*Route).described) },
			func() (int, error) {
				return search.Describe(ctx, tx, "deployments", "id", room, (*Deployment).described)
			},
			func() (int, error) { return search.Describe(ctx, tx, "campaigns", "id", room, (*Campaign).described) },
		} {
			n, err := step()
			if err != nil {
				return err
			}
			if room -= n; room == 0 {
				break
			}
		}
		more = room == 0
		return nil
	})
	return more && err == nil, err
}

// oneOf returns the condition, with its arguments, that a column has one of the values, of which there
// must be some. The column must be a constant of the program.
func oneOf[T ~string](column string, values []T) (condition string, args []any) {
	args = make([]any, len(values))
	for i, v := range values {
		args[i] = string(v)
	}
	return column + " IN (?" + strings.Repeat(", ?", len(values)-1) + ")", args
}
