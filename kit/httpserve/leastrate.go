package httpserve

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"
)

// A client that sends a byte of its body now and then holds a connection, and whatever the handler
// holds while it reads. So after a grace period, a body must keep a minimum rate. Only the time
// that the handler spends waiting for the client counts.
const (
	bodyGrace    = 10 * time.Second
	lastingGrace = 2 * time.Minute // for a body for which Lasting was called
	leastRate    = 1 << 10         // bytes a second
	// refusedGrace is how long the server waits for a body that it no longer needs.
	refusedGrace = time.Second
)

// leastRateBody fails reads of a body that arrives too slowly with os.ErrDeadlineExceeded, which
// BodyError converts to Invalid.
type leastRateBody struct {
	io.ReadCloser
	x       *exchange
	control *http.ResponseController
	limit   time.Duration // for the whole body, unless it is lasting
	touched bool          // reading has begun
	read    int64
	waited  time.Duration
}

// left returns how long the next read may take.
func (b *leastRateBody) left() time.Duration {
	earned := time.Duration(b.read) * time.Second / leastRate
	if b.x.lasting {
		return lastingGrace + earned - b.waited
	}
	return min(bodyGrace+earned, b.limit) - b.waited
}

func (b *leastRateBody) Read(p []byte) (int, error) {
	b.touched = true
	left, began := b.left(), time.Now()
	if left <= 0 {
		return 0, os.ErrDeadlineExceeded
	}
	if err := b.setDeadline(began.Add(left)); err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(p)
	b.waited += time.Since(began)
	b.read += int64(n)
	if errors.Is(err, io.EOF) {
		// The server keeps reading to detect a disconnect. A deadline that expires there would end
		// the request.
		var none time.Time
		if !b.x.lasting {
			none = b.x.start.Add(b.limit)
		}
		if err := b.setDeadline(none); err != nil {
			return n, err
		}
	}
	return n, err
}

func (b *leastRateBody) setDeadline(at time.Time) error {
	if err := b.control.SetReadDeadline(at); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// unread is called when the response begins. The server reads the rest of a body before it sends
// the response and before it reads the next request, even if no handler has read the body, and it
// may never arrive. So a refused client gets its response immediately and the connection is closed.
// Other clients get the usual time to send the body.
func (b *leastRateBody) unread(status int) {
	if b.touched || b.x.stream || b.x.lasting {
		return
	}
	grace := bodyGrace
	if status >= 400 && b.x.http1 {
		b.x.w.Header().Set("Connection", "close")
		grace = refusedGrace
	}
	_ = b.setDeadline(time.Now().Add(grace)) // fails only on connections without deadlines
}

// limitRate enforces the minimum rate on all request bodies. Listen applies it.
func limitRate(next http.Handler, limit time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody {
			next.ServeHTTP(w, r)
			return
		}
		x, w, r := track(w, r)
		x.body = &leastRateBody{ReadCloser: r.Body, x: x, control: http.NewResponseController(x.w), limit: limit}
		x.http1 = r.ProtoMajor == 1
		r.Body = x.body
		next.ServeHTTP(w, r)
	})
}

// Lasting lifts the server's time limits for a request whose duration depends on something else,
// for example a transfer to a guest. Its body still has a minimum rate.
func Lasting(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	// These fail only on connections without deadlines.
	_, _ = control.SetReadDeadline(time.Time{}), control.SetWriteDeadline(time.Time{})
	if x := exchangeOf(r.Context()); x != nil {
		x.lasting = true
	}
}
