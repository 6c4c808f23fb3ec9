package keyring

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/db"
)

// ReadKeys returns the secret keys that there are, at least one, the one that the database knows first. It changes
// nothing, and is for programs that open what the service beside them has sealed.
func ReadKeys(ctx context.Context, q db.Querier, cfg Config) (keys [][]byte, err error) {
	known, err := Known(ctx, q, secretKey)
	if err != nil {
		return nil, err
	}
	current, accepted, err := readKeys(cfg, known)
	if err != nil {
		return nil, err
	}
	if current != nil {
		accepted = append(accepted, current)
	}
	found := false
	for _, s := range accepted {
		if s.fingerprint == known {
			keys, found = append([][]byte{s.key}, keys...), true
		} else {
			keys = append(keys, s.key)
		}
	}
	switch {
	case len(keys) == 0:
		return nil, missingKey(cfg)
	case !found:
		return nil, wrongKey(cfg)
	}
	return keys, nil
}
