package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/rest"
	"github.com/mainstay-infra/mainstay/service/agent/answer"
	"github.com/mainstay-infra/mainstay/service/agent/ota"
	"github.com/mainstay-infra/mainstay/service/agent/twin"
)

// pageSize is small because a twin can have 64 KiB and the agent little memory.
const pageSize = 20

// maxPages limits the length of a list. A site has fewer than a million devices.
const maxPages = 1_000_000 / pageSize

// pull fetches the desired state of the site.
func (a *Agent) pull(ctx context.Context, s *session) error {
	limit := pageSize
	devices := map[string]bool{}
	err := pages(ctx, func(ctx context.Context, cursor *string) (*http.Response, error) {
		return s.api.ListAgentTwins(ctx, &edgeapi.ListAgentTwinsParams{Limit: &limit, Cursor: cursor})
	}, func(page []edgeapi.Twin) error {
		for _, t := range page {
			if err := checkTwin(t); err != nil {
				return err
			}
			if t.SiteId != s.site() {
				return foreignItem("twin", t.DeviceId, t.SiteId)
			}
		}
		return a.takeTwins(ctx, page, devices)
	})
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
		for _, d := range page {
			if d.Id == "" || d.SiteId != s.site() {
				return foreignItem("deployment", d.Id, d.SiteId)
			}
		}
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

func foreignItem(what, id, site string) error {
	return answer.NewInvalid("a %s (%.128q) of site %.128q is in the list", what, id, site)
}

// checkTwin checks conditions on a twin that the contract cannot express.
func checkTwin(t edgeapi.Twin) error {
	if t.DeviceId == "" || strings.ContainsRune(t.DeviceId, 0) {
		return answer.NewInvalid("a twin has the device id %.128q", t.DeviceId)
	}
	for _, state := range []json.RawMessage{t.Desired, t.Reported} {
		if !bytes.HasPrefix(bytes.TrimSpace(state), []byte("{")) {
			return answer.NewInvalid("a state of device %.128q is not an object", t.DeviceId)
		}
	}
	return nil
}

func (a *Agent) takeTwins(ctx context.Context, page []edgeapi.Twin, devices map[string]bool) error {
	pulled := make([]twin.Pulled, len(page))
	for i, t := range page {
		devices[t.DeviceId] = true
		pulled[i] = twin.Pulled{
			DeviceID:        t.DeviceId,
			Desired:         t.Desired,
			Reported:        t.Reported,
			DesiredVersion:  t.DesiredVersion,
			ReportedVersion: t.ReportedVersion,
		}
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
func pages[T any](
	ctx context.Context, fetch func(ctx context.Context, cursor *string) (*http.Response, error), take func([]T) error,
) error {
	var cursor *string
	for range maxPages {
		limited, cancel := context.WithTimeout(ctx, forwardTimeout)
		body, err := answer.Read(fetch(limited, cursor))
		cancel()
		page, err := answer.Decode[[]T](body, err)
		if err != nil {
			return err
		}
		if err := take(page); err != nil {
			return err
		}
		next := rest.NextCursor(body.Header)
		if next == "" {
			return nil
		}
		if len(page) == 0 || cursor != nil && next == *cursor {
			break
		}
		cursor = &next
	}
	return answer.NewInvalid("the list does not end")
}
