package driver

import (
	"context"
	"net/http"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
)

// CodeNotInGuest is the code of the refusal to run a program that the guest does not have.
const CodeNotInGuest = "agent_not_found"

// Outcome is how a program in a guest ended. It is the guest's word.
type Outcome = hypervisorapi.ExecOutcome

// execSlack is how long an answer may take beyond the program's own time.
const execSlack = 20 * time.Second

// Exec runs a program in a guest, without a shell, for at most limit, in whole seconds.
func (d *Driver) Exec(ctx context.Context, at Place, argv []string, limit time.Duration) (Outcome, error) {
	seconds := max(1, int(limit/time.Second))
	return call[Outcome](ctx, d, at, limit+execSlack,
		func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
			return c.Exec(ctx, at.ID, hypervisorapi.Exec{Argv: argv, TimeoutSeconds: &seconds})
		})
}
