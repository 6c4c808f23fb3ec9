package kube

import (
	"context"
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// translate returns the fault for an error of a request. An error of a context that was cancelled stays what it is.
func translate(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		cause := context.Cause(ctx)
		if f := (*fault.Error)(nil); errors.As(cause, &f) || errors.Is(cause, context.Canceled) {
			return cause
		}
		return fault.Wrap(fault.Unavailable, err, "the cluster has not answered in time")
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return fault.Wrap(fault.Unavailable, err, "the API server of the cluster does not answer")
	}
	s := status.Status()
	switch {
	case s.Details != nil && unexpected(s.Details.Causes):
		return fault.Wrap(fault.Unavailable, err, "the API server of the cluster answers something that is not understood")
	case apierrors.IsNotFound(err):
		return fault.Wrap(fault.NotFound, err, "%s", s.Message)
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err):
		return fault.Wrap(fault.Conflict, err, "%s", s.Message)
	case apierrors.IsInvalid(err) && field(s.Details) == "metadata.uid":
		return fault.Wrap(fault.Conflict, err, "the object was made again meanwhile")
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		invalid := fault.Wrap(fault.Invalid, err, "%s", s.Message)
		invalid.Field = field(s.Details)
		return invalid
	case apierrors.IsForbidden(err) && strings.Contains(s.Message, "exceeded quota"):
		return fault.Wrap(fault.TooMany, err, "%s", s.Message).WithLimit("ResourceQuota")
	case apierrors.IsForbidden(err):
		return fault.Wrap(fault.Denied, err, "the cluster refuses it: %s", s.Message)
	case apierrors.IsUnauthorized(err):
		return fault.Wrap(fault.Unavailable, err, "the cluster does not accept the credentials of the kubeconfig")
	}
	return fault.Wrap(fault.Unavailable, err, "the API server of the cluster cannot do it now")
}

// unexpected reports whether an answer is not the API server's own, such as that of a proxy before it.
func unexpected(causes []metav1.StatusCause) bool {
	for _, c := range causes {
		if c.Type == metav1.CauseTypeUnexpectedServerResponse {
			return true
		}
	}
	return false
}

// field returns the first field that the API server has found fault with.
func field(d *metav1.StatusDetails) string {
	if d == nil || len(d.Causes) == 0 {
		return ""
	}
	return d.Causes[0].Field
}
