package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"

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
