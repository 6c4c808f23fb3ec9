package transfer

import (
	"context"
	"io"
)

// Unfit is the error for a file that is refused permanently; retrying does not help.
type Unfit struct{ Reason string }

func (u Unfit) Error() string { return u.Reason }

// ErrTooLarge means that a file exceeds the size limit.
var ErrTooLarge error = Unfit{"the file is larger than is taken"}

// Reader returns a reader of r that ends with ctx. Beyond limit bytes it fails with ErrTooLarge; a
// negative limit means none. progress, unless nil, is called with the number of bytes read; if it
// returns an error, reading ends.
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
