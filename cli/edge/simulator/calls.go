package simulator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/mainstay-infra/mainstay/kit/problem"
	"github.com/mainstay-infra/mainstay/kit/rest"
	"github.com/mainstay-infra/mainstay/kit/webhook"
)

// maxAnswer bounds what is read of an answer: a page of twins is the largest.
const maxAnswer = 64 << 20

// unanswered is a request that may be tried again: the server was out of reach,
// too busy, or failed.
type unanswered struct {
	cause error
	after time.Duration // the server asks to wait; 0: it did not say
}

func (u *unanswered) Error() string { return u.cause.Error() }
func (u *unanswered) Unwrap() error { return u.cause }

// errRevoked says that the site may not talk to the server any more.
var errRevoked = errors.New("the site was revoked or deleted")

// refused is an answer that a repetition would not change.
type refused struct {
	status int
	problem.Problem
}

func (r *refused) Error() string { return fmt.Sprintf("%d %s: %s", r.status, r.Code, r.Message) }

// as adds a site's token to a request.
func as(token string) rest.Editor {
	return func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+token)
		return nil
	}
}

// do makes a request of some kind and decodes its answer. It takes the kind's
// latency and sorts failures into unanswered, refused and errRevoked.
func do[T any](f *Fleet, k kind, send func() (*http.Response, error)) (T, http.Header, error) {
	var out T
	start := f.cfg.Now()
	r, err := send()
	if err != nil {
		f.count.unanswered.Add(1)
		return out, nil, &unanswered{cause: err}
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxAnswer))
	// A body that was read to its end closes without an error that matters.
	_ = r.Body.Close()
	if err != nil {
		f.count.unanswered.Add(1)
		return out, nil, &unanswered{cause: err}
	}
	f.count.latencies[k].add(f.cfg.Now().Sub(start))
	switch {
	case r.StatusCode < 400:
		if err := json.Unmarshal(body, &out); err != nil {
			return out, nil, fmt.Errorf("the answer is not as the API's contract says: %w", err)
		}
		return out, r.Header, nil
	case r.StatusCode >= 500 || r.StatusCode == http.StatusTooManyRequests:
		f.count.unanswered.Add(1)
		asked, _ := webhook.RetryAfter(r.Header, f.cfg.Now(), maxBackoff) // 0: the backoff decides
		return out, nil, &unanswered{cause: fmt.Errorf("the server answered %s", r.Status), after: asked}
	case k != kindEnroll && r.StatusCode == http.StatusUnauthorized:
		return out, nil, errRevoked
	}
	p, ok := problem.Parse(body)
	if !ok {
		p = problem.Problem{Code: "error", Message: r.Status}
	}
	if p.Code == "site_revoked" {
		return out, nil, errRevoked
	}
	f.count.refused.Add(1)
	return out, nil, &refused{r.StatusCode, p}
}
