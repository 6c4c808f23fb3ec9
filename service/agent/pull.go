package agent

import (
	"context"
	"errors"
	"net/http"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/service/agent/ota"
	"github.com/mainstay-infra/mainstay/service/agent/twin"
)

// pageSize is small because a twin can have 64 KiB and the agent little memory.
const pageSize = 20

// pull takes in what is desired of the site.
func (a *Agent) pull(ctx context.Context, s *session) error {
	limit := pageSize
	devices := map[string]bool{}
	err := pages(ctx, func(ctx context.Context, cursor *string) (*http.Response, error) {
		return s.api.ListAgentTwins(ctx, &edgeapi.ListAgentTwinsParams{Limit: &limit, Cursor: cursor})
	}, func(page []edgeapi.Twin) error { return a.takeTwins(ctx, page, devices) })
	if err != nil {
		return err
	}
	if err := a.twins.Retain(ctx, devices); err != nil {
		return err
	}
	if err := a.updates.Retain(ctx, devices); err != nil {
		return err
	}
	var deployments []edgeapi.AgentDeployment
	err = pages(ctx, func(ctx context.Context, cursor *string) (*http.Response, error) {
		return s.api.ListAgentDeployments(ctx, &edgeapi.ListAgentDeploymentsParams{Limit: &limit, Cursor: cursor})
	}, func(page []edgeapi.AgentDeployment) error {
		deployments = append(deployments, page...)
		return nil
	})
	if err != nil {
		return err
	}
	var packs []edgeapi.PolicyPack
	err = pages(ctx, func(ctx context.Context, cursor *string) (*http.Response, error) {
		return s.api.ListAgentPolicyPacks(ctx, &edgeapi.ListAgentPolicyPacksParams{Limit: &limit, Cursor: cursor})
	}, func(page []edgeapi.PolicyPack) error {
		packs = append(packs, page...)
		return nil
	})
	if err != nil {
		return err
	}
	return a.workloads.SetDesired(ctx, deployments, packs)
}

func (a *Agent) takeTwins(ctx context.Context, page []edgeapi.Twin, devices map[string]bool) error {
	pulled := make([]twin.Pulled, len(page))
	for i, t := range page {
		devices[t.DeviceId] = true
		pulled[i] = twin.Pulled{DeviceID: t.DeviceId, Desired: t.Desired, Reported: t.Reported, DesiredVersion: t.DesiredVersion, ReportedVersion: t.ReportedVersion}
	}
	if err := a.twins.Pull(ctx, pulled); err != nil {
		return err
	}
	for _, t := range page {
		wanted, err := ota.ParseTwin(t.DeviceId, t.Desired, t.Reported)
		if err != nil {
			a.log.Warn("the update that is asked for cannot be understood", "device", t.DeviceId, "error", err)
			continue
		}
		if err := a.updates.Want(ctx, wanted); err != nil {
			return err
		}
	}
	return nil
}

// pages reads a list page by page, following its Link headers (RFC 8288).
func pages[T any](ctx context.Context, fetch func(ctx context.Context, cursor *string) (*http.Response, error), take func([]T) error) error {
	var cursor *string
	for {
		limited, cancel := context.WithTimeout(ctx, forwardTimeout)
		body, header, err := read(fetch(limited, cursor))
		cancel()
		page, err := decode[[]T](body, header, err)
		if err != nil {
			return err
		}
		if err := take(page); err != nil {
			return err
		}
		next := httpserve.NextCursor(header)
		if next == "" {
			return nil
		}
		if len(page) == 0 || cursor != nil && next == *cursor {
			return errors.New("the server's list does not end")
		}
		cursor = &next
	}
}
