package transfer

import (
	"context"
	"io"
)

// Unfit is why a file is not taken, however often it is asked for.
type Unfit struct{ Reason string }

func (u Unfit) Error() string { return u.Reason }

// ErrTooLarge is that a file is larger than is taken.
var ErrTooLarge error = Unfit{"the file is larger than is taken"}

// Reader is what r holds, until ctx ends. If that is more than limit bytes, reading fails with
// ErrTooLarge; a limit below 0 is none. progress, unless it is nil, is told how many bytes were read; its
// error ends the reading.
func Reader(ctx context.Context, r io.Reader, limit int64, progress func(done int64) error) io.Reader {
	return &reader{ctx: ctx, r: r, limit: limit, progress: progress}
}

type reader struct {
	ctx         context.Context
	r           io.Reader
	limit, done int64
	progress    func(int64) error
}

func (r *reader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.r.Read(b)
	r.done += int64(n)
	if r.limit >= 0 && r.done > r.limit {
		return 0, ErrTooLarge
	}
	if r.progress != nil {
		if err := r.progress(r.done); err != nil {
			return 0, err
		}
	}
	return n, err
}
