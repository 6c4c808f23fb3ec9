package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/webhook"
)

func TestEveryStatusHasTheDocumentedOutcome(t *testing.T) {
	t.Parallel()
	for status := range 1000 {
		want := webhook.Retry
		switch {
		case status >= 200 && status < 300:
			want = webhook.Delivered
		case status == 410:
			want = webhook.Gone
		case status == 408 || status == 429:
			want = webhook.Retry
		case status >= 300 && status < 500:
			want = webhook.Permanent
		}
		if got := webhook.Classify(status, nil); got != want {
			t.Errorf("%d: %s, want %s", status, got, want)
		}
	}
}

func TestErrorsAreRetriedUnlessTheTargetIsRefused(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		context.DeadlineExceeded, context.Canceled, io.ErrUnexpectedEOF, errors.New("tls: bad certificate"),
		&net.DNSError{Err: "no such host", IsNotFound: true}, fault.New(fault.Unavailable, "busy"),
	} {
		if got := webhook.Classify(0, err); got != webhook.Retry {
			t.Errorf("%v: %s", err, got)
		}
	}
	refused := webhook.Guard{}.CheckAddr(netip.MustParseAddr("10.0.0.1"))
	for _, err := range []error{
		webhook.ErrBlockedTarget, &net.OpError{Op: "dial", Err: refused},
		fmt.Errorf("send: %w", fault.InvalidField("target_url", "bad")),
	} {
		if got := webhook.Classify(0, err); got != webhook.Permanent {
			t.Errorf("%v: %s", err, got)
		}
	}
}

func TestOutcomesHaveStableWords(t *testing.T) {
	t.Parallel()
	got := fmt.Sprint(webhook.Retry, webhook.Delivered, webhook.Permanent, webhook.Gone)
	if got != "retry delivered permanent gone" {
		t.Error(got)
	}
}

func TestAProblemIsToldWithoutTheAddressesOfTheOperator(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 80}, Err: syscall.ECONNREFUSED}
	for want, result := range map[string]webhook.Result{
		"":                                       {Status: 204},
		"the target answered 302":                {Status: 302},
		"the target answered 500: no \uFFFDroom": {Status: 500, BodySnippet: "no \x00room"},
		"the target refused the connection":      {Err: refused},
		"the target could not be reached":        {Err: errors.New("dial tcp 10.1.2.3:80: no route to host")},
		"the target closed the connection":       {Err: fmt.Errorf("read: %w", io.ErrUnexpectedEOF)},
		"no answer within the time limit":        {Err: context.DeadlineExceeded},
		"the name x.example cannot be resolved":  {Err: &net.DNSError{Name: "x.example", Server: "10.0.0.53"}},
		"the target is not allowed":              {Err: fault.Wrap(fault.Invalid, refused, "the target is not allowed")},
	} {
		if got := result.Problem(); got != want {
			t.Errorf("%+v: %q, want %q", result, got, want)
		}
	}
	long := webhook.Result{Status: 500, BodySnippet: strings.Repeat("ü", webhook.MaxProblemBytes)}.Problem()
	if len(long) > webhook.MaxProblemBytes+3 || !utf8.ValidString(long) {
		t.Errorf("%d bytes: %q", len(long), long)
	}
}
