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
	// Session exchanges a name, a password and, if the service asks for one, a code for a token. Nil means that
	// the service has only tokens.
	Session func(ctx context.Context, p Place, l Login) (token string, expires time.Time, err error)
	// NeedsCode reports whether Session failed because a code is missing. Nil: the service asks for none.
	NeedsCode func(err error) bool
	// End ends the session of a place's token. Nil means that there are no sessions.
	End func(ctx context.Context, p Place) error
}

// Login is what a person logs in with.
type Login struct{ Username, Password, Code string }
