package client

import (
	"context"
	"time"
)

// Account is how a person logs in to a service.
type Account struct {
	Service *Service
	Default string // URL of the server
	// Check asks the server whose token a place has.
	Check func(ctx context.Context, p Place) (who string, err error)
	// Session exchanges a name and a password for a token. Nil means that the service has only tokens.
	Session func(ctx context.Context, p Place, username, password string) (token string, expires time.Time, err error)
	// End ends the session of a place's token. Nil means that there are no sessions.
	End func(ctx context.Context, p Place) error
}
