package edge

import (
	"context"
	"encoding/json"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/service/edge/ota"
	"github.com/mainstay-infra/mainstay/service/edge/twin"
)

func apiDevice(d Device) edgeapi.Device {
	return edgeapi.Device{
		DeviceId:        d.DeviceID,
		SiteId:          d.SiteID,
		OrgId:           d.OrgID,
		Name:            d.Name,
		Model:           d.Model,
		FirmwareVersion: d.FirmwareVersion,
		Labels:          orEmpty(d.Labels.V),
		RegisteredAt:    d.RegisteredAt.Time,
		LastSeenAt:      d.LastSeenAt.Time,
	}
}

func apiTwin(d Device) edgeapi.Twin {
	return edgeapi.Twin{DeviceId: d.DeviceID, SiteId: d.SiteID, Desired: d.ShownDesired(), Reported: d.ShownReported(),
		DesiredVersion: d.DesiredVersion, ReportedVersion: d.ReportedVersion, UpdatedAt: d.TwinUpdatedAt.Time}
}

func apiOTA(d Device) (edgeapi.OTA, error) {
	out := edgeapi.OTA{
		DeviceId: d.DeviceID,
		Status: edgeapi.OTAStatus{
			RequestId: d.OTARequestID,
			State:     edgeapi.OTAState(d.OTAState),
			Progress:  d.OTAProgress,
			Message:   d.OTAMessage,
			UpdatedAt: d.OTAUpdatedAt.Time,
		},
	}
	return out, json.Unmarshal([]byte(d.OTARequest), &out.Request)
}

func twinKey(d Device) string { return d.DeviceID }

// ListDevices lists devices in scope.
func (a api) ListDevices(
	ctx context.Context, req edgeapi.ListDevicesRequestObject,
) (edgeapi.ListDevicesResponseObject, error) {
	q := req.Params
	var order list.Order
	out, next, err := list.Rows(ctx, q.Limit, q.Cursor, 100, func(after string, limit int) (all []Device, err error) {
		all, order, err = a.s.Devices(ctx, DeviceFilter{
			SiteID: value(q.SiteId),
			OTA:    list.Each(value(q.OtaState), func(s edgeapi.OTAState) ota.State { return ota.State(s) }),
			Text:   value(q.Q),
			Sort:   string(value(q.Sort)),
			After:  after,
			Limit:  limit,
		})
		return all, err
	}, func(d Device) string { return deviceKey(order, d) }, apiDevice)
	return edgeapi.ListDevices200JSONResponse{
		Body:    out,
		Headers: edgeapi.ListDevices200ResponseHeaders{Link: next},
	}, err
}

// RegisterDevice registers a device or updates it.
func (a api) RegisterDevice(
	ctx context.Context, req edgeapi.RegisterDeviceRequestObject,
) (edgeapi.RegisterDeviceResponseObject, error) {
	b := req.Body
	if err := ownSite(ctx, value(b.SiteId)); err != nil {
		return nil, err
	}
	d, created, err := a.s.RegisterDevice(ctx, DeviceInput{
		DeviceID:        b.DeviceId,
		Name:            value(b.Name),
		Model:           value(b.Model),
		FirmwareVersion: value(b.FirmwareVersion),
		Labels:          value(b.Labels),
	})
	switch {
	case err != nil:
		return nil, err
	case created:
		return edgeapi.RegisterDevice201JSONResponse(apiDevice(d)), nil
	}
	return edgeapi.RegisterDevice200JSONResponse(apiDevice(d)), nil
}

// GetDevice returns one device.
func (a api) GetDevice(
	ctx context.Context, req edgeapi.GetDeviceRequestObject,
) (edgeapi.GetDeviceResponseObject, error) {
	d, err := a.s.Device(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	return edgeapi.GetDevice200JSONResponse(apiDevice(d)), nil
}

// DeleteDevice deletes a device.
func (a api) DeleteDevice(
	ctx context.Context, req edgeapi.DeleteDeviceRequestObject,
) (edgeapi.DeleteDeviceResponseObject, error) {
	return edgeapi.DeleteDevice204Response{}, a.s.DeleteDevice(ctx, req.Id)
}

// GetOTA returns a device's update.
func (a api) GetOTA(ctx context.Context, req edgeapi.GetOTARequestObject) (edgeapi.GetOTAResponseObject, error) {
	d, err := a.s.OTA(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	out, err := apiOTA(d)
	return edgeapi.GetOTA200JSONResponse(out), err
}

// RequestOTA requests an update of a device.
func (a api) RequestOTA(
	ctx context.Context, req edgeapi.RequestOTARequestObject,
) (edgeapi.RequestOTAResponseObject, error) {
	b := req.Body
	d, err := a.s.RequestOTA(
		ctx, req.Id,
		OTARequest{Version: b.Version, URL: b.Url, SHA256: b.Sha256, Size: value(b.Size), Force: value(b.Force)},
	)
	if err != nil {
		return nil, err
	}
	return edgeapi.RequestOTA200JSONResponse(apiTwin(d)), nil
}

// ReportOTAStatus stores the progress of a device's update.
func (a api) ReportOTAStatus(
	ctx context.Context, req edgeapi.ReportOTAStatusRequestObject,
) (edgeapi.ReportOTAStatusResponseObject, error) {
	if err := ownSite(ctx, req.Body.SiteId); err != nil {
		return nil, err
	}
	st := req.Body.Status
	d, err := a.s.ReportOTA(ctx, req.Id, OTAReport{
		RequestID: value(st.RequestId),
		State:     ota.State(st.State),
		Progress:  st.Progress,
		Message:   value(st.Message),
	})
	if err != nil {
		return nil, err
	}
	out, err := apiOTA(d)
	return edgeapi.ReportOTAStatus200JSONResponse(out), err
}

// ListTwins lists twins in scope.
func (a api) ListTwins(
	ctx context.Context, req edgeapi.ListTwinsRequestObject,
) (edgeapi.ListTwinsResponseObject, error) {
	out, next, err := list.Rows(
		ctx,
		req.Params.Limit,
		req.Params.Cursor,
		100,
		func(after string, limit int) ([]Device, error) {
			return a.s.Twins(ctx, value(req.Params.SiteId), after, limit)
		},
		twinKey,
		apiTwin,
	)
	return edgeapi.ListTwins200JSONResponse{Body: out, Headers: edgeapi.ListTwins200ResponseHeaders{Link: next}}, err
}

// ListAgentTwins lists the twins of the calling site.
func (a api) ListAgentTwins(
	ctx context.Context, req edgeapi.ListAgentTwinsRequestObject,
) (edgeapi.ListAgentTwinsResponseObject, error) {
	if err := ownSite(ctx, value(req.Params.SiteId)); err != nil {
		return nil, err
	}
	out, next, err := list.Rows(
		ctx,
		req.Params.Limit,
		req.Params.Cursor,
		100,
		func(after string, limit int) ([]Device, error) {
			return a.s.Twins(ctx, callerFrom(ctx).SiteID, after, limit)
		},
		twinKey,
		apiTwin,
	)
	return edgeapi.ListAgentTwins200JSONResponse{
		Body:    out,
		Headers: edgeapi.ListAgentTwins200ResponseHeaders{Link: next},
	}, err
}

// GetTwin returns one twin.
func (a api) GetTwin(ctx context.Context, req edgeapi.GetTwinRequestObject) (edgeapi.GetTwinResponseObject, error) {
	d, err := a.s.Device(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	return edgeapi.GetTwin200JSONResponse{
		Body:    apiTwin(d),
		Headers: edgeapi.GetTwin200ResponseHeaders{ETag: ref(twin.ETag(d.DesiredVersion, d.ReportedVersion))},
	}, nil
}

// PutDesired replaces a twin's desired state.
func (a api) PutDesired(
	ctx context.Context, req edgeapi.PutDesiredRequestObject,
) (edgeapi.PutDesiredResponseObject, error) {
	d, err := a.s.PutDesired(ctx, req.Id, DesiredInput{
		Desired:         req.Body.Desired,
		ExpectedVersion: req.Body.ExpectedVersion,
		IfMatch:         value(req.Params.IfMatch),
	})
	if err != nil {
		return nil, err
	}
	return edgeapi.PutDesired200JSONResponse{
		Body:    apiTwin(d),
		Headers: edgeapi.PutDesired200ResponseHeaders{ETag: ref(twin.ETag(d.DesiredVersion, d.ReportedVersion))},
	}, nil
}

// ReportTwin merges a patch into a twin's reported state.
func (a api) ReportTwin(
	ctx context.Context, req edgeapi.ReportTwinRequestObject,
) (edgeapi.ReportTwinResponseObject, error) {
	if err := ownSite(ctx, value(req.Body.SiteId)); err != nil {
		return nil, err
	}
	d, err := a.s.ReportTwin(ctx, req.Id, req.Body.Reported, req.Body.Version)
	if err != nil {
		return nil, err
	}
	return edgeapi.ReportTwin200JSONResponse(apiTwin(d)), nil
}

func apiCampaign(c Campaign) edgeapi.Campaign {
	t := c.Targets.V
	out := edgeapi.Campaign{
		Id:                   c.ID,
		OrgId:                c.OrgID,
		Name:                 c.Name,
		Version:              c.Version,
		Url:                  c.URL,
		Sha256:               c.SHA256,
		Stages:               c.Stages.V,
		SuccessThreshold:     c.SuccessThreshold,
		FailureThreshold:     c.FailureThreshold,
		MinDevices:           int(c.MinDevices),
		SoakSeconds:          int(c.SoakSeconds),
		DeviceTimeoutSeconds: int(c.DeviceTimeoutSeconds),
		AutoPromote:          c.AutoPromote,
		AutoAbort:            c.AutoAbort,
		Status:               edgeapi.CampaignStatus(c.Status),
		CurrentStage:         c.CurrentStage,
		PausedReason:         c.PausedReason,
		Rollout: edgeapi.CampaignRollout{
			Phase: edgeapi.CampaignRolloutPhase(c.Phase),
			Done:  c.PhaseDone,
			Total: c.PhaseTotal,
		},
		CreatedAt:      c.CreatedAt.Time,
		StartedAt:      c.StartedAt.Ptr(),
		StageStartedAt: c.StageStartedAt.Ptr(),
		FinishedAt:     c.FinishedAt.Ptr(),
		Counts: edgeapi.CampaignCounts{
			Total:      c.Counts.Total(),
			Waiting:    c.Counts.Waiting,
			Pending:    c.Counts.Pending,
			InProgress: c.Counts.InProgress,
			Succeeded:  c.Counts.Succeeded,
			Failed:     c.Counts.Failed,
			Removed:    c.Counts.Removed,
		},
	}
	if c.Size > 0 {
		out.Size = &c.Size
	}
	if len(t.SiteIDs) > 0 {
		out.Targets.SiteIds = &t.SiteIDs
	}
	if len(t.DeviceIDs) > 0 {
		out.Targets.DeviceIds = &t.DeviceIDs
	}
	if len(t.Labels) > 0 {
		out.Targets.Labels = (*edgeapi.Labels)(&t.Labels)
	}
	return out
}

// ListCampaigns lists campaigns in scope.
func (a api) ListCampaigns(
	ctx context.Context, req edgeapi.ListCampaignsRequestObject,
) (edgeapi.ListCampaignsResponseObject, error) {
	q := req.Params
	var order list.Order
	out, next, err := list.Rows(ctx, q.Limit, q.Cursor, 100, func(after string, limit int) (all []Campaign, err error) {
		all, order, err = a.s.Campaigns(ctx, CampaignFilter{
			Status: string(value(q.Status)),
			Paused: q.Paused,
			Text:   value(q.Q),
			Sort:   string(value(q.Sort)),
			After:  after,
			Limit:  limit,
		})
		return all, err
	}, func(c Campaign) string { return campaignKey(order, c) }, apiCampaign)
	return edgeapi.ListCampaigns200JSONResponse{
		Body:    out,
		Headers: edgeapi.ListCampaigns200ResponseHeaders{Link: next},
	}, err
}

// CreateCampaign creates a draft campaign.
func (a api) CreateCampaign(
	ctx context.Context, req edgeapi.CreateCampaignRequestObject,
) (edgeapi.CreateCampaignResponseObject, error) {
	b := req.Body
	c := Campaign{
		Name:                 b.Name,
		Version:              b.Version,
		URL:                  b.Url,
		SHA256:               b.Sha256,
		Size:                 value(b.Size),
		SuccessThreshold:     0.9,
		FailureThreshold:     0.1,
		MinDevices:           1,
		DeviceTimeoutSeconds: 3600,
		SoakSeconds:          int64(value(b.SoakSeconds)),
		AutoPromote:          value(b.AutoPromote),
		AutoAbort:            value(b.AutoAbort),
		Stages:               db.JSON[[]int]{V: value(b.Stages)},
		Targets:              db.JSON[Targets]{V: targetsOf(b.Targets)},
	}
	set(&c.SuccessThreshold, b.SuccessThreshold)
	set(&c.FailureThreshold, b.FailureThreshold)
	if b.MinDevices != nil {
		c.MinDevices = int64(*b.MinDevices)
	}
	if b.DeviceTimeoutSeconds != nil {
		c.DeviceTimeoutSeconds = int64(*b.DeviceTimeoutSeconds)
	}
	c, err := a.s.CreateCampaign(ctx, c)
	if err != nil {
		return nil, err
	}
	return edgeapi.CreateCampaign201JSONResponse(apiCampaign(c)), nil
}

// GetCampaign returns one campaign.
func (a api) GetCampaign(
	ctx context.Context, req edgeapi.GetCampaignRequestObject,
) (edgeapi.GetCampaignResponseObject, error) {
	c, err := a.s.Campaign(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	return edgeapi.GetCampaign200JSONResponse(apiCampaign(c)), nil
}

// ListCampaignDevices lists a campaign's devices.
func (a api) ListCampaignDevices(
	ctx context.Context, req edgeapi.ListCampaignDevicesRequestObject,
) (edgeapi.ListCampaignDevicesResponseObject, error) {
	out, next, err := list.Rows(
		ctx,
		req.Params.Limit,
		req.Params.Cursor,
		100,
		func(after string, limit int) ([]CampaignDevice, error) {
			return a.s.CampaignDevices(ctx, req.Id, string(value(req.Params.Outcome)), after, limit)
		},
		func(d CampaignDevice) string { return d.Position },
		func(d CampaignDevice) edgeapi.CampaignDevice {
			return edgeapi.CampaignDevice{
				DeviceId:  d.DeviceID,
				SiteId:    d.SiteID,
				Stage:     d.Stage,
				Outcome:   edgeapi.CampaignOutcome(d.Outcome),
				RequestId: d.RequestID,
				Message:   d.Message,
			}
		},
	)
	return edgeapi.ListCampaignDevices200JSONResponse{
		Body:    out,
		Headers: edgeapi.ListCampaignDevices200ResponseHeaders{Link: next},
	}, err
}

// StartCampaign starts a campaign.
func (a api) StartCampaign(
	ctx context.Context, req edgeapi.StartCampaignRequestObject,
) (edgeapi.StartCampaignResponseObject, error) {
	c, err := a.s.StartCampaign(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	return edgeapi.StartCampaign200JSONResponse(apiCampaign(c)), nil
}

// PromoteCampaign continues to a campaign's next stage.
func (a api) PromoteCampaign(
	ctx context.Context, req edgeapi.PromoteCampaignRequestObject,
) (edgeapi.PromoteCampaignResponseObject, error) {
	c, err := a.s.PromoteCampaign(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	return edgeapi.PromoteCampaign200JSONResponse(apiCampaign(c)), nil
}

// PauseCampaign stops asking devices.
func (a api) PauseCampaign(
	ctx context.Context, req edgeapi.PauseCampaignRequestObject,
) (edgeapi.PauseCampaignResponseObject, error) {
	c, err := a.s.PauseCampaign(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	return edgeapi.PauseCampaign200JSONResponse(apiCampaign(c)), nil
}

// ResumeCampaign continues a paused campaign.
func (a api) ResumeCampaign(
	ctx context.Context, req edgeapi.ResumeCampaignRequestObject,
) (edgeapi.ResumeCampaignResponseObject, error) {
	c, err := a.s.ResumeCampaign(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	return edgeapi.ResumeCampaign200JSONResponse(apiCampaign(c)), nil
}

// RetryCampaign asks failed devices again.
func (a api) RetryCampaign(
	ctx context.Context, req edgeapi.RetryCampaignRequestObject,
) (edgeapi.RetryCampaignResponseObject, error) {
	var devices []string
	if req.Body != nil {
		devices = value(req.Body.DeviceIds)
	}
	c, err := a.s.RetryCampaign(ctx, req.Id, devices)
	if err != nil {
		return nil, err
	}
	return edgeapi.RetryCampaign200JSONResponse(apiCampaign(c)), nil
}

// CountTargets counts the devices that targets select.
func (a api) CountTargets(
	ctx context.Context, req edgeapi.CountTargetsRequestObject,
) (edgeapi.CountTargetsResponseObject, error) {
	n, err := a.s.CountTargets(ctx, targetsOf(*req.Body))
	if err != nil {
		return nil, err
	}
	return edgeapi.CountTargets200JSONResponse{Devices: n}, nil
}

func targetsOf(t edgeapi.CampaignTargets) Targets {
	return Targets{SiteIDs: value(t.SiteIds), DeviceIDs: value(t.DeviceIds), Labels: value(t.Labels)}
}

// AbortCampaign ends a campaign.
func (a api) AbortCampaign(
	ctx context.Context, req edgeapi.AbortCampaignRequestObject,
) (edgeapi.AbortCampaignResponseObject, error) {
	c, err := a.s.AbortCampaign(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	return edgeapi.AbortCampaign200JSONResponse(apiCampaign(c)), nil
}
