package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/backoff"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
	"github.com/mainstay-infra/mainstay/service/agent/answer"
)

const (
	heartbeatTimeout = 20 * time.Second
	heartbeatJitter  = 0.1 // fraction of the interval, in both directions
	minInterval      = time.Second
	maxInterval      = time.Hour
	// A clock difference greater than notableSkew is logged.
	notableSkew = 30 * time.Second
	// renewRetry is the wait after a failed renewal.
	renewRetry = 10 * time.Minute
	// revokedRecheck is the time between two checks whether a revoked site is still revoked. The
	// control plane may be restored from a backup.
	revokedRecheck = time.Hour
	// unknownPatience is how long the control plane must not have known the site before
	// --enroll-again enrolls a new one.
	unknownPatience = 10 * time.Minute
)

// errRevoked means that the control plane has revoked this site.
var errRevoked = errors.New("the control plane has revoked this site")

// keepLink enrolls, sends heartbeats and renews the certificate until ctx ends. Other loops can
// report a failure, but only keepLink restores the link.
func (a *Agent) keepLink(ctx context.Context) {
	retry := a.newBackoff()
	var s *session
	defer func() {
		if s != nil {
			s.close()
		}
	}()
	for {
		id := a.identity.get()
		if s != nil && s.id != id {
			s.close()
			s = nil
		}
		var err error
		if id == nil {
			a.link.set(Enrolling, a.link.reason())
			err = a.enroll(ctx)
		} else {
			if s == nil {
				s, err = a.newSession(id)
			}
			if err == nil {
				err = a.beat(ctx, s)
			}
		}
		if ctx.Err() != nil {
			return
		}
		revoked := errors.Is(err, errRevoked)
		if id != nil && a.wantsNewSite(revoked) {
			if err = a.enroll(ctx); ctx.Err() != nil {
				return
			}
			// If the control plane refuses the site that it has just enrolled, do not flood it with
			// new sites.
			if err == nil &&
				!backoff.Sleep(ctx, time.Second+time.Duration(a.random()*float64(min(a.nextBeat(), a.cfg.RetryMax)))) {
				return
			}
		}
		var wait time.Duration
		switch {
		case err == nil && a.identity.get() != id:
			retry.Reset()
			continue // send the first heartbeat of the new identity
		case err == nil:
			retry.Reset()
			wait = a.nextBeat()
		case errors.Is(err, errRevoked):
			wait = time.Duration(float64(revokedRecheck) * (0.9 + 0.2*a.random()))
		case id == nil, revoked:
			wait = retry.Next(answer.RetryAfter(err))
			a.link.set(a.link.current(), explain(err))
			a.log.Warn("enrollment failed", "error", explain(err), "next_attempt_in", wait.Round(time.Millisecond).String())
		default:
			wait = retry.Next(answer.RetryAfter(err))
			a.goneOffline(err, wait)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-a.link.lost:
			// Another loop could not reach the server. Wait before the next heartbeat, too.
			timer.Stop()
			if !backoff.Sleep(ctx, retry.Next(0)) {
				return
			}
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// wantsNewSite reports whether to enroll a new site in place of this one. The old identity stays
// until that has succeeded.
func (a *Agent) wantsNewSite(revoked bool) bool {
	if !a.cfg.EnrollAgain || a.enrollmentToken == "" {
		return false
	}
	return revoked || !a.unknownSince.IsZero() && a.now().Sub(a.unknownSince) >= unknownPatience
}

func (l *link) reason() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastErr
}

func (a *Agent) goneOffline(err error, wait time.Duration) {
	if _, online := a.link.online(); online {
		a.log.Warn("the link is lost", "error", explain(err))
	} else {
		a.log.Debug("no link", "error", explain(err), "next_attempt_in", wait.Round(time.Millisecond).String())
	}
	a.link.set(Offline, explain(err))
}

// nextBeat returns the heartbeat interval with jitter.
func (a *Agent) nextBeat() time.Duration {
	a.link.mu.Lock()
	interval := a.link.interval
	a.link.mu.Unlock()
	return time.Duration(float64(interval) * (1 + heartbeatJitter*(2*a.random()-1)))
}

// beat sends one heartbeat and handles the reply.
func (a *Agent) beat(ctx context.Context, s *session) error {
	version := telemetry.BuildInfo().Version
	limited, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	sent := a.now()
	reply, err := answer.Decode[edgeapi.HeartbeatReply](
		answer.Read(s.api.Heartbeat(limited, edgeapi.HeartbeatInput{Version: &version})),
	)
	if err != nil {
		return a.notKnown(ctx, s, err)
	}
	if err := checkReply(reply, s.site()); err != nil {
		return err
	}
	a.unknownSince = time.Time{}
	if s.id.Refused != "" {
		a.log.Info("the control plane knows this site again", "site", s.site())
		id := *s.id
		id.Refused = ""
		if err := a.identity.put(id); err != nil {
			return err
		}
	}
	// The server's time lies somewhere between the two; the middle is the best estimate.
	received := a.now()
	skew := reply.ServerTime.Sub(sent.Add(received.Sub(sent) / 2))
	if before := a.link.clockSkew(); skew.Abs() > notableSkew && (before == nil || before.Abs() <= notableSkew) {
		a.log.Warn(
			"this machine's clock and the control plane's differ", "server_is_ahead_by",
			skew.Round(time.Second).String(),
		)
	}
	interval := heartbeatInterval(reply.HeartbeatIntervalSeconds)
	if _, online := a.link.online(); !online {
		a.log.Info("online", "site", s.site(), "heartbeat_every", interval.String())
	}
	a.link.answered(s, interval, skew, reply.DesiredRevision)
	if (reply.RenewCertificate || s.id.renewalDue(a.serverNow())) && a.now().After(a.renewNotBefore) {
		a.renewNotBefore = a.now().Add(renewRetry)
		if err := a.renew(ctx, s); err != nil {
			a.log.Warn("the certificate was not renewed", "error", explain(err), "next_attempt_in", renewRetry.String())
		}
	}
	return nil
}

// checkReply checks conditions on a heartbeat reply that the contract cannot express.
func checkReply(reply edgeapi.HeartbeatReply, site string) error {
	if reply.SiteId != site {
		return answer.NewInvalid(
			"it takes this agent for site %.128q, not %s; is --server the right one?",
			reply.SiteId,
			site,
		)
	}
	if y := reply.ServerTime.UTC().Year(); y < 1970 || y >= 9999 {
		return answer.NewInvalid("server_time is in the year %d", y)
	}
	return nil
}

// heartbeatInterval returns the interval that the server requests, from minInterval to maxInterval.
func heartbeatInterval(seconds int) time.Duration {
	seconds = min(seconds, int(maxInterval/time.Second)) // before the multiplication, which could overflow
	return max(time.Duration(seconds)*time.Second, minInterval)
}

// notKnown handles the error of a heartbeat. It returns errRevoked if the control plane has revoked
// the site, and otherwise err. A response of 401 alone is not final: a control plane that was
// restored from a backup may know the site again in an hour.
func (a *Agent) notKnown(ctx context.Context, s *session, err error) error {
	var r *answer.Refusal
	if !errors.As(err, &r) || r.Status != http.StatusUnauthorized && !r.EndsSite() {
		a.unknownSince = time.Time{}
		return err
	}
	if r.Code == "" {
		return err // from a proxy
	}
	if !r.EndsSite() {
		if a.unknownSince.IsZero() {
			a.unknownSince = a.now()
		}
		// According to the contract, a request to renew the certificate of a revoked site is
		// refused with site_revoked.
		renewal := a.renew(ctx, s)
		if !errors.As(renewal, &r) || !r.EndsSite() {
			return fmt.Errorf("the control plane does not know this site, and is asked again; "+
				"if the site was deleted there, start the agent with --enroll-again (%w)", err)
		}
	}
	a.revoked(s, r)
	return errRevoked
}

// revoked records that the control plane has revoked the site.
func (a *Agent) revoked(s *session, r *answer.Refusal) {
	a.link.set(Refused, r.Error())
	if s.id.Refused != "" {
		return // already known
	}
	a.log.Error(
		"the control plane has revoked this site; nothing is sent but a question every hour, and what is kept stays. "+
			"To enroll a new site, start the agent with --enroll-again",
		"site",
		s.site(),
		"reason",
		r.Error(),
	)
	id := *s.id
	id.Refused = r.Error()
	if err := a.identity.put(id); err != nil {
		a.log.Error("that the site is revoked could not be stored", "error", err) // the next heartbeat detects it again
	}
}
