package httpapi

import (
	"context"
	"net/http"
	"strings"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/kit/operation"
	"github.com/mainstay-infra/mainstay/kit/series"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/plan"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// apiVM returns a VM as the API shows it.
func (a *API) apiVM(r record.VM) hypervisorapi.VM {
	v := &r.Spec.V
	out := hypervisorapi.VM{
		Id: r.ID, Name: r.Name, Tenant: r.Tenant, Backend: hypervisorapi.Backend(r.Backend),
		State: hypervisorapi.State(r.State), Vcpus: r.VCPUs, MemoryMib: r.MemoryMiB, DiskGib: v.DiskGiB,
		Image: v.Image, Kernel: some(v.Kernel), Initrd: some(v.Initrd), Firmware: some(v.Firmware),
		KernelArgs: some(v.Boot.KernelArgs), TtlSeconds: some(v.TTLSeconds), Storage: v.Storage,
		Network: apiNetwork(v.Network, r.MAC), Pending: r.Pending(), StartedWith: apiStart(r.StartedWith.V),
		Labels: r.Labels.V, Autostart: r.Autostart, Mac: r.MAC, Ips: r.IPs.V, CreatedAt: r.CreatedAt.Time,
		StartedAt: r.StartedAt.Ptr(), ExpiresAt: r.ExpiresAt.Ptr(),
		LastError: r.LastError, Generation: r.Generation, Agent: hypervisorapi.AgentState{Enabled: v.Agent},
		PauseReason: some(hypervisorapi.PauseReason(r.PauseReason)), Disks: apiDisks(&r), ServedDisk: some(v.ServedDisk),
		Template: some(r.Template), BootedBecause: some(r.Booted),
	}
	if l := v.NetworkLimits; l != (record.NetworkLimits{}) {
		out.NetworkLimits = &hypervisorapi.NetworkLimits{
			ReceiveBitsPerSecond: &l.Receive, SendBitsPerSecond: &l.Send,
		}
	}
	if cd := r.CD.V; cd != nil {
		out.Cd = &hypervisorapi.CD{Image: cd.Image}
	}
	if out.Ips == nil || !r.State.HasProcess() {
		out.Ips = []string{}
	}
	if h := r.Running.V; h != nil {
		out.Running = &hypervisorapi.Hardware{Vcpus: h.VCPUs, MemoryMib: h.MemoryMiB, Network: apiNetwork(h.Network, h.MAC)}
	}
	if to := r.HandedOver.V; to != nil {
		out.HandedOverTo = &to.Node
	}
	if m := a.machines.Peek(r.ID); m != nil && r.State.HasProcess() {
		status := m.Status()
		out.Pid = some(status.PID)
		if r.State == vm.Running && status.Halt != "" {
			out.State, out.PauseReason = hypervisorapi.State(vm.Paused), some(hypervisorapi.PauseReason(status.Halt))
		}
		out.Agent.Connected = status.Connected && out.State != hypervisorapi.State(vm.Paused)
		out.Agent.Version = status.Version
	}
	return out
}

func apiNetwork(n record.Network, mac string) hypervisorapi.Network {
	return hypervisorapi.Network{
		Mode: ref(hypervisorapi.NetworkMode(n.Mode)), Bridge: some(n.Bridge), Mac: some(mac), Ip: some(n.IP),
		Forwards: apiForwards(n.Forwards),
	}
}

func apiForwards(all []record.Forward) *[]hypervisorapi.Forward {
	if len(all) == 0 {
		return nil
	}
	out := make([]hypervisorapi.Forward, len(all))
	for i, f := range all {
		out[i] = hypervisorapi.Forward{
			Protocol: ref(hypervisorapi.ForwardProtocol(f.Protocol)), HostAddress: ref(f.HostAddress),
			HostPort: f.HostPort, GuestPort: f.GuestPort,
		}
	}
	return &out
}

func networkOf(n *hypervisorapi.Network) record.Network {
	return record.Network{Mode: string(value(n.Mode)), Bridge: value(n.Bridge), IP: value(n.Ip), Forwards: forwardsOf(n)}
}

// forwardsOf returns nil if a request does not name forwards.
func forwardsOf(n *hypervisorapi.Network) []record.Forward {
	if n.Forwards == nil {
		return nil
	}
	out := make([]record.Forward, len(*n.Forwards))
	for i, f := range *n.Forwards {
		out[i] = record.Forward{
			Protocol:    string(orElse(f.Protocol, hypervisorapi.ForwardProtocolTcp)),
			HostAddress: orElse(f.HostAddress, "127.0.0.1"), HostPort: f.HostPort, GuestPort: f.GuestPort,
		}
	}
	return out
}

// ListVMs lists the VMs in the caller's scope.
func (a *API) ListVMs(
	ctx context.Context, req hypervisorapi.ListVMsRequestObject,
) (hypervisorapi.ListVMsResponseObject, error) {
	p := req.Params
	labels := map[string]string{}
	for _, l := range value(p.Label) {
		key, v, ok := strings.Cut(l, "=")
		if !ok {
			return nil, fault.InvalidField("label", "must have the form KEY=VALUE")
		}
		labels[key] = v
	}
	var order list.Order
	out, link, err := list.Rows(ctx, p.Limit, p.Cursor, 100, func(after string, limit int) (all []record.VM, err error) {
		all, order, err = a.store.VMs(ctx, record.Filter{
			Tenant: value(p.Tenant), State: string(value(p.State)), Labels: labels, Text: value(p.Q),
			Sort: string(value(p.Sort)), After: after, Limit: limit,
		})
		return all, err
	}, func(r record.VM) string { return record.VMKey(order, r) }, a.apiVM)
	return hypervisorapi.ListVMs200JSONResponse{
		Body: out, Headers: hypervisorapi.ListVMs200ResponseHeaders{Link: link},
	}, err
}

// requestOf translates a request and applies the contract's defaults.
func requestOf(b *hypervisorapi.VMSpec) plan.Request {
	req := plan.Request{
		Name: b.Name, Tenant: value(b.Tenant), Backend: string(orElse(b.Backend, backend.Auto)),
		Labels: value(b.Labels), Autostart: value(b.Autostart), Start: value(b.Start),
		Template: value(b.Template), Instant: orElse(b.Instant, true),
		Spec: record.Spec{
			VCPUs: orElse(b.Vcpus, 1), MemoryMiB: orElse(b.MemoryMib, 512), DiskGiB: value(b.DiskGib),
			Image: value(b.Image), Kernel: value(b.Kernel), Initrd: value(b.Initrd), Firmware: value(b.Firmware),
			KernelArgs: value(b.KernelArgs), TTLSeconds: value(b.TtlSeconds),
			Storage: string(orElse(b.Storage, hypervisorapi.VMSpecStorageDir)), Agent: true,
			ServedDisk: value(b.ServedDisk),
		},
	}
	spec := &req.Spec
	if n := b.Network; n != nil {
		spec.Network = networkOf(n)
		req.MAC = value(n.Mac)
	}
	if g := b.Agent; g != nil {
		spec.Agent, req.Secret = orElse(g.Enabled, true), value(g.Token)
	}
	if c := b.CloudInit; c != nil {
		spec.CloudInit = record.CloudInit{
			UserData: value(c.UserData), SSHAuthorizedKeys: value(c.SshAuthorizedKeys), Hostname: value(c.Hostname),
		}
	}
	if spec.Image == "" && spec.Kernel == "" && spec.DiskGiB == 0 && !spec.ServedDisk {
		spec.DiskGiB = 1 // an empty disk, to install something on
	}
	return req
}

// CreateVM creates a VM.
func (a *API) CreateVM(
	ctx context.Context, req hypervisorapi.CreateVMRequestObject,
) (hypervisorapi.CreateVMResponseObject, error) {
	r, err := a.life.Create(ctx, requestOf(req.Body))
	if err != nil {
		return nil, err
	}
	return hypervisorapi.CreateVM201JSONResponse(a.apiVM(r)), nil
}

// GetVM returns a VM.
func (a *API) GetVM(
	ctx context.Context, req hypervisorapi.GetVMRequestObject,
) (hypervisorapi.GetVMResponseObject, error) {
	r, err := a.store.VM(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.GetVM200JSONResponse(a.apiVM(r)), nil
}

// leastNetworkLimit is the least limit of a network, in bits a second. With less, the kernel's queue has no room for
// the largest packets of a guest.
const leastNetworkLimit = 64_000

// PatchVM changes a VM.
func (a *API) PatchVM(
	ctx context.Context, req hypervisorapi.PatchVMRequestObject,
) (hypervisorapi.PatchVMResponseObject, error) {
	b := req.Body
	c := record.Reconfiguration{
		Name: b.Name, Labels: value(b.Labels), Autostart: b.Autostart, VCPUs: b.Vcpus, MemoryMiB: b.MemoryMib,
	}
	if n := b.Network; n != nil {
		c.Network = ref(networkOf(n))
		c.MAC = value(n.Mac)
	}
	if l := b.NetworkLimits; l != nil {
		c.NetworkLimits = &record.NetworkLimits{Receive: value(l.ReceiveBitsPerSecond), Send: value(l.SendBitsPerSecond)}
		for field, limit := range map[string]int64{
			"receive_bits_per_second": c.NetworkLimits.Receive, "send_bits_per_second": c.NetworkLimits.Send,
		} {
			if limit > 0 && limit < leastNetworkLimit {
				return nil, fault.InvalidField("network_limits."+field, "must be 0, or at least %d", leastNetworkLimit)
			}
		}
	}
	r, err := a.plan.Change(ctx, req.Id, c)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.PatchVM200JSONResponse(a.apiVM(r)), nil
}

// DeleteVM deletes a VM.
func (a *API) DeleteVM(
	ctx context.Context, req hypervisorapi.DeleteVMRequestObject,
) (hypervisorapi.DeleteVMResponseObject, error) {
	return hypervisorapi.DeleteVM204Response{}, a.life.Delete(ctx, req.Id)
}

func startOf(b *hypervisorapi.StartOptions) (out plan.StartRequest) {
	if b == nil {
		return out
	}
	out = plan.StartRequest{
		Kernel: value(b.Kernel), Initrd: value(b.Initrd), KernelArgs: value(b.KernelArgs), Firmware: value(b.Firmware),
		ExtraArgs: value(b.ExtraArgs),
	}
	for _, s := range value(b.Shares) {
		out.Shares = append(out.Shares, record.Share{Source: s.Source, Tag: s.Tag, ReadOnly: value(s.ReadOnly)})
	}
	return out
}

func apiStart(o *record.StartOptions) *hypervisorapi.StartOptions {
	if o == nil {
		return nil
	}
	out := &hypervisorapi.StartOptions{
		Kernel: some(o.Kernel), Initrd: some(o.Initrd), KernelArgs: some(o.KernelArgs), Firmware: some(o.Firmware),
	}
	if len(o.Shares) > 0 {
		out.Shares = ref(list.Each(o.Shares, func(s record.Share) hypervisorapi.Share {
			return hypervisorapi.Share{Source: s.Source, Tag: s.Tag, ReadOnly: some(s.ReadOnly)}
		}))
	}
	if len(o.ExtraArgs) > 0 {
		out.ExtraArgs = &o.ExtraArgs
	}
	return out
}

// StartVM starts a VM.
func (a *API) StartVM(
	ctx context.Context, req hypervisorapi.StartVMRequestObject,
) (hypervisorapi.StartVMResponseObject, error) {
	r, err := a.life.StartWith(ctx, req.Id, startOf(req.Body))
	if err != nil {
		return nil, err
	}
	return hypervisorapi.StartVM200JSONResponse(a.apiVM(r)), nil
}

// StopVM stops a VM.
func (a *API) StopVM(
	ctx context.Context, req hypervisorapi.StopVMRequestObject,
) (hypervisorapi.StopVMResponseObject, error) {
	grace, force := a.patience(req.Body)
	r, err := a.life.Stop(ctx, req.Id, grace, force)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.StopVM200JSONResponse(a.apiVM(r)), nil
}

// patience returns how long a guest may take to shut down, and whether it is not even asked.
func (a *API) patience(body *hypervisorapi.Stop) (grace time.Duration, force bool) {
	grace = a.cfg.StopGrace
	if body == nil {
		return grace, false
	}
	if body.GraceSeconds != nil {
		grace = time.Duration(*body.GraceSeconds) * time.Second
	}
	return grace, value(body.Force)
}

// RestartVM stops a VM and starts it again.
func (a *API) RestartVM(
	ctx context.Context, req hypervisorapi.RestartVMRequestObject,
) (hypervisorapi.RestartVMResponseObject, error) {
	grace, force := a.patience(req.Body)
	r, err := a.life.Restart(ctx, req.Id, grace, force)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.RestartVM200JSONResponse(a.apiVM(r)), nil
}

// ResetVM resets the guest of a VM.
func (a *API) ResetVM(
	ctx context.Context, req hypervisorapi.ResetVMRequestObject,
) (hypervisorapi.ResetVMResponseObject, error) {
	r, err := a.life.Reset(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.ResetVM200JSONResponse(a.apiVM(r)), nil
}

// PauseVM pauses a VM.
func (a *API) PauseVM(
	ctx context.Context, req hypervisorapi.PauseVMRequestObject,
) (hypervisorapi.PauseVMResponseObject, error) {
	r, err := a.life.Pause(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.PauseVM200JSONResponse(a.apiVM(r)), nil
}

// ResumeVM resumes a paused VM.
func (a *API) ResumeVM(
	ctx context.Context, req hypervisorapi.ResumeVMRequestObject,
) (hypervisorapi.ResumeVMResponseObject, error) {
	r, err := a.life.Resume(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.ResumeVM200JSONResponse(a.apiVM(r)), nil
}

// EnableVM makes a VM start with the host.
func (a *API) EnableVM(
	ctx context.Context, req hypervisorapi.EnableVMRequestObject,
) (hypervisorapi.EnableVMResponseObject, error) {
	r, err := a.store.SetAutostart(ctx, req.Id, true)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.EnableVM200JSONResponse(a.apiVM(r)), nil
}

// DisableVM undoes EnableVM.
func (a *API) DisableVM(
	ctx context.Context, req hypervisorapi.DisableVMRequestObject,
) (hypervisorapi.DisableVMResponseObject, error) {
	r, err := a.store.SetAutostart(ctx, req.Id, false)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.DisableVM200JSONResponse(a.apiVM(r)), nil
}

// WaitVM waits for a state.
func (a *API) WaitVM(
	ctx context.Context, req hypervisorapi.WaitVMRequestObject,
) (hypervisorapi.WaitVMResponseObject, error) {
	limit := time.Duration(orElse(req.Params.Timeout, 60)) * time.Second
	r, err := a.life.Wait(ctx, req.Id, vm.State(req.Params.State), limit)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.WaitVM200JSONResponse(a.apiVM(r)), nil
}

// GetVMMetrics returns a VM's resource usage.
func (a *API) GetVMMetrics(
	ctx context.Context, req hypervisorapi.GetVMMetricsRequestObject,
) (hypervisorapi.GetVMMetricsResponseObject, error) {
	m, err := a.life.Metrics(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.GetVMMetrics200JSONResponse{
		CpuSeconds: m.CPUSeconds, MemoryBytes: m.MemoryBytes, DiskReadBytes: m.DiskReadBytes,
		DiskWrittenBytes: m.DiskWrittenBytes, NetReceivedBytes: m.NetReceivedBytes, NetSentBytes: m.NetSentBytes,
		At: a.now().UTC(),
	}, nil
}

// The defaults of GetVMHistory.
const (
	usualHistory       = time.Hour
	usualHistoryPoints = 120
)

// GetVMHistory returns a VM's resource usage over time.
func (a *API) GetVMHistory(
	ctx context.Context, req hypervisorapi.GetVMHistoryRequestObject,
) (hypervisorapi.GetVMHistoryResponseObject, error) {
	now := a.now()
	w, err := series.NewWindow(
		orElse(req.Params.Since, now.Add(-usualHistory)), now, orElse(req.Params.Points, usualHistoryPoints),
	)
	if err != nil {
		return nil, err
	}
	steps, err := a.store.UsageHistory(ctx, req.Id, w)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.GetVMHistory200JSONResponse{
		Now:         now.UTC(),
		From:        w.From,
		To:          w.To,
		StepSeconds: int(w.Step.Seconds()),
		Points:      list.Each(steps, apiUsage),
	}, nil
}

func apiUsage(u record.UsageStep) hypervisorapi.UsagePoint {
	perSecond := func(n int64) float64 { return float64(n) / float64(u.MeasuredUS) * 1e6 }
	return hypervisorapi.UsagePoint{
		At:                        u.At.Time,
		CpuPercent:                float64(u.CPUUS) / float64(u.MeasuredUS) * 100,
		MemoryBytes:               float64(u.MemoryBytes) / float64(u.Samples),
		DiskReadBytesPerSecond:    perSecond(u.DiskReadBytes),
		DiskWrittenBytesPerSecond: perSecond(u.DiskWrittenBytes),
		NetReceivedBytesPerSecond: perSecond(u.NetReceivedBytes),
		NetSentBytesPerSecond:     perSecond(u.NetSentBytes),
	}
}

// ListVMEvents lists the events of a VM.
func (a *API) ListVMEvents(
	ctx context.Context, req hypervisorapi.ListVMEventsRequestObject,
) (hypervisorapi.ListVMEventsResponseObject, error) {
	events := func(before int64, limit int) ([]record.Event, error) {
		return a.store.Events(ctx, req.Id, before, limit)
	}
	number := func(e record.Event) int64 { return e.Seq }
	out, link, err := list.Down(ctx, req.Params.Limit, req.Params.Cursor, 100, events, number, apiEvent)
	return hypervisorapi.ListVMEvents200JSONResponse{
		Body: out, Headers: hypervisorapi.ListVMEvents200ResponseHeaders{Link: link},
	}, err
}

func apiEvent(e record.Event) hypervisorapi.Event {
	return hypervisorapi.Event{At: e.At.Time, Kind: e.Kind, Message: e.Message, Actor: some(e.Actor)}
}

// CreateTicket issues a ticket for a socket.
func (a *API) CreateTicket(
	ctx context.Context, req hypervisorapi.CreateTicketRequestObject,
) (hypervisorapi.CreateTicketResponseObject, error) {
	word, expires, err := a.ticket(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.CreateTicket201JSONResponse{Ticket: word, ExpiresAt: expires}, nil
}

// GetHost returns the host's capacity and backends.
func (a *API) GetHost(
	ctx context.Context, _ hypervisorapi.GetHostRequestObject,
) (hypervisorapi.GetHostResponseObject, error) {
	c, err := a.plan.Capacity(ctx)
	h := hypervisorapi.GetHost200JSONResponse{
		Name: a.cfg.NodeName, Version: telemetry.BuildInfo().Version, Vcpus: c.VCPUs, MemoryMib: c.MemoryMiB,
		FreeVcpus: c.FreeVCPUs, FreeMemoryMib: c.FreeMemoryMiB, Vms: c.VMs,
		TemplateBytes: some(c.TemplateBytes), Backends: []hypervisorapi.BackendInfo{},
	}
	for _, b := range c.Backends {
		h.Backends = append(h.Backends, hypervisorapi.BackendInfo{
			Name: hypervisorapi.Backend(b.Name), Available: b.Available, Version: some(b.Version), Detail: b.Detail,
		})
	}
	return h, err
}

// GetMe returns the caller's identity.
func (a *API) GetMe(
	ctx context.Context, _ hypervisorapi.GetMeRequestObject,
) (hypervisorapi.GetMeResponseObject, error) {
	c := caller.From(ctx)
	return hypervisorapi.GetMe200JSONResponse{
		Name:     c.Name,
		Tenant:   c.Tenant,
		Admin:    c.Admin,
		Insecure: a.Exposed(),
	}, nil
}

// operationStates maps the states of operations to those of the contract.
var operationStates = operation.States[hypervisorapi.OperationState]{
	Queued: hypervisorapi.OperationStateQueued, Running: hypervisorapi.OperationStateRunning,
	Succeeded: hypervisorapi.OperationStateSucceeded, Failed: hypervisorapi.OperationStateFailed,
	Cancelled: hypervisorapi.OperationStateCancelled,
}

func apiOperation(op record.Operation) hypervisorapi.Operation {
	return hypervisorapi.Operation{
		Id: op.ID, Kind: op.Kind, Actor: some(op.Actor), State: operationStates.Of(&op.Operation), VmId: some(op.VM),
		BackupId: some(op.Backup), Image: some(op.Image), CreatedAt: op.CreatedAt.Time,
		FinishedAt: op.Job.FinishedAt.Ptr(), Error: op.Job.Error, Progress: float32(op.Progress()),
	}
}

// ListOperations lists operations.
func (a *API) ListOperations(
	ctx context.Context, req hypervisorapi.ListOperationsRequestObject,
) (hypervisorapi.ListOperationsResponseObject, error) {
	operations := func(before string, limit int) ([]record.Operation, error) {
		return a.store.Operations(ctx, before, limit)
	}
	id := func(o record.Operation) string { return o.ID }
	out, link, err := list.Rows(ctx, req.Params.Limit, req.Params.Cursor, 100, operations, id, apiOperation)
	return hypervisorapi.ListOperations200JSONResponse{
		Body: out, Headers: hypervisorapi.ListOperations200ResponseHeaders{Link: link},
	}, err
}

// GetOperation returns an operation, optionally after waiting for its end.
func (a *API) GetOperation(
	ctx context.Context, req hypervisorapi.GetOperationRequestObject,
) (hypervisorapi.GetOperationResponseObject, error) {
	wait := time.Duration(value(req.Params.Wait)) * time.Second
	end, err := httpserve.BeginWait(ctx, wait)
	if err != nil {
		return nil, err
	}
	defer end()
	op, err := a.operate.Await(ctx, req.Operation, wait)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.GetOperation200JSONResponse(apiOperation(op)), nil
}

// watchOperation streams the states of an operation.
func (a *API) watchOperation(w http.ResponseWriter, r *http.Request, _ caller.Caller) error {
	next := func(ctx context.Context, wait time.Duration) (any, *operation.Operation, error) {
		op, err := a.operate.Await(ctx, r.PathValue("operation"), wait)
		return apiOperation(op), &op.Operation, err
	}
	return operation.Watch(a.machines.Ending(), w, r, "operation", next)
}

// CancelOperation requests the cancellation of an operation.
func (a *API) CancelOperation(
	ctx context.Context, req hypervisorapi.CancelOperationRequestObject,
) (hypervisorapi.CancelOperationResponseObject, error) {
	op, err := a.operate.Cancel(ctx, req.Operation)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.CancelOperation200JSONResponse(apiOperation(op)), nil
}

// GetVMLog returns the end of a VM's serial log.
func (a *API) GetVMLog(
	ctx context.Context, req hypervisorapi.GetVMLogRequestObject,
) (hypervisorapi.GetVMLogResponseObject, error) {
	raw, err := a.life.ConsoleLog(ctx, req.Id, orElse(req.Params.Tail, 64<<10))
	return hypervisorapi.GetVMLog200TextResponse(raw), err
}
