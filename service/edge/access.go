package edge

import (
	"bytes"
	"cmp"
	"io"
	"net/http"
	"time"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
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

// AccessClasses are the classes that the contract may use.
var AccessClasses = []string{accessOpen, accessAny, accessViewer, accessAdmin, accessGlobalViewer, accessGlobalAdmin, accessAgent, accessIngest}

// admits is the authorization table: which class admits which caller. What a
// caller may see of the objects behind an operation is the scope's business.
func admits(class string, c Caller) bool {
	admin, viewer, agent := c.Role == RoleAdmin, c.Role == RoleViewer, c.Role == RoleAgent
	switch class {
	case accessOpen, accessAny:
		return true
	case accessViewer:
		return admin || viewer
	case accessAdmin:
		return admin
	case accessGlobalViewer:
		return c.Global() && (admin || viewer)
	case accessGlobalAdmin:
		return c.Global() && admin
	case accessAgent:
		return agent
	case accessIngest:
		return admin || agent
	}
	return false
}

// guard puts authorization and validation before an operation's handler, in that
// order: who may not call learns nothing of what would have been valid.
func (s *Service) guard(op *contract.Operation, next http.Handler) http.Handler {
	limit := cmp.Or(op.MaxBody, maxBody)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &call{w: w}
		var slots *httpserve.Slots
		var key string
		if op.Access != accessOpen {
			caller, err := s.authorize(r, op)
			if err != nil {
				s.render(w, r, err)
				return
			}
			c.caller = caller
			slots, key = s.callers, caller.tokenHash
		} else {
			slots, key = s.strangers, httpserve.RemoteNetwork(r)
		}
		if op.Time != contract.Stream { // streams have bounds of their own
			release, ok := slots.Take(key)
			if !ok {
				s.render(w, r, errBusyCaller)
				return
			}
			defer release()
		}
		r = r.WithContext(withCall(r.Context(), c))
		c.r = r
		r.Body = http.MaxBytesReader(w, r.Body, limit)
		if limit > maxBody {
			release, err := s.batchSlot(r)
			if err != nil {
				s.render(w, r, httpserve.BodyError(err))
				return
			}
			defer release()
		}
		if !op.HandlerValidates {
			if err := op.CheckRequest(r); err != nil {
				s.render(w, r, err)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// maxBody is the most bytes that a body may have unless the contract says otherwise
// (x-body). Larger ones take turns.
const maxBody int64 = 1 << 20

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

var errBusyCaller = fault.New(fault.Unavailable, "too many requests of yours are in progress; try again").WithCode("overloaded").WithRetryAfter(time.Second)

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

// authorize says who calls, or why they may not call op.
func (s *Service) authorize(r *http.Request, op *contract.Operation) (Caller, error) {
	ctx := r.Context()
	token, ok := auth.Bearer(r)
	if !ok {
		return Caller{}, fault.New(fault.Unauthenticated, "this needs credentials: send the header Authorization: Bearer TOKEN")
	}
	caller, err := s.callerByToken(ctx, token)
	if err != nil {
		return Caller{}, err
	}
	if caller.Revoked {
		if op.Credential == credentialRevoked {
			return Caller{}, errSiteRevoked
		}
		return Caller{}, errBadToken
	}
	if admits(op.Access, caller) {
		return caller, nil
	}
	denied := fault.New(fault.Denied, "%s may not do this; it takes access class %q", describe(caller), op.Access)
	if op.Audit != "" && op.Audit != "none" {
		// An attempt on something that changes state is worth remembering.
		ctx := withCall(ctx, &call{caller: caller})
		if err := s.deny(ctx, httpserve.RemoteIP(r), entry{Action: op.Audit, Target: r.PathValue("id"), Message: denied.Message}); err != nil {
			return Caller{}, err
		}
	}
	return Caller{}, denied
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
