package rgw

import (
	"context"
	"errors"
	"net/http"
	"regexp"

	"github.com/minio/minio-go/v7"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

var (
	errSlow  = fault.New(fault.Unavailable, "the object gateway has not answered within %s", Within)
	errLarge = fault.New(fault.Unavailable, "the object gateway gives an answer that does not end")
)

var (
	errNoBucket = fault.New(fault.NotFound, "the object gateway has no such bucket")
	errTaken    = fault.New(fault.Conflict, "the object gateway has a bucket of this name that belongs to somebody else")
)

// word matches the codes of answers that are shown. Others may be anything.
var word = regexp.MustCompile(`^[A-Za-z0-9]{1,64}$`)

// code returns what an answer calls a failure. Empty: there was no answer, or it succeeded.
func code(err error) string {
	if r, ok := errors.AsType[minio.ErrorResponse](err); ok {
		return r.Code
	}
	return ""
}

// judge returns the fault for a failed request. Its text and its cause hold neither URLs nor what the answer says
// besides its code.
func judge(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if f, ok := errors.AsType[*fault.Error](err); ok { // without the URL that the client puts before it
		return f
	}
	r, answered := errors.AsType[minio.ErrorResponse](err)
	if !answered {
		return fault.Wrap(fault.Unavailable, err, "the answer of the object gateway makes no sense")
	}
	shown := r.Code
	if !word.MatchString(shown) {
		shown = "no code"
	}
	switch {
	case r.Code == "NoSuchBucket" || r.Code == "NoSuchUser" || r.Code == "NoSuchKey" || r.Code == "NoSuchUpload":
		return errNoBucket
	case r.Code == "BucketAlreadyExists":
		return errTaken
	case r.StatusCode == http.StatusUnauthorized || r.StatusCode == http.StatusForbidden:
		return fault.New(fault.Unavailable, "the object gateway refuses the keys (%s)", shown)
	case r.StatusCode >= 300 && r.StatusCode < 400:
		return fault.New(fault.Unavailable, "the object gateway sends to another address, which is not followed; "+
			"correct its endpoint in the settings")
	case r.StatusCode >= 500 || r.StatusCode == http.StatusTooManyRequests:
		return fault.New(fault.Unavailable, "the object gateway does not work now (%d, %s)", r.StatusCode, shown)
	}
	return fault.New(fault.Unavailable, "the object gateway has refused the request (%d, %s)", r.StatusCode, shown)
}
