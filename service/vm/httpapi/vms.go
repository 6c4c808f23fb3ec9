package httpapi

import (
	"context"
	"strings"
	"time"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/driver"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

func apiVM(ctx context.Context, r record.VM) vmapi.VM {
	c := caller.From(ctx)
	v := &r.Spec.V
	out := vmapi.VM{
		Id: r.ID, Name: r.Name, Tenant: some(r.Tenant), Image: v.Image, Cpus: r.CPUs, Memory: r.Memory, Disk: r.Disk,
		Disks: orEmpty(list.Each(r.Disks.V, apiDisk)), Cd: some(r.CD), Pending: orEmpty(r.Pending.V),
		Labels: r.Labels.V, Tags: orEmpty(r.Tags.V), Description: r.Description, State: vmapi.State(r.State),
		Unreachable: r.Unreachable, Provisioned: r.Provisioned(), Autostart: r.Autostart, Protected: r.Protected,
		Backend: v.Backend, Node: r.Node, Ips: orEmpty(r.IPs.V), Mac: r.MAC,
		Network: apiNetwork(v.Network),
		Created: r.CreatedAt.Time, Updated: r.UpdatedAt.Time, Started: r.StartedAt.Ptr(), LastError: c.Public(r.LastError),
	}
	if out.Labels == nil {
		out.Labels = vmapi.Labels{}
	}
	if strings.Contains(v.Image, "/") && !c.SeesAll() {
		out.Image = "(path)"
	}
	if r.Job != nil {
		out.Job = &vmapi.JobRef{Id: r.Job.ID, Kind: r.Job.Kind}
	}
	if r.State == record.Running || r.State == record.Paused {
		out.Agent = &vmapi.Agent{Connected: r.Agent.V.Connected, Version: r.Agent.V.Version}
	} else {
		out.Ips = []string{} // what it had before may be another VM's
	}
	return out
}

// ListVMs lists the VMs in the caller's scope.
func (a *API) ListVMs(ctx context.Context, req vmapi.ListVMsRequestObject) (vmapi.ListVMsResponseObject, error) {
	p := req.Params
	const usual = 200
	limit := min(orElse(p.Limit, usual), list.MaxRows)
	page, err := list.ParseOffset(p.Offset, &limit, usual)
	if err != nil {
		return nil, err
	}
	rows, total, err := a.store.VMs(ctx, record.Filter{
		Tenant: value(p.Tenant), State: record.State(value(p.State)), Tag: value(p.Tag), Node: value(p.Node),
		Text: value(p.Q), Sort: string(value(p.Sort)), Offset: page,
	})
	if err != nil {
		return nil, err
	}
	items := list.Each(rows, func(r record.VM) vmapi.VM { return apiVM(ctx, r) })
	return vmapi.ListVMs200JSONResponse{Items: orEmpty(items), Total: total, Offset: page.Offset, Limit: page.Limit}, nil
}

// CreateVM creates a VM.
func (a *API) CreateVM(ctx context.Context, req vmapi.CreateVMRequestObject) (vmapi.CreateVMResponseObject, error) {
	r, err := rowOf(caller.From(ctx), req.Body)
	if err != nil {
		return nil, err
	}
	if !strings.Contains(r.Spec.V.Image, "/") {
		if r.Spec.V.Image, err = a.store.ResolveImage(ctx, r.Tenant, r.Spec.V.Image); err != nil {
			return nil, err
		}
		r.Spec.V.AnyImage = caller.From(ctx).SeesAll()
		if r.Disk == 0 { // that of the image counts for the quota, too; if the daemon is away, once it has made the VM
			r.Spec.V.ImageSized = true
			if size, err := a.driver.DiskSize(ctx, r.Spec.V.Image); err == nil {
				r.Disk = size
			}
		}
	}
	var init record.CloudInit
	if c := req.Body.CloudInit; c != nil {
		init = record.CloudInit{
			UserData: value(c.UserData), SSHAuthorizedKeys: value(c.SshAuthorizedKeys), Hostname: value(c.Hostname),
		}
	}
	if r, err = a.life.Create(ctx, r, init); err != nil {
		return nil, err
	}
	return vmapi.CreateVM201JSONResponse(apiVM(ctx, r)), nil
}

// GetVM returns one VM.
func (a *API) GetVM(ctx context.Context, req vmapi.GetVMRequestObject) (vmapi.GetVMResponseObject, error) {
	r, err := a.store.Named(ctx, req.Name, req.Params.Tenant)
	if err != nil {
		return nil, err
	}
	return vmapi.GetVM200JSONResponse(apiVM(ctx, r)), nil
}

// UpdateVM changes a VM.
func (a *API) UpdateVM(ctx context.Context, req vmapi.UpdateVMRequestObject) (vmapi.UpdateVMResponseObject, error) {
	r, err := a.store.Named(ctx, req.Name, req.Params.Tenant)
	if err != nil {
		return nil, err
	}
	b := req.Body
	c := record.Change{
		Name: b.Name, CPUs: b.Cpus, Memory: b.Memory, Labels: (*map[string]string)(b.Labels), Tags: b.Tags,
		Description: b.Description, Autostart: b.Autostart,
		Protected: b.Protected,
	}
	if err := checkChange(caller.From(ctx), &r, &c); err != nil {
		return nil, err
	}
	if r, err = a.life.Update(ctx, r.ID, c); err != nil {
		return nil, err
	}
	return vmapi.UpdateVM200JSONResponse(apiVM(ctx, r)), nil
}

// DeleteVM removes a VM.
func (a *API) DeleteVM(ctx context.Context, req vmapi.DeleteVMRequestObject) (vmapi.DeleteVMResponseObject, error) {
	r, err := a.store.Named(ctx, req.Name, req.Params.Tenant)
	if err != nil {
		return nil, err
	}
	return vmapi.DeleteVM204Response{}, a.life.Delete(ctx, r.ID)
}

// StartVM starts a VM in a job.
func (a *API) StartVM(ctx context.Context, req vmapi.StartVMRequestObject) (vmapi.StartVMResponseObject, error) {
	r, err := a.store.Named(ctx, req.Name, req.Params.Tenant)
	if err != nil {
		return nil, err
	}
	options, err := startOptions(caller.From(ctx), req.Body)
	if err != nil {
		return nil, err
	}
	if r, err = a.life.Start(ctx, r.ID, options); err != nil {
		return nil, err
	}
	out := vmapi.StartVM202JSONResponse{Status: vmapi.MovedStatusStarting}
	if r.Job != nil {
		out.JobId = &r.Job.ID
	}
	return out, nil
}

// usualGrace is how long a guest has to shut down unless the request says otherwise.
const usualGrace = 30 * time.Second

// StopVM stops a VM.
func (a *API) StopVM(ctx context.Context, req vmapi.StopVMRequestObject) (vmapi.StopVMResponseObject, error) {
	r, err := a.store.Named(ctx, req.Name, req.Params.Tenant)
	if err != nil {
		return nil, err
	}
	grace, force := usualGrace, false
	if b := req.Body; b != nil {
		force = value(b.Force)
		if b.GraceSeconds != nil {
			grace = time.Duration(*b.GraceSeconds) * time.Second
		}
	}
	if err := a.life.Stop(ctx, r.ID, grace, force); err != nil {
		return nil, err
	}
	return vmapi.StopVM200JSONResponse{Status: vmapi.MovedStatusStopped}, nil
}

// RestartVM reboots a VM.
func (a *API) RestartVM(ctx context.Context, req vmapi.RestartVMRequestObject) (vmapi.RestartVMResponseObject, error) {
	return vmapi.RestartVM200JSONResponse{Status: vmapi.MovedStatusRestarted},
		a.verb(ctx, req.Name, req.Params.Tenant, a.life.Restart)
}

// PauseVM halts a VM.
func (a *API) PauseVM(ctx context.Context, req vmapi.PauseVMRequestObject) (vmapi.PauseVMResponseObject, error) {
	return vmapi.PauseVM200JSONResponse{Status: vmapi.MovedStatusPaused},
		a.verb(ctx, req.Name, req.Params.Tenant, a.life.Pause)
}

// ResumeVM lets a paused VM continue.
func (a *API) ResumeVM(ctx context.Context, req vmapi.ResumeVMRequestObject) (vmapi.ResumeVMResponseObject, error) {
	return vmapi.ResumeVM200JSONResponse{Status: vmapi.MovedStatusRunning},
		a.verb(ctx, req.Name, req.Params.Tenant, a.life.Resume)
}

// verb does something with a VM by its name.
func (a *API) verb(
	ctx context.Context, name string, tenant *string, do func(ctx context.Context, id string) error,
) error {
	r, err := a.store.Named(ctx, name, tenant)
	if err != nil {
		return err
	}
	return do(ctx, r.ID)
}

// CloneVM makes a VM with a copy of another one's disk.
func (a *API) CloneVM(ctx context.Context, req vmapi.CloneVMRequestObject) (vmapi.CloneVMResponseObject, error) {
	source, err := a.store.Named(ctx, req.Name, req.Params.Tenant)
	if err != nil {
		return nil, err
	}
	r, err := a.life.Clone(ctx, &source, req.Body.TargetName, value(req.Body.LinkedClone))
	if err != nil {
		return nil, err
	}
	return vmapi.CloneVM201JSONResponse(apiVM(ctx, r)), nil
}

// GetVMMetrics returns what a VM uses.
func (a *API) GetVMMetrics(
	ctx context.Context, req vmapi.GetVMMetricsRequestObject,
) (vmapi.GetVMMetricsResponseObject, error) {
	r, err := a.store.Named(ctx, req.Name, req.Params.Tenant)
	if err != nil {
		return nil, err
	}
	var out vmapi.GetVMMetrics200JSONResponse
	if !r.Provisioned() || r.State == record.Missing {
		return out, nil
	}
	m, err := a.driver.Metrics(ctx, driver.PlaceOf(&r))
	switch {
	case fault.Is(err, fault.Conflict) || fault.Is(err, fault.NotFound):
		return out, nil // it does not run, or the daemon does not know it
	case err != nil:
		return nil, err
	}
	if ran := m.At.Sub(r.StartedAt.Time).Seconds(); !r.StartedAt.IsZero() && ran > 0 {
		out.CpuUsage = 100 * m.CPUSeconds / ran
	}
	out.MemoryUsage, out.DiskUsage = m.MemoryBytes, m.DiskReadBytes+m.DiskWrittenBytes
	out.NetworkRx, out.NetworkTx = m.NetReceivedBytes, m.NetSentBytes
	out.CpuSeconds, out.At = &m.CPUSeconds, some(m.At)
	out.DiskReadBytes, out.DiskWrittenBytes = &m.DiskReadBytes, &m.DiskWrittenBytes
	return out, nil
}

// InsertCD puts an image into the CD drive of a VM.
func (a *API) InsertCD(ctx context.Context, req vmapi.InsertCDRequestObject) (vmapi.InsertCDResponseObject, error) {
	r, err := a.store.Named(ctx, req.Name, req.Params.Tenant)
	if err != nil {
		return nil, err
	}
	if strings.Contains(req.Body.Image, "/") {
		return nil, fault.InvalidField("image", "must be the name of an image")
	}
	image, err := a.store.ResolveImage(ctx, r.Tenant, req.Body.Image)
	if err == nil {
		err = a.life.InsertCD(ctx, r.ID, image)
	}
	if err == nil {
		r, err = a.store.VM(ctx, r.ID)
	}
	return vmapi.InsertCD200JSONResponse(apiVM(ctx, r)), err
}

// EjectCD empties the CD drive of a VM.
func (a *API) EjectCD(ctx context.Context, req vmapi.EjectCDRequestObject) (vmapi.EjectCDResponseObject, error) {
	r, err := a.store.Named(ctx, req.Name, req.Params.Tenant)
	if err == nil {
		err = a.life.EjectCD(ctx, r.ID)
	}
	if err == nil {
		r, err = a.store.VM(ctx, r.ID)
	}
	return vmapi.EjectCD200JSONResponse(apiVM(ctx, r)), err
}
