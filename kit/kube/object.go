package kube

import (
	"context"
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Resource is a kind of objects. Group is empty for the core group.
type Resource struct {
	Group, Version, Kind string
	Plural               string // as in paths

	part string // of an object; empty: all but its status, if that is kept apart
}

// Status returns the part of objects that controllers write.
func (r Resource) Status() Resource {
	r.part = "status"
	return r
}

func (r Resource) groupVersion() string {
	if r.Group == "" {
		return r.Version
	}
	return r.Group + "/" + r.Version
}

func (r Resource) root() string {
	if r.Group == "" {
		return "/api/" + r.Version
	}
	return "/apis/" + r.groupVersion()
}

// path returns that of all objects; of those of a namespace, if it is not empty.
func (r Resource) path(namespace string) []string {
	segments := []string{r.root()}
	if namespace != "" {
		segments = append(segments, "namespaces", namespace)
	}
	return append(segments, r.Plural)
}

// pathOf returns that of an object.
func (r Resource) pathOf(namespace, name string) []string {
	segments := append(r.path(namespace), name)
	if r.part != "" {
		segments = append(segments, r.part)
	}
	return segments
}

// encode returns an object as the API server takes it.
func (r Resource) encode(object any) ([]byte, error) {
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	fields := map[string]any{}
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, err
	}
	fields["apiVersion"], fields["kind"] = r.groupVersion(), r.Kind
	return json.Marshal(fields)
}

// Meta is the metadata of an object.
type Meta struct {
	Name              string            `json:"name,omitempty"`
	Namespace         string            `json:"namespace,omitempty"`
	UID               string            `json:"uid,omitempty"`
	ResourceVersion   string            `json:"resourceVersion,omitempty"`
	Labels            map[string]string `json:"labels,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
	Finalizers        []string          `json:"finalizers,omitempty"`
	CreationTimestamp time.Time         `json:"creationTimestamp,omitzero"`
	DeletionTimestamp time.Time         `json:"deletionTimestamp,omitzero"` // not zero: it goes
}

// Bytes reads a quantity, such as 8Mi, rounded up to whole bytes. It returns 0 for a text that is not a quantity.
func Bytes(quantity string) int64 {
	q, err := resource.ParseQuantity(quantity)
	if err != nil {
		return 0
	}
	return q.Value()
}

// decode reads an answer of the API server.
func decode[T any](raw []byte, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	object := new(T)
	if err := json.Unmarshal(raw, object); err != nil {
		return nil, errNotUnderstood(err)
	}
	return object, nil
}

func errNotUnderstood(err error) error {
	return fault.Wrap(fault.Unavailable, err, "the API server of the cluster answers something that is not understood")
}

// Serves reports whether the API server has a kind of objects. It asks for the list of groups first: what the API
// server answers for a group that it does not have looks like the answer of a proxy that does not know the cluster.
func (c *Client) Serves(ctx context.Context, r Resource) (bool, error) {
	type groups struct {
		Groups []struct {
			Versions []struct {
				GroupVersion string `json:"groupVersion"`
			} `json:"versions"`
		} `json:"groups"`
	}
	type kinds struct {
		Resources []struct {
			Name string `json:"name"`
		} `json:"resources"`
	}
	all, err := decode[groups](c.do(ctx, c.rest.Get().AbsPath("/apis")))
	if err != nil {
		return false, err
	}
	for _, g := range all.Groups {
		for _, v := range g.Versions {
			if v.GroupVersion != r.groupVersion() {
				continue
			}
			found, err := decode[kinds](c.do(ctx, c.rest.Get().AbsPath(r.root())))
			if err != nil {
				return false, err
			}
			for _, k := range found.Resources {
				if k.Name == r.Plural {
					return true, nil
				}
			}
		}
	}
	return false, nil
}

// Get returns an object, or a fault of kind NotFound.
func Get[T any](ctx context.Context, c *Client, r Resource, namespace, name string) (*T, error) {
	return decode[T](c.do(ctx, c.rest.Get().AbsPath(r.pathOf(namespace, name)...)))
}

// Create makes an object. If there is one of that name, it fails with a fault of kind Conflict.
func Create[T any](ctx context.Context, c *Client, r Resource, namespace string, object *T) (*T, error) {
	body, err := r.encode(object)
	if err != nil {
		return nil, err
	}
	return decode[T](c.do(ctx, c.rest.Post().AbsPath(r.path(namespace)...).
		Param("fieldManager", c.manager).SetHeader("Content-Type", "application/json").Body(body)))
}

// Apply gives the fields that object has to an object of that name, and of that UID if object has one. Other fields
// stay as they are. With a UID it makes no new object.
func Apply[T any](ctx context.Context, c *Client, r Resource, namespace, name string, object *T) (*T, error) {
	body, err := r.encode(object)
	if err != nil {
		return nil, err
	}
	return decode[T](c.do(ctx, c.rest.Patch(types.ApplyPatchType).AbsPath(r.pathOf(namespace, name)...).
		Param("fieldManager", c.manager).Param("force", "true").Body(body)))
}

// Delete begins to delete the object with a name and a UID. One that is not there any more is a fault of kind NotFound,
// and another one in its place a fault of kind Conflict.
func Delete(ctx context.Context, c *Client, r Resource, namespace, name, uid string) error {
	id := types.UID(uid)
	body, err := json.Marshal(metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &id}})
	if err != nil {
		return err
	}
	_, err = c.do(ctx, c.rest.Delete().AbsPath(r.pathOf(namespace, name)...).
		SetHeader("Content-Type", "application/json").Body(body))
	return err
}
