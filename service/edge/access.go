package edge

import (
	"bytes"
	"io"
	"net/http"
	"time"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/shell"
)

// The access classes of the contract (x-access).
const (
	accessOpen         = "open"
	accessAny          = "any"
	accessViewer       = "viewer"
	accessAdmin        = "admin"
	accessGlobalViewer = "global-viewer"
	accessGlobalAdmin  = "global-admin"
	accessAgent        = "agent"
	accessIngest       = "ingest"
)

// access is the authorization table. It decides by role only; which objects a caller may see is
// decided by the caller's scope.
var access = auth.NewAccess([]string{accessViewer, accessAdmin}, func(c Caller) string { return string(c.Role) },
	map[string]func(Caller) bool{
		accessOpen:         func(Caller) bool { return true },
		accessAny:          func(Caller) bool { return true },
		accessGlobalViewer: func(c Caller) bool { return c.Global() && (c.Role == RoleAdmin || c.Role == RoleViewer) },
		accessGlobalAdmin:  func(c Caller) bool { return c.Global() && c.Role == RoleAdmin },
		accessAgent:        func(c Caller) bool { return c.Role == RoleAgent },
		accessIngest:       func(c Caller) bool { return c.Role == RoleAdmin || c.Role == RoleAgent },
	})

// identify returns the caller of a request. It fails with Unauthenticated if the token is missing
// or unknown.
func (s *Service) identify(r *http.Request, op *contract.Operation) (Caller, error) {
	if op.Access == accessOpen {
		return Caller{}, nil
	}
	token, ok := auth.Bearer(r)
	if !ok {
		return Caller{}, fault.New(
			fault.Unauthenticated, "this needs credentials: send the header Authorization: Bearer TOKEN",
		)
	}
	caller, err := s.callerByToken(r.Context(), token)
	switch {
	case err != nil:
		return Caller{}, err
	case caller.Revoked && op.Credential == credentialRevoked:
		return Caller{}, errSiteRevoked
	case caller.Revoked:
		return Caller{}, errBadToken
	}
	return caller, nil
}

// authorize returns an error if the caller may not perform op. Denied attempts on audited
// operations are recorded in the audit log.
func (s *Service) authorize(r *http.Request, op *contract.Operation, caller Caller) error {
	if access.Admits(op.Access, caller) {
		return nil
	}
	denied := fault.New(fault.Denied, "%s may not do this; it takes access class %q", describe(caller), op.Access)
	if op.Audit != "" && op.Audit != "none" {
		if err := s.deny(
			r.Context(), httpserve.RemoteIP(r),
			entry{Action: op.Audit, Target: r.PathValue("id"), Message: denied.Message},
		); err != nil {
			return err
		}
	}
	return denied
}

// limitCallers bounds the number of requests in flight per caller. Streams have their own limits.
func (s *Service) limitCallers(op *contract.Operation, next http.Handler) http.Handler {
	if op.Time == contract.Stream {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		slots, key := s.strangers, shell.PeerOf(r.Context()).Network
		if caller, known := shell.Caller[Caller](r.Context()); known && op.Access != accessOpen {
			slots, key = s.callers, caller.tokenHash
		}
		release, ok := slots.Take(key)
		if !ok {
			s.shell.Fail(w, r, errBusyCaller)
			return
		}
		defer release()
		next.ServeHTTP(w, r)
	})
}

// limitBatches makes operations with large bodies take turns.
func (s *Service) limitBatches(op *contract.Operation, next http.Handler) http.Handler {
	if op.MaxBody <= maxBody {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		release, err := s.batchSlot(r)
		if err != nil {
			s.shell.Fail(w, r, httpserve.BodyError(err))
			return
		}
		defer release()
		next.ServeHTTP(w, r)
	})
}

// maxBody is the maximum size of a body in bytes, unless the contract sets another one (x-body).
// Operations with larger bodies take turns.
const maxBody int64 = 1 << 20

// credentialRevoked is the x-credential of operations that tell the agent of a revoked site that
// the site is revoked. All other operations treat its token as unknown.
const credentialRevoked = "revoked"

// Limits on requests in flight. Requests without credentials (logins, enrollments) have their own
// limit, so they cannot crowd out the others. No token can crowd out other tokens.
const (
	maxInFlightOfCaller   = 512
	maxStrangers          = 1024
	maxStrangersOfNetwork = 256
)

var errBusyCaller = fault.New(
	fault.Unavailable,
	"too many requests of yours are in progress; try again",
).WithCode("overloaded").WithRetryAfter(time.Second)

// batchSlot reads the body of a batch, then waits for a slot in which to decode and store it, since
// a decoded batch takes several times its size. The body is read before that, so that a slow sender
// does not occupy a slot.
func (s *Service) batchSlot(r *http.Request) (release func(), err error) {
	var body bytes.Buffer
	if _, err := body.ReadFrom(r.Body); err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(&body)
	select {
	case s.batchSlots <- struct{}{}:
		return func() { <-s.batchSlots }, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

func describe(c Caller) string {
	switch c.Kind {
	case KindAgent:
		return "a site agent"
	case KindOrg:
		return "an org's " + string(c.Role)
	}
	return "a global " + string(c.Role)
}
