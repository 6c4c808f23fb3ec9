package agent

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
)

// rotateSecret gives a guest's agent a new secret. Both secrets are tried until the new one is
// known to work, so that a daemon that is killed during the rotation is not locked out.
func (k *Keeper) rotateSecret(ctx context.Context, m *machine.Machine) error {
	r, err := k.store.VM(caller.ByItself(ctx), m.ID)
	if err != nil {
		return err
	}
	secrets, err := k.store.Secrets(ctx, m.ID)
	if err != nil {
		return err
	}
	client, err := m.Session()
	if err != nil {
		return err
	}
	fresh := auth.NewToken("")
	if err := k.store.SetSecrets(ctx, m.ID, fresh, secrets[0]); err != nil {
		return err
	}
	if err := k.host.WriteSeed(&r, fresh); err != nil {
		return err
	}
	if _, err := client.RotateSecret(ctx, fresh); err != nil {
		return err
	}
	return k.store.SetSecrets(ctx, m.ID, fresh)
}
