package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Outcome is the meaning of one attempt for the message.
type Outcome uint8

// The outcomes. The zero value is Retry, so that a missing outcome loses no message.
const (
	Retry     Outcome = iota // try again later
	Delivered                // the target accepted the message
	Permanent                // the same request would be refused again
	Gone                     // the target asks for no further messages
)

// String returns the outcome's stable word.
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

// Classify interprets an attempt by its HTTP status or, if err is not nil, by err.
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

// MaxProblemBytes limits the text of Problem.
const MaxProblemBytes = 500

// Problem returns why an attempt failed, for the user who configured the target, or "" if it
// succeeded. It does not reveal the addresses that a name resolved to: those are for the operator
// only.
func (r Result) Problem() string {
	text := ""
	switch {
	case r.Err != nil:
		text = unanswered(r.Err)
	case r.Status >= 300:
		text = fmt.Sprintf("the target answered %d", r.Status)
		if r.BodySnippet != "" {
			text += ": " + r.BodySnippet
		}
	}
	// Databases accept neither half a character nor NUL.
	text = text[:min(len(text), MaxProblemBytes)]
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// unanswered describes why there was no response.
func unanswered(err error) string {
	var f *fault.Error
	var dns *net.DNSError
	var cert *tls.CertificateVerificationError
	switch {
	case errors.As(err, &f):
		return f.Message
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded):
		return "no answer within the time limit"
	case errors.As(err, &dns):
		return "the name " + dns.Name + " cannot be resolved"
	case errors.As(err, &cert):
		return "the target's certificate is not trusted"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the target refused the connection"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the target closed the connection"
	}
	return "the target could not be reached"
}
