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

// access is the authorization table. What a caller may see of the objects behind an
// operation is the scope's business.
var access = auth.NewAccess([]string{accessViewer, accessAdmin}, func(c Caller) string { return string(c.Role) },
	map[string]func(Caller) bool{
		accessOpen:         func(Caller) bool { return true },
		accessAny:          func(Caller) bool { return true },
		accessGlobalViewer: func(c Caller) bool { return c.Global() && (c.Role == RoleAdmin || c.Role == RoleViewer) },
		accessGlobalAdmin:  func(c Caller) bool { return c.Global() && c.Role == RoleAdmin },
		accessAgent:        func(c Caller) bool { return c.Role == RoleAgent },
		accessIngest:       func(c Caller) bool { return c.Role == RoleAdmin || c.Role == RoleAgent },
	})

// identify says who calls.
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

// authorize says whether the caller may do op. An attempt on something that changes state is worth
// remembering.
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

// limitCallers bounds the requests that each caller has in progress. Streams have bounds of their own.
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

// limitBatches lets operations with large bodies take turns.
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

// maxBody is the most bytes that a body may have unless the contract says otherwise
// (x-body). Larger ones take turns.
const maxBody int64 = 1 << 20

// rateLogin is the x-rate of what checks passwords. That is slow by design (package auth), and one
// network must not take all processors for it.
const rateLogin = "login"

// credentialRevoked is the x-credential of operations that tell the agent of a revoked
// site that it is revoked; elsewhere its token is unknown.
const credentialRevoked = "revoked"

// The bounds on requests in flight. Those without credentials (logins, enrollments) have a share of
// their own, so that they cannot crowd out the others. No token can crowd out the other tokens.
const (
	maxInFlightOfCaller   = 512
	maxStrangers          = 1024
	maxStrangersOfNetwork = 256
)

var errBusyCaller = fault.New(
	fault.Unavailable,
	"too many requests of yours are in progress; try again",
).WithCode("overloaded").WithRetryAfter(time.Second)

// batchSlot reads the body of a batch and waits for its turn to be decoded and stored: decoded, a
// batch takes several times its size. The body is read before, since it comes as fast as its sender
// likes.
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
