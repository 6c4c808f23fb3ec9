//go:build linux

package cephlab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"

	"github.com/mainstay-infra/mainstay/kit/durable"
)

// ObjectGateway is the daemon of the object gateway.
var ObjectGateway = Daemon{Name: "client.rgw.r", Program: "radosgw"}

// Access says how the object gateway is reached, with the keys of a user that administers its users and buckets.
type Access struct {
	Endpoint  string `json:"endpoint"`
	AccessKey string `json:"access_key"`
	SecretKey string `json:"secret_key"`
}

// URL returns the address of the object gateway.
func (l *Lab) URL() string { return fmt.Sprintf("http://127.0.0.1:%d", l.GatewayPort) }

// StartGateway starts the object gateway, unless it runs, and returns when it answers. AccessFile has its keys then.
func (l *Lab) StartGateway(ctx context.Context) error {
	if err := l.Start(ObjectGateway); err != nil {
		return err
	}
	if err := l.Await(ctx, "the object gateway answers", []Daemon{ObjectGateway}, l.ping); err != nil {
		return err
	}
	if _, err := os.Stat(l.AccessFile()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	user, err := l.administrator(ctx)
	if err != nil {
		return err
	}
	raw, err := json.MarshalIndent(user, "", "  ")
	if err != nil {
		return err
	}
	return durable.Create(l.AccessFile(), append(raw, '\n'), 0o600)
}

func (l *Lab) ping(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, l.URL(), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	if err := resp.Body.Close(); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s", resp.Status)
	}
	return nil
}

// administrator makes the user that administers users and buckets, unless there is one, and returns its keys.
func (l *Lab) administrator(ctx context.Context) (Access, error) {
	const uid = "admin"
	out, err := l.Run(ctx, nil, "radosgw-admin", "user", "info", "--uid", uid)
	if err != nil {
		out, err = l.Run(
			ctx, nil, "radosgw-admin", "user", "create", "--uid", uid, "--display-name", uid, "--caps", "users=*;buckets=*",
		)
	}
	if err != nil {
		return Access{}, err
	}
	var user struct {
		Keys []struct {
			AccessKey string `json:"access_key"`
			SecretKey string `json:"secret_key"`
		} `json:"keys"`
	}
	if err := json.Unmarshal([]byte(out), &user); err != nil || len(user.Keys) == 0 {
		return Access{}, errors.Join(errors.New("radosgw-admin shows no keys of the user"), err)
	}
	return Access{Endpoint: l.URL(), AccessKey: user.Keys[0].AccessKey, SecretKey: user.Keys[0].SecretKey}, nil
}
