package kube

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// pageSize is how many objects are read at once.
const pageSize = 500

// Query selects objects. Empty fields select all.
type Query struct {
	Labels, Fields string // selectors, as kubectl takes them
}

// page is one of a list.
type page struct {
	Metadata struct {
		Continue        string `json:"continue"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
}

// Each calls do with all objects of a namespace, or of the cluster if namespace is empty. If it takes so long that the
// API server has forgotten the state in which the list began, it goes on in the present one, or begins again: objects
// may then come twice, and never less than once if they are there all the time.
func Each[T any](ctx context.Context, c *Client, r Resource, namespace string, q Query, do func(*T) error) error {
	for next := ""; ; {
		p, err := c.page(ctx, r, namespace, q, pageSize, next)
		if next != "" && gone(err) {
			next = goesOn(err)
			continue
		}
		if err != nil {
			return err
		}
		for _, item := range p.Items {
			object, err := decode[T](item, nil)
			if err == nil {
				err = do(object)
			}
			if err != nil {
				return err
			}
		}
		if next = p.Metadata.Continue; next == "" {
			return nil
		}
	}
}

// gone reports whether the API server has forgotten the state that was asked about.
func gone(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// goesOn returns where a list can go on in the present state; empty: at its beginning.
func goesOn(err error) string {
	var s apierrors.APIStatus
	if errors.As(err, &s) {
		return s.Status().Continue
	}
	return ""
}

func (c *Client) page(
	ctx context.Context, r Resource, namespace string, q Query, limit int, next string,
) (*page, error) {
	req := c.rest.Get().AbsPath(r.path(namespace)...).Param("limit", strconv.Itoa(limit))
	for name, value := range map[string]string{"labelSelector": q.Labels, "fieldSelector": q.Fields, "continue": next} {
		if value != "" {
			req = req.Param(name, value)
		}
	}
	return decode[page](c.do(ctx, req))
}
