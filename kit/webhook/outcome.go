package webhook

import (
	"errors"
	"net/http"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Outcome is what one attempt means for the message.
type Outcome uint8

// The outcomes. The zero value is Retry, so that a forgotten outcome loses no
// message.
const (
	Retry     Outcome = iota // try again later
	Delivered                // the target took the message
	Permanent                // the same request would be refused again
	Gone                     // the target asks for no further messages
)

// String is the outcome's stable word.
func (o Outcome) String() string {
	switch o {
	case Delivered:
		return "delivered"
	case Permanent:
		return "permanent"
	case Gone:
		return "gone"
	default:
		return "retry"
	}
}

// Classify judges an attempt by its HTTP status or, if err is not nil, by err.
//
//   - 2xx is Delivered and 410 is Gone.
//   - 408, 429 and 5xx are Retry, and so is any error of the network: name
//     resolution, connect, TLS, timeout, a response cut short.
//   - Other 4xx are Permanent, and so is every 3xx, because redirects are never
//     followed.
//   - A target that the Guard refuses and a request that is itself malformed
//     (a fault of kind Invalid) are Permanent.
//   - Statuses outside 200 to 599 are Retry.
func Classify(status int, err error) Outcome {
	if err != nil {
		if errors.Is(err, ErrBlockedTarget) || fault.Is(err, fault.Invalid) {
			return Permanent
		}
		return Retry
	}
	switch {
	case status >= 200 && status <= 299:
		return Delivered
	case status == http.StatusGone:
		return Gone
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests:
		return Retry
	case status >= 300 && status <= 499:
		return Permanent
	default:
		return Retry
	}
}
