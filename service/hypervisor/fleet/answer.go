package fleet

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/fanout"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/forward"
)

// CodeUnreachable is the fault code for a node that does not answer, or not as it should. Callers
// see it as 502.
const CodeUnreachable = "node_unreachable"

const (
	maxVM      = 1 << 20  // bytes of an answer with one VM
	maxRefusal = 64 << 10 // bytes of an answer with an error
	maxWords   = 500      // bytes that are shown of what a node says
)

// refusal is a daemon's own error response.
type refusal struct {
	status     int
	said       hypervisorapi.Error
	retryAfter time.Duration
}

func (r *refusal) Error() string {
	return fmt.Sprintf("it answers %d %s: %s", r.status, r.said.Code, r.said.Error)
}

// Answers that no daemon gives.
type (
	statusError = forward.StatusError
	garbage     = forward.Garbage
)

// refusals maps the statuses that mean that nothing was done to kinds of faults.
var refusals = map[int]fault.Kind{
	http.StatusBadRequest:            fault.Invalid,
	http.StatusForbidden:             fault.Denied,
	http.StatusNotFound:              fault.NotFound,
	http.StatusConflict:              fault.Conflict,
	http.StatusRequestEntityTooLarge: fault.TooLarge,
	http.StatusTooManyRequests:       fault.TooMany,
	http.StatusServiceUnavailable:    fault.Unavailable,
	http.StatusInsufficientStorage:   fault.StorageFailed,
}

// code matches valid error codes.
var code = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)

// read reads a response that should have the status want, decodes it into into unless that is nil,
// and closes it. It reads at most limit bytes of the body.
func read(res *http.Response, want int, limit int64, into any) error {
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != want {
		return readRefusal(res)
	}
	if into == nil {
		return nil
	}
	body, err := readAll(res.Body, limit)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return garbage("its answer is not in the form of a daemon's")
	}
	return nil
}

func readAll(from io.Reader, limit int64) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(from, limit+1))
	if err == nil && int64(len(body)) > limit {
		err = garbage("its answer is too large")
	}
	return body, err
}

// readRefusal returns the error of a response: a refusal only if a daemon sent it, not a proxy.
func readRefusal(res *http.Response) error {
	if _, known := refusals[res.StatusCode]; !known {
		return statusError(res.StatusCode)
	}
	body, err := readAll(res.Body, maxRefusal)
	if err != nil {
		return statusError(res.StatusCode)
	}
	r := refusal{status: res.StatusCode}
	if json.Unmarshal(body, &r.said) != nil || !code.MatchString(r.said.Code) || r.said.Error == "" {
		return statusError(res.StatusCode)
	}
	r.said.Error = plain(r.said.Error)
	if seconds, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && seconds > 0 {
		r.retryAfter = time.Duration(min(seconds, 3600)) * time.Second
	}
	return &r
}

// plain shortens a stranger's text and removes what cannot be shown.
func plain(s string) string {
	if len(s) > maxWords {
		s = s[:maxWords] + "..."
	}
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

// fault returns the refusal as a fault for the registry's caller, with the node's own message.
func (r *refusal) fault() error {
	f := fault.New(refusals[r.status], "%s", r.said.Error).WithCode(r.said.Code).WithRetryAfter(r.retryAfter)
	if r.said.Field != nil {
		f.Field = plain(*r.said.Field)
	}
	if r.said.Limit != nil {
		f.Limit = plain(*r.said.Limit)
	}
	return f
}

// passOn returns the fault for a node's error: its own refusal, or that it is unreachable.
func passOn(name string, err error) error {
	var r *refusal
	if errors.As(err, &r) {
		return r.fault()
	}
	return unreachable(name, explain(err), err)
}

// unreachable returns the fault for a node that does not answer, or not as it should.
func unreachable(name, reason string, cause error) error {
	return fault.Wrap(fault.Unreachable, cause, "node %s is unreachable: %s", name, reason).WithCode(CodeUnreachable)
}

// explain describes an error without the addresses that Go's errors contain, since tenants read it.
func explain(err error) string {
	var (
		status  statusError
		words   garbage
		refused *refusal
		dns     *net.DNSError
		cert    *tls.CertificateVerificationError
		record  tls.RecordHeaderError
		timeout net.Error
	)
	switch {
	case errors.Is(err, fanout.ErrBudget):
		return "the list would be too long with its VMs"
	case errors.Is(err, fanout.ErrBroke):
		return "asking it broke; see the registry's log"
	case errors.As(err, &status) && status == http.StatusUnauthorized:
		return "it refuses the fleet's token"
	case errors.As(err, &status):
		return status.Error()
	case errors.As(err, &words):
		return words.Error()
	case errors.As(err, &refused):
		return refused.Error()
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "no answer in time"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "it refuses connections"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "there is no route to it"
	case errors.As(err, &dns):
		return "its name does not resolve"
	case errors.As(err, &cert):
		return "its certificate is not trusted"
	case errors.As(err, &record):
		return "it does not speak TLS"
	}
	return "the connection failed"
}
