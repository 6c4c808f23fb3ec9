package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/backoff"
	"github.com/mainstay-infra/mainstay/service/agent/answer"
)

const (
	reportRetryMax = 5 * time.Minute  // between two attempts to reach the control plane
	reportTimeout  = 30 * time.Second // of one request
)

// report sends statuses to the control plane until ctx is done. It sends only the latest status of
// each deployment, since outdated ones are of no use.
func (m *Manager) report(ctx context.Context, server func() (*edgeapi.Client, string, bool)) {
	retry := backoff.Backoff{Min: m.cfg.ReportRetry, Max: reportRetryMax, Rand: rand.Float64}
	for {
		wait := time.Duration(0)
		if client, site, ok := server(); ok {
			if err := m.reportOnce(ctx, client, site); err != nil && ctx.Err() == nil {
				wait = retry.Next(answer.RetryAfter(err))
				m.cfg.Log.Warn("report deployments", "error", err, "again_in", wait.Round(time.Millisecond))
			} else {
				retry.Reset()
			}
		} else {
			wait = m.cfg.ReportRetry
		}
		if wait > 0 {
			if sleep(ctx, wait) != nil {
				return
			}
			continue
		}
		select {
		case <-m.news:
		case <-ctx.Done():
			return
		}
	}
}

func (m *Manager) reportOnce(ctx context.Context, client *edgeapi.Client, site string) error {
	rows, err := m.store.list(ctx)
	if err != nil {
		return err
	}
	for _, r := range rows {
		if r.Removed {
			continue
		}
		if !r.Reported {
			if err := m.tell(ctx, client, site, r); err != nil {
				return err
			}
		}
		if r.Rollback != "" {
			if err := m.askRollback(ctx, client, site, r); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *Manager) tell(ctx context.Context, client *edgeapi.Client, site string, r row) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	body := edgeapi.DeploymentReport{
		SiteId:           site,
		Status:           edgeapi.DeploymentStatus(r.Status),
		Message:          &r.Message,
		ObservedRevision: &r.Revision,
	}
	d, err := answer.Decode[edgeapi.Deployment](answer.Read(client.ReportDeploymentStatus(ctx, r.ID, body)))
	var refused *answer.Refusal
	switch {
	case errors.As(err, &refused) && refused.Final(): // it was deleted, or the next pull explains it
		m.cfg.Log.Warn(
			"the control plane does not take a deployment's status",
			"deployment",
			r.ID,
			"answer",
			refused.Error(),
		)
	case err != nil:
		return fmt.Errorf("report deployment %s: %w", r.ID, err)
	case d.Id != r.ID:
		return answer.NewInvalid("it is about deployment %.128q, not %s", d.Id, r.ID)
	}
	return m.store.reported(context.WithoutCancel(ctx), r)
}

// askRollback asks the control plane to roll back to the version that runs here.
func (m *Manager) askRollback(ctx context.Context, client *edgeapi.Client, site string, r row) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	result, err := answer.Decode[edgeapi.RollbackResult](
		answer.Read(client.RollbackDeployment(ctx, r.ID, edgeapi.RollbackRequest{SiteId: site, Reason: &r.Rollback})),
	)
	var refused *answer.Refusal
	if err != nil && (!errors.As(err, &refused) || !refused.Final()) {
		return fmt.Errorf("roll back deployment %s: %w", r.ID, err)
	}
	var desired *edgeapi.AgentDeployment
	if err == nil && result.RolledBack {
		if result.Deployment.Id != r.ID || result.Deployment.SiteId != site {
			return answer.NewInvalid(
				"it is about deployment %.128q of site %.128q, not %s",
				result.Deployment.Id,
				result.Deployment.SiteId,
				r.ID,
			)
		}
		back := agentDeployment(result.Deployment)
		desired = &back
	}
	if err := m.store.rolledBack(context.WithoutCancel(ctx), r, desired); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.workers[r.ID]; w != nil {
		w.wake()
	}
	return nil
}

// agentDeployment converts a deployment that the control plane has just allowed.
func agentDeployment(d edgeapi.Deployment) edgeapi.AgentDeployment {
	return edgeapi.AgentDeployment{
		Allowed:          true,
		Id:               d.Id,
		SiteId:           d.SiteId,
		OrgId:            d.OrgId,
		Name:             d.Name,
		Image:            d.Image,
		Version:          d.Version,
		DesiredState:     d.DesiredState,
		Env:              d.Env,
		Ports:            d.Ports,
		PullPolicy:       d.PullPolicy,
		Restart:          d.Restart,
		Health:           d.Health,
		Revision:         d.Revision,
		ObservedRevision: d.ObservedRevision,
		Previous:         d.Previous,
		Status:           d.Status,
		Message:          d.Message,
		CreatedAt:        d.CreatedAt,
		UpdatedAt:        d.UpdatedAt,
	}
}
