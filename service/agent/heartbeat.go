package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
	"github.com/mainstay-infra/mainstay/service/agent/backoff"
)

const (
	heartbeatTimeout = 20 * time.Second
	heartbeatJitter  = 0.1 // of the interval, to both sides
	minInterval      = time.Second
	maxInterval      = time.Hour
	// A clock that is further off than this is worth a line in the log.
	notableSkew = 30 * time.Second
	// renewRetry is how long a renewal that failed is left alone.
	renewRetry = 10 * time.Minute
)

// errRefused ends the talk with the control plane.
var errRefused = errors.New("the control plane has refused this site")

// keepLink enrolls, sends heartbeats and renews the certificate until ctx ends. It
// alone decides whether there is a link.
func (a *Agent) keepLink(ctx context.Context) {
	retry := backoff.Backoff{Min: time.Second, Max: a.cfg.RetryMax, Rand: a.random}
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
		switch {
		case id == nil:
			a.link.set(Enrolling, a.link.reason())
			err = a.enroll(ctx)
		case id.Refused != "":
			if !a.comeBack(ctx, id) {
				return
			}
			continue
		default:
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
		var wait time.Duration
		switch {
		case errors.Is(err, errRefused):
			continue
		case err != nil && id == nil:
			wait = retry.Next(asked(err))
			a.link.set(Enrolling, explain(err))
			a.log.Warn("enrollment failed", "error", explain(err), "next_attempt_in", wait.Round(time.Millisecond))
		case err != nil:
			wait = retry.Next(asked(err))
			a.goneOffline(err, wait)
		case id == nil:
			retry.Reset()
			continue // the first heartbeat
		default:
			retry.Reset()
			wait = a.nextBeat()
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-a.link.lost:
			// Another loop could not reach the server. It is not asked at once, either.
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

func (l *link) reason() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastErr
}

func (a *Agent) goneOffline(err error, wait time.Duration) {
	if _, online := a.link.online(); online {
		a.log.Warn("the link is lost", "error", explain(err))
	} else {
		a.log.Debug("no link", "error", explain(err), "next_attempt_in", wait.Round(time.Millisecond))
	}
	a.link.set(Offline, explain(err))
}

// nextBeat is the interval with its jitter.
func (a *Agent) nextBeat() time.Duration {
	a.link.mu.Lock()
	interval := a.link.interval
	a.link.mu.Unlock()
	return time.Duration(float64(interval) * (1 + heartbeatJitter*(2*a.random()-1)))
}

// beat sends one heartbeat and takes in what its answer says.
func (a *Agent) beat(ctx context.Context, s *session) error {
	version := telemetry.BuildInfo().Version
	limited, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	sent := a.now()
	reply, err := decode[edgeapi.HeartbeatReply](read(s.api.Heartbeat(limited, edgeapi.HeartbeatInput{Version: &version})))
	if err != nil {
		return a.refusedOr(s, err)
	}
	if reply.SiteId != s.site() {
		return fmt.Errorf("the server takes this agent for site %s, not %s; is --server the right one?", reply.SiteId, s.site())
	}
	// The answer was made somewhere between; the middle is the best guess.
	received := a.now()
	skew := reply.ServerTime.Sub(sent.Add(received.Sub(sent) / 2))
	if before := a.link.clockSkew(); skew.Abs() > notableSkew && (before == nil || before.Abs() <= notableSkew) {
		a.log.Warn("this machine's clock and the control plane's differ", "server_is_ahead_by", skew.Round(time.Second))
	}
	interval := min(max(time.Duration(reply.HeartbeatIntervalSeconds)*time.Second, minInterval), maxInterval)
	if _, online := a.link.online(); !online {
		a.log.Info("online", "site", s.site(), "heartbeat_every", interval)
	}
	a.link.answered(s, interval, skew, reply.DesiredRevision)
	if (reply.RenewCertificate || s.id.renewalDue(a.serverNow())) && a.now().After(a.renewNotBefore) {
		if err := a.renew(ctx, s); err != nil {
			a.renewNotBefore = a.now().Add(max(renewRetry, asked(err)))
			a.log.Warn("the certificate was not renewed", "error", explain(err))
			return a.endedBy(s, err)
		}
	}
	return nil
}

// refusedOr returns err, or errRefused if err says that the site is to keep quiet.
func (a *Agent) refusedOr(s *session, err error) error {
	if ended := a.endedBy(s, err); ended != nil {
		return ended
	}
	return err
}

// endedBy notes a refusal of the site that an error brings; otherwise it is nil.
func (a *Agent) endedBy(s *session, err error) error {
	var r *refusal
	if !errors.As(err, &r) || !r.endsSite() {
		return nil
	}
	id := *s.id
	id.Refused = r.Error()
	if current := a.identity.get(); current != nil && current.SiteID == id.SiteID && current.Refused == "" {
		if putErr := a.identity.put(id); putErr != nil {
			return putErr // the next heartbeat finds out again
		}
	}
	a.link.set(Refused, id.Refused)
	a.log.Error("the control plane has refused this site; nothing is sent any more and what is kept stays. To enroll a new site, start the agent with --enroll-again",
		"site", id.SiteID, "reason", id.Refused)
	signal(a.link.lost)
	return errRefused
}

// comeBack enrolls anew if that is wanted, and else keeps quiet until ctx ends,
// which it reports as false.
func (a *Agent) comeBack(ctx context.Context, id *Identity) bool {
	a.link.set(Refused, id.Refused)
	if a.cfg.EnrollAgain && a.enrollmentToken != "" {
		err := a.identity.drop()
		if err == nil {
			a.log.Warn("enrolling a new site in the place of the refused one", "site", id.SiteID)
			// A control plane that refuses what it has just enrolled is not to be
			// flooded with sites.
			return backoff.Sleep(ctx, time.Second+time.Duration(a.random()*float64(min(a.nextBeat(), a.cfg.RetryMax))))
		}
		a.log.Error("the refused identity could not be given up", "error", err)
	}
	<-ctx.Done()
	return false
}
