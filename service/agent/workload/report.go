package workload

import (
	"context"
	"fmt"
	"net/http"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
)

// reportRetry is the time between two attempts to reach the control plane.
const reportRetry = 5 * time.Second

// report tells the control plane what it has not heard yet, until ctx is done.
// Only the last word on each deployment is told: what was true in between helps
// nobody any more.
func (m *Manager) report(ctx context.Context, server func() (*edgeapi.ClientWithResponses, string, bool)) {
	for {
		wait := time.Duration(0)
		if client, site, ok := server(); ok {
			if err := m.reportOnce(ctx, client, site); err != nil && ctx.Err() == nil {
				m.cfg.Log.Warn("report deployments", "error", err)
				wait = reportRetry
			}
		} else {
			wait = reportRetry
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

func (m *Manager) reportOnce(ctx context.Context, client *edgeapi.ClientWithResponses, site string) error {
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

func (m *Manager) tell(ctx context.Context, client *edgeapi.ClientWithResponses, site string, r row) error {
	body := edgeapi.DeploymentReport{SiteId: site, Status: edgeapi.DeploymentStatus(r.Status), Message: &r.Message, ObservedRevision: &r.Revision}
	answer, err := client.ReportDeploymentStatusWithResponse(ctx, r.ID, body)
	if err != nil {
		return err
	}
	if worthAnother(answer.StatusCode()) {
		return fmt.Errorf("report deployment %s: the control plane answered %s", r.ID, answer.Status())
	}
	if answer.StatusCode() != http.StatusOK { // it is gone, or the next pull explains
		m.cfg.Log.Warn("the control plane does not take a deployment's status", "deployment", r.ID, "answer", answer.Status())
	}
	return m.store.reported(ctx, r)
}

// askRollback has the control plane go back to the version that runs here.
func (m *Manager) askRollback(ctx context.Context, client *edgeapi.ClientWithResponses, site string, r row) error {
	answer, err := client.RollbackDeploymentWithResponse(ctx, r.ID, edgeapi.RollbackRequest{SiteId: site, Reason: &r.Rollback})
	if err != nil {
		return err
	}
	if worthAnother(answer.StatusCode()) {
		return fmt.Errorf("roll back deployment %s: the control plane answered %s", r.ID, answer.Status())
	}
	var desired *edgeapi.AgentDeployment
	if answer.JSON200 != nil && answer.JSON200.RolledBack {
		back := agentDeployment(answer.JSON200.Deployment)
		desired = &back
	}
	if err := m.store.rolledBack(ctx, r, desired); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.workers[r.ID]; w != nil {
		w.wake()
	}
	return nil
}

// agentDeployment is a deployment that the control plane has just allowed.
func agentDeployment(d edgeapi.Deployment) edgeapi.AgentDeployment {
	return edgeapi.AgentDeployment{Allowed: true, Id: d.Id, SiteId: d.SiteId, OrgId: d.OrgId, Name: d.Name, Image: d.Image, Version: d.Version, DesiredState: d.DesiredState,
		Env: d.Env, Ports: d.Ports, PullPolicy: d.PullPolicy, Restart: d.Restart, Health: d.Health, Revision: d.Revision, ObservedRevision: d.ObservedRevision,
		Previous: d.Previous, Status: d.Status, Message: d.Message, CreatedAt: d.CreatedAt, UpdatedAt: d.UpdatedAt}
}

// worthAnother reports whether a later attempt may have another answer.
func worthAnother(status int) bool {
	return status >= 500 || status == http.StatusTooManyRequests || status == http.StatusUnauthorized
}
