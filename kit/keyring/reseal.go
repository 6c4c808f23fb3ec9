package keyring

import (
	"context"
	"fmt"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/db"
)

// Reseal seals the column "secret" of a table again with the current key, where it is stale. aad is
// the column with the additional data of each value. Empty values stay empty. Values that do not
// open stay as they are, since their key was lost before; unreadable is their number.
func Reseal(
	ctx context.Context, tx *db.Tx, sealer *auth.Sealer, table, aad string,
) (resealed, unreadable int, err error) {
	var values []struct {
		AAD    string `db:"aad"`
		Secret string `db:"secret"`
	}
	if err := tx.Select(
		ctx, &values, "SELECT DISTINCT "+aad+" AS aad, secret FROM "+table+" WHERE secret <> '' ORDER BY 1, 2",
	); err != nil {
		return 0, 0, fmt.Errorf("read sealed values of %s: %w", table, err)
	}
	for _, v := range values {
		if !sealer.Stale(v.Secret) {
			continue
		}
		plaintext, err := sealer.Open(v.Secret, v.AAD)
		if err != nil {
			unreadable++
			continue
		}
		// A value that another replica has changed meanwhile is left; it opens with an accepted key.
		n, err := tx.Exec(
			ctx, "UPDATE "+table+" SET secret = ? WHERE "+aad+" = ? AND secret = ?",
			sealer.Seal(plaintext, v.AAD), v.AAD, v.Secret,
		)
		if err != nil {
			return 0, 0, fmt.Errorf("seal values of %s again: %w", table, err)
		}
		resealed += int(n)
	}
	return resealed, unreadable, nil
}
