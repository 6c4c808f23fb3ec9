package fault_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

func TestEveryKindHasItsOwnCodeAndAnErrorStatus(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for k := fault.Internal; k <= fault.UpgradeRequired; k++ {
		if k.Code() == "" || seen[k.Code()] {
			t.Errorf("kind %d: code %q is empty or used twice", k, k.Code())
		}
		seen[k.Code()] = true
		if s := k.HTTPStatus(); s < 400 || s > 599 {
			t.Errorf("%s: HTTP status %d is not an error", k, s)
		}
		if k.GRPCCode() == 0 {
			t.Errorf("%s: gRPC code is OK", k)
		}
	}
}

func TestAnUnknownErrorBecomesInternalAndHidesItsText(t *testing.T) {
	t.Parallel()
	cause := fmt.Errorf("dial db: %w", io.ErrUnexpectedEOF)
	got := fault.From(cause)
	if got.Kind != fault.Internal {
		t.Fatalf("kind = %s", got.Kind)
	}
	if got.Message == cause.Error() {
		t.Error("the public message shows the cause")
	}
	if !errors.Is(got, io.ErrUnexpectedEOF) {
		t.Error("the cause is lost to the log")
	}
}

func TestAFullDiskIsNoInternalError(t *testing.T) {
	t.Parallel()
	for _, err := range []error{&fs.PathError{Op: "write", Path: "/secret", Err: syscall.ENOSPC}, fmt.Errorf("x: %w", syscall.EDQUOT), syscall.EFBIG} {
		if f := fault.From(err); f.Kind != fault.StorageFailed || f.Message != "the storage is full" {
			t.Errorf("%v: %v", err, f)
		}
	}
}

func TestAFaultIsFoundThroughWrapping(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("outer: %w", fault.New(fault.Conflict, "busy"))
	if !fault.Is(err, fault.Conflict) || fault.Is(nil, fault.Internal) {
		t.Error("Is does not see through wrapping, or says yes to nil")
	}
}

func TestWithMethodsLeaveTheTemplateUnchanged(t *testing.T) {
	t.Parallel()
	tmpl := fault.New(fault.Denied, "site is revoked")
	got := tmpl.WithCode("site_revoked").WithRetryAfter(time.Second)
	if tmpl.Code != "" || tmpl.RetryAfter != 0 {
		t.Error("template changed")
	}
	if got.PublicCode() != "site_revoked" || tmpl.PublicCode() != "denied" {
		t.Errorf("codes: %q, %q", got.PublicCode(), tmpl.PublicCode())
	}
}

func ExampleInvalidField() {
	err := fault.InvalidField("timeout_seconds", "must be between 1 and 60, not %d", 90)
	fmt.Println(err.Kind.HTTPStatus(), err.Message)
	// Output: 400 timeout_seconds: must be between 1 and 60, not 90
}
