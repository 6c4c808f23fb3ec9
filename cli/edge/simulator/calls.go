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

// maxAnswer limits how much of a response is read, in bytes: a page of twins is the largest.
const maxAnswer = 64 << 20

// unanswered means that a request may be retried: the server was unreachable, too busy, or failed.
type unanswered struct {
	cause error
	after time.Duration // the wait that the server requested; 0: none
}

func (u *unanswered) Error() string { return u.cause.Error() }
func (u *unanswered) Unwrap() error { return u.cause }

// errRevoked means that the site may no longer talk to the server.
var errRevoked = errors.New("the site was revoked or deleted")

// refused is an error response that a retry would not change.
type refused struct {
	status int
	problem.Problem
}

func (r *refused) Error() string { return fmt.Sprintf("%d %s: %s", r.status, r.Code, r.Message) }

// as returns an Editor that adds a site's token.
func as(token string) rest.Editor {
	return func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+token)
		return nil
	}
}

// do sends a request of some kind and decodes the response. It records the kind's latency and
// classifies failures as unanswered, refused or errRevoked.
func do[T any](f *Fleet, k kind, send func() (*http.Response, error)) (T, http.Header, error) {
	var out T
	start := f.cfg.Now()
	r, err := send()
	if err != nil {
		f.count.unanswered.Add(1)
		return out, nil, &unanswered{cause: err}
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxAnswer))
	// After reading a body to its end, errors of closing do not matter.
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
		asked, _ := webhook.RetryAfter(r.Header, f.cfg.Now(), maxBackoff) // 0: use the backoff
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
