package podman

import (
	"context"
	"net/http"
	"net/url"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// CreateSecret stores a secret, instead of the one of that name. A container keeps the value that it was created with.
func (c *Client) CreateSecret(ctx context.Context, name string, value []byte) error {
	if err := c.RemoveSecret(ctx, name); err != nil {
		return err
	}
	return c.call(ctx, http.MethodPost, "/secrets/create", url.Values{"name": {name}}, content(value), nil)
}

// RemoveSecret removes a secret. It is not an error if the secret does not exist.
func (c *Client) RemoveSecret(ctx context.Context, name string) error {
	err := c.call(ctx, http.MethodDelete, "/secrets/"+url.PathEscape(name), nil, nil, nil)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

// CreateVolume creates a volume, unless there is one of that name, which keeps its labels.
func (c *Client) CreateVolume(ctx context.Context, name string, labels map[string]string) error {
	err := c.call(ctx, http.MethodGet, "/volumes/"+url.PathEscape(name)+"/exists", nil, nil, nil)
	if !fault.Is(err, fault.NotFound) {
		return err
	}
	return c.call(ctx, http.MethodPost, "/volumes/create", nil, map[string]any{"Name": name, "Labels": labels}, nil)
}

// RemoveVolume removes a volume that no container uses. It is not an error if the volume does not exist.
func (c *Client) RemoveVolume(ctx context.Context, name string) error {
	err := c.call(ctx, http.MethodDelete, "/volumes/"+url.PathEscape(name), nil, nil, nil)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

// CreateNetwork creates a bridge network, in which containers find each other by their names if the host's Podman has
// aardvark-dns, unless there is one of that name.
func (c *Client) CreateNetwork(ctx context.Context, name string, labels map[string]string) error {
	err := c.call(ctx, http.MethodGet, "/networks/"+url.PathEscape(name)+"/exists", nil, nil, nil)
	if !fault.Is(err, fault.NotFound) {
		return err
	}
	return c.call(ctx, http.MethodPost, "/networks/create", nil, map[string]any{
		"name": name, "driver": "bridge", "dns_enabled": true, "labels": labels,
	}, nil)
}
