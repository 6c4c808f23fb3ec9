package edge

import (
	"context"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/list"
)

func apiDeployment(d Deployment) edgeapi.Deployment {
	out := edgeapi.Deployment{
		Id:               d.ID,
		SiteId:           d.SiteID,
		OrgId:            d.OrgID,
		Name:             d.Name,
		Image:            d.Image,
		Version:          d.Version,
		DesiredState:     edgeapi.DesiredState(d.DesiredState),
		Env:              orEmpty(d.Env.V),
		Ports:            list.Each(d.Ports.V, apiPort),
		PullPolicy:       edgeapi.PullPolicy(d.PullPolicy),
		Restart:          edgeapi.RestartPolicy(d.Restart),
		Health:           apiHealth(d.Health.V),
		Revision:         d.Revision,
		ObservedRevision: d.ObservedRevision,
		Status:           edgeapi.DeploymentStatus(d.Status),
		Message:          d.Message,
		CreatedAt:        d.CreatedAt.Time,
		UpdatedAt:        d.UpdatedAt.Time,
	}
	if d.Site.Status != "" {
		out.SiteStatus, out.SiteLastSeenAt = ref(edgeapi.SiteStatus(d.Site.Status)), d.Site.LastSeenAt.Ptr()
	}
	if d.PreviousImage != "" {
		out.Previous = &edgeapi.Release{Image: d.PreviousImage, Version: d.PreviousVersion}
	}
	return out
}

func apiPort(p Port) edgeapi.Port {
	out := edgeapi.Port{ContainerPort: p.ContainerPort, Protocol: ref(edgeapi.PortProtocol(p.Protocol))}
	if p.HostPort != 0 {
		out.HostPort = &p.HostPort
	}
	return out
}

func apiHealth(h *HealthCheck) *edgeapi.HealthCheck {
	if h == nil {
		return nil
	}
	return &edgeapi.HealthCheck{
		Command:            h.Command,
		IntervalSeconds:    &h.IntervalSeconds,
		TimeoutSeconds:     &h.TimeoutSeconds,
		Retries:            &h.Retries,
		StartPeriodSeconds: &h.StartPeriodSeconds,
	}
}

// health fills in the contract's defaults for fields that are not set.
func health(in *edgeapi.HealthCheck) *HealthCheck {
	if in == nil {
		return nil
	}
	h := &HealthCheck{Command: in.Command, IntervalSeconds: 10, TimeoutSeconds: 5, Retries: 3}
	set(&h.IntervalSeconds, in.IntervalSeconds)
	set(&h.TimeoutSeconds, in.TimeoutSeconds)
	set(&h.Retries, in.Retries)
	set(&h.StartPeriodSeconds, in.StartPeriodSeconds)
	return h
}

func ports(in *[]edgeapi.Port) []Port {
	if in == nil {
		return nil
	}
	return list.Each(*in, func(p edgeapi.Port) Port {
		return Port{ContainerPort: p.ContainerPort, HostPort: value(p.HostPort), Protocol: string(value(p.Protocol))}
	})
}

// ListDeployments lists deployments in scope.
func (a api) ListDeployments(
	ctx context.Context, req edgeapi.ListDeploymentsRequestObject,
) (edgeapi.ListDeploymentsResponseObject, error) {
	q := req.Params
	var order list.Order
	out, next, err := list.Rows(ctx, q.Limit, q.Cursor, 100, func(after string, limit int) (all []Deployment, err error) {
		all, order, err = a.s.Deployments(ctx, DeploymentFilter{
			SiteID: value(q.SiteId),
			Status: list.Each(value(q.Status), func(s edgeapi.KnownDeploymentStatus) string { return string(s) }),
			Text:   value(q.Q),
			Sort:   string(value(q.Sort)),
			After:  after,
			Limit:  limit,
		})
		return all, err
	}, func(d Deployment) string { return deploymentKey(order, d) }, apiDeployment)
	return edgeapi.ListDeployments200JSONResponse{
		Body:    out,
		Headers: edgeapi.ListDeployments200ResponseHeaders{Link: next},
	}, err
}

// CreateDeployment deploys an image to a site.
func (a api) CreateDeployment(
	ctx context.Context, req edgeapi.CreateDeploymentRequestObject,
) (edgeapi.CreateDeploymentResponseObject, error) {
	b := req.Body
	d, err := a.s.CreateDeployment(ctx, b.SiteId, b.Name, DeploymentInput{
		Image:        &b.Image,
		Version:      &b.Version,
		DesiredState: (*string)(b.DesiredState),
		Env:          value(b.Env),
		Ports:        ports(b.Ports),
		PullPolicy:   (*string)(b.PullPolicy),
		Restart:      (*string)(b.Restart),
		Health:       health(b.Health),
	})
	if err != nil {
		return nil, err
	}
	return edgeapi.CreateDeployment201JSONResponse(apiDeployment(d)), nil
}

// GetDeployment returns one deployment.
func (a api) GetDeployment(
	ctx context.Context, req edgeapi.GetDeploymentRequestObject,
) (edgeapi.GetDeploymentResponseObject, error) {
	d, err := a.s.Deployment(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	return edgeapi.GetDeployment200JSONResponse(apiDeployment(d)), nil
}

// PatchDeployment changes a deployment.
func (a api) PatchDeployment(
	ctx context.Context, req edgeapi.PatchDeploymentRequestObject,
) (edgeapi.PatchDeploymentResponseObject, error) {
	b := req.Body
	d, err := a.s.PatchDeployment(ctx, req.Id, DeploymentInput{
		Image:        b.Image,
		Version:      b.Version,
		DesiredState: (*string)(b.DesiredState),
		Env:          value(b.Env),
		Ports:        ports(b.Ports),
		PullPolicy:   (*string)(b.PullPolicy),
		Restart:      (*string)(b.Restart),
		Health:       health(b.Health),
	})
	if err != nil {
		return nil, err
	}
	return edgeapi.PatchDeployment200JSONResponse(apiDeployment(d)), nil
}

// DeleteDeployment deletes a deployment.
func (a api) DeleteDeployment(
	ctx context.Context, req edgeapi.DeleteDeploymentRequestObject,
) (edgeapi.DeleteDeploymentResponseObject, error) {
	return edgeapi.DeleteDeployment204Response{}, a.s.DeleteDeployment(ctx, req.Id)
}

// ListAgentDeployments lists the calling site's deployments.
func (a api) ListAgentDeployments(
	ctx context.Context, req edgeapi.ListAgentDeploymentsRequestObject,
) (edgeapi.ListAgentDeploymentsResponseObject, error) {
	out, next, err := list.Rows(
		ctx,
		req.Params.Limit,
		req.Params.Cursor,
		100,
		func(after string, limit int) ([]AgentDeployment, error) {
			return a.s.AgentDeployments(ctx, value(req.Params.SiteId), after, limit)
		},
		func(d AgentDeployment) string { return d.ID },
		apiAgentDeployment,
	)
	return edgeapi.ListAgentDeployments200JSONResponse{
		Body:    out,
		Headers: edgeapi.ListAgentDeployments200ResponseHeaders{Link: next},
	}, err
}

func apiAgentDeployment(d AgentDeployment) edgeapi.AgentDeployment {
	o := apiDeployment(d.Deployment)
	return edgeapi.AgentDeployment{
		Allowed:          d.Allowed,
		Id:               o.Id,
		SiteId:           o.SiteId,
		OrgId:            o.OrgId,
		Name:             o.Name,
		Image:            o.Image,
		Version:          o.Version,
		DesiredState:     o.DesiredState,
		Env:              o.Env,
		Ports:            o.Ports,
		PullPolicy:       o.PullPolicy,
		Restart:          o.Restart,
		Health:           o.Health,
		Revision:         o.Revision,
		ObservedRevision: o.ObservedRevision,
		Previous:         o.Previous,
		Status:           o.Status,
		Message:          o.Message,
		CreatedAt:        o.CreatedAt,
		UpdatedAt:        o.UpdatedAt,
	}
}

// ReportDeploymentStatus stores an agent's report on a deployment.
func (a api) ReportDeploymentStatus(
	ctx context.Context, req edgeapi.ReportDeploymentStatusRequestObject,
) (edgeapi.ReportDeploymentStatusResponseObject, error) {
	b := req.Body
	d, err := a.s.ReportDeployment(ctx, req.Id, DeploymentReport{
		SiteID:           b.SiteId,
		Status:           string(b.Status),
		Message:          value(b.Message),
		ObservedRevision: b.ObservedRevision,
	})
	if err != nil {
		return nil, err
	}
	return edgeapi.ReportDeploymentStatus200JSONResponse(apiDeployment(d)), nil
}

// RollbackDeployment goes back to the previous release.
func (a api) RollbackDeployment(
	ctx context.Context, req edgeapi.RollbackDeploymentRequestObject,
) (edgeapi.RollbackDeploymentResponseObject, error) {
	d, rolledBack, err := a.s.RollbackDeployment(ctx, req.Id, req.Body.SiteId, value(req.Body.Reason))
	if err != nil {
		return nil, err
	}
	return edgeapi.RollbackDeployment200JSONResponse{RolledBack: rolledBack, Deployment: apiDeployment(d)}, nil
}

func apiPolicyPack(p PolicyPack) edgeapi.PolicyPack {
	images := p.AllowedImages.V
	if images == nil {
		images = []string{}
	}
	return edgeapi.PolicyPack{
		Id:            p.ID,
		OrgId:         p.OrgID,
		Name:          p.Name,
		Version:       p.Version,
		SiteId:        p.SiteID,
		Enabled:       p.Enabled,
		AllowedImages: images,
		CreatedAt:     p.CreatedAt.Time,
		UpdatedAt:     p.UpdatedAt.Time,
	}
}

// ListPolicyPacks lists the packs that the caller may see.
func (a api) ListPolicyPacks(
	ctx context.Context, req edgeapi.ListPolicyPacksRequestObject,
) (edgeapi.ListPolicyPacksResponseObject, error) {
	out, next, err := list.Rows(
		ctx,
		req.Params.Limit,
		req.Params.Cursor,
		100,
		func(after string, limit int) ([]PolicyPack, error) {
			return a.s.PolicyPacks(ctx, after, limit)
		},
		func(p PolicyPack) string { return p.ID },
		apiPolicyPack,
	)
	return edgeapi.ListPolicyPacks200JSONResponse{
		Body:    out,
		Headers: edgeapi.ListPolicyPacks200ResponseHeaders{Link: next},
	}, err
}

// ListAgentPolicyPacks lists the packs that apply to the calling site.
func (a api) ListAgentPolicyPacks(
	ctx context.Context, req edgeapi.ListAgentPolicyPacksRequestObject,
) (edgeapi.ListAgentPolicyPacksResponseObject, error) {
	out, next, err := list.Rows(
		ctx,
		req.Params.Limit,
		req.Params.Cursor,
		100,
		func(after string, limit int) ([]PolicyPack, error) {
			return a.s.AgentPolicyPacks(ctx, value(req.Params.SiteId), after, limit)
		},
		func(p PolicyPack) string { return p.ID },
		apiPolicyPack,
	)
	return edgeapi.ListAgentPolicyPacks200JSONResponse{
		Body:    out,
		Headers: edgeapi.ListAgentPolicyPacks200ResponseHeaders{Link: next},
	}, err
}

// CheckImage checks an image against the packs.
func (a api) CheckImage(
	ctx context.Context, req edgeapi.CheckImageRequestObject,
) (edgeapi.CheckImageResponseObject, error) {
	v, err := a.s.CheckImage(ctx, req.Body.Image, value(req.Body.SiteId))
	if err != nil {
		return nil, err
	}
	out := edgeapi.CheckImage200JSONResponse{Image: v.Image, Allowed: v.Allowed, Packs: v.Packs}
	out.Matches = make([]struct {
		PackId   string `json:"pack_id"`
		PackName string `json:"pack_name"`
		Pattern  string `json:"pattern"`
	}, len(v.Matches))
	for i, m := range v.Matches {
		out.Matches[i].PackId, out.Matches[i].PackName, out.Matches[i].Pattern = m.PackID, m.PackName, m.Pattern
	}
	return out, nil
}

// CreatePolicyPack creates a pack.
func (a api) CreatePolicyPack(
	ctx context.Context, req edgeapi.CreatePolicyPackRequestObject,
) (edgeapi.CreatePolicyPackResponseObject, error) {
	b := req.Body
	p := PolicyPack{
		Name:          b.Name,
		SiteID:        value(b.SiteId),
		Enabled:       true,
		AllowedImages: db.JSON[[]string]{V: value(b.AllowedImages)},
	}
	set(&p.Enabled, b.Enabled)
	p, err := a.s.CreatePolicyPack(ctx, p)
	if err != nil {
		return nil, err
	}
	return edgeapi.CreatePolicyPack201JSONResponse(apiPolicyPack(p)), nil
}

// GetPolicyPack returns one pack.
func (a api) GetPolicyPack(
	ctx context.Context, req edgeapi.GetPolicyPackRequestObject,
) (edgeapi.GetPolicyPackResponseObject, error) {
	p, err := a.s.PolicyPack(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	return edgeapi.GetPolicyPack200JSONResponse(apiPolicyPack(p)), nil
}

// PatchPolicyPack changes a pack.
func (a api) PatchPolicyPack(
	ctx context.Context, req edgeapi.PatchPolicyPackRequestObject,
) (edgeapi.PatchPolicyPackResponseObject, error) {
	p, err := a.s.PatchPolicyPack(
		ctx, req.Id,
		PolicyPackInput{Name: req.Body.Name, Enabled: req.Body.Enabled, AllowedImages: value(req.Body.AllowedImages)},
	)
	if err != nil {
		return nil, err
	}
	return edgeapi.PatchPolicyPack200JSONResponse(apiPolicyPack(p)), nil
}

// DeletePolicyPack deletes a pack.
func (a api) DeletePolicyPack(
	ctx context.Context, req edgeapi.DeletePolicyPackRequestObject,
) (edgeapi.DeletePolicyPackResponseObject, error) {
	return edgeapi.DeletePolicyPack204Response{}, a.s.DeletePolicyPack(ctx, req.Id)
}
