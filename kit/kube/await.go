package kube

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"time"

	"k8s.io/client-go/rest"

	"github.com/mainstay-infra/mainstay/kit/backoff"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Await calls done with the present state of an object, and again after every change, until done returns true or an
// error. The object is nil as long as it does not exist. An API server that does not answer is asked again, until ctx
// ends.
func Await[T any](
	ctx context.Context, c *Client, r Resource, namespace, name string, done func(*T) (bool, error),
) error {
	q := Query{Fields: "metadata.name=" + name}
	return persist(ctx, func() (ended bool, err error) {
		p, err := c.page(ctx, r, namespace, q, 1, "")
		if err != nil {
			return false, err
		}
		var now *T
		if len(p.Items) > 0 {
			if now, err = decode[T](p.Items[0], nil); err != nil {
				return false, err
			}
		}
		if ok, err := done(now); ok || err != nil {
			return true, err
		}
		changes := c.watch(r, namespace, q, p.Metadata.ResourceVersion)
		return follow(ctx, changes, func(object *T, gone bool) (bool, error) {
			if gone {
				object = nil
			}
			return done(object)
		})
	})
}

// Watch calls do with all objects of a namespace, or of the cluster if namespace is empty, and then with each one that
// changes or is gone, until do returns an error or ctx ends. When it was interrupted, do gets all objects again, but
// not those that went meanwhile.
func Watch[T any](
	ctx context.Context, c *Client, r Resource, namespace string, q Query, do func(object *T, gone bool) error,
) error {
	return persist(ctx, func() (ended bool, err error) {
		// What changes while the list is read comes after it.
		first, err := c.page(ctx, r, namespace, q, 1, "")
		if err != nil {
			return false, err
		}
		if err := Each(ctx, c, r, namespace, q, func(object *T) error {
			err := do(object, false)
			ended = ended || err != nil
			return err
		}); err != nil {
			return ended, err
		}
		changes := c.watch(r, namespace, q, first.Metadata.ResourceVersion)
		return follow(ctx, changes, func(object *T, gone bool) (bool, error) { return false, do(object, gone) })
	})
}

// persist calls try until it ends, or ctx does. It waits longer and longer while the API server does not answer.
func persist(ctx context.Context, try func() (ended bool, err error)) error {
	again := backoff.Backoff{Min: 50 * time.Millisecond, Max: 2 * time.Second, Rand: rand.Float64}
	for {
		ended, err := try()
		switch {
		case ended:
			return err
		case ctx.Err() != nil:
			return translate(ctx, ctx.Err())
		case err != nil && !fault.Is(err, fault.Unavailable):
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(again.Next(0)):
		}
	}
}

func (c *Client) watch(r Resource, namespace string, q Query, from string) *rest.Request {
	req := c.rest.Get().AbsPath(r.path(namespace)...).Param("watch", "true").Param("resourceVersion", from)
	if q.Labels != "" {
		req = req.Param("labelSelector", q.Labels)
	}
	if q.Fields != "" {
		req = req.Param("fieldSelector", q.Fields)
	}
	return req
}

// follow calls do with what a watch tells, until do is satisfied. API servers end watches after some time.
func follow[T any](
	ctx context.Context, watch *rest.Request, do func(object *T, gone bool) (bool, error),
) (ended bool, err error) {
	stream, err := watch.Stream(quiet(ctx))
	if err != nil {
		return false, translate(ctx, err)
	}
	defer func() { _ = stream.Close() }() // it is read as far as it is needed
	for events := json.NewDecoder(stream); ; {
		var e struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if events.Decode(&e) != nil {
			return false, nil // the end, or it is broken off
		}
		switch e.Type {
		case "ADDED", "MODIFIED", "DELETED":
		default: // an error, such as that its beginning is forgotten
			return false, nil
		}
		object, err := decode[T](e.Object, nil)
		if err != nil {
			return false, err
		}
		if ok, err := do(object, e.Type == "DELETED"); ok || err != nil {
			return true, err
		}
	}
}
