package storage

import (
	"context"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/cli/client"
)

// Account is how a person logs in to the storage gateway: with a token that somebody else has issued.
// The service does not tell whose it is.
var Account = client.Account{
	Service: &Service, Default: api.Default,
	Check: func(ctx context.Context, p client.Place) (string, error) {
		c, send, err := api.Connect(p)
		if err != nil {
			return "", err
		}
		r, err := c.ListPolicies(ctx, nil)
		_, err = decode[[]storageapi.Policy](send(ctx, r, err))
		return "", err
	},
}
