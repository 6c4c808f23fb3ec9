package storage

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/keyring"
	"github.com/mainstay-infra/mainstay/service/storage/bucket"
)

// KeysOfBucket are what opens a bucket.
type KeysOfBucket struct {
	Endpoint  string `json:"endpoint"`
	Region    string `json:"region"`
	Bucket    string `json:"bucket"`
	AccessKey string `json:"access_key"`
	SecretKey string `json:"secret_key"`
}

// BucketKeys opens the keys of the bucket with a name or an id, on the host of the service and beside it. It changes
// nothing.
func BucketKeys(ctx context.Context, cfg Config, log *slog.Logger, name string) (out KeysOfBucket, err error) {
	folder, err := filepath.Abs(cfg.Data)
	if err != nil {
		return out, err
	}
	d, err := db.OpenReader(ctx, db.Config{URL: cfg.Database, Path: DatabaseFile(folder), Schema: "storage"})
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	keys, err := keyring.ReadKeys(ctx, d, keyring.Config{
		Configured: cfg.SecretKey, Accepted: cfg.AcceptedSecretKey, Data: folder, Log: log,
	})
	if err != nil {
		return out, err
	}
	sealer, err := auth.NewSealer(keys[0], purposeKeys, keys[1:]...)
	if err != nil {
		return out, err
	}
	b, err := bucket.Open(ctx, d, sealer, name)
	return KeysOfBucket{
		Endpoint: b.Bucket.Endpoint, Region: b.Bucket.Region, Bucket: b.Bucket.Native, AccessKey: b.Keys.Access,
		SecretKey: b.Keys.Secret,
	}, err
}
