package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/shopspring/decimal"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/kit/rest"
	"github.com/mainstay-infra/mainstay/service/vm/billing"
	"github.com/mainstay-infra/mainstay/service/vm/billing/tariff"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

func apiPricing(p tariff.Price) vmapi.Pricing {
	out := vmapi.Pricing{
		CpuPerHour: p.CPUPerHour.InexactFloat64(), MemoryGbPerHour: p.MemoryGBPerHour.InexactFloat64(),
		DiskGbPerHour: p.DiskGBPerHour.InexactFloat64(), NetworkEgressPerGb: p.EgressPerGB.InexactFloat64(),
		Currency: p.Currency,
	}
	if p.ID != 0 {
		out.EffectiveFrom = ref(p.From.UTC())
	}
	return out
}

// GetPricing returns what usage costs now.
func (a *API) GetPricing(ctx context.Context, _ vmapi.GetPricingRequestObject) (vmapi.GetPricingResponseObject, error) {
	p, err := a.billing.Pricing(ctx)
	return vmapi.GetPricing200JSONResponse(apiPricing(p)), err
}

// setPricing changes what usage costs from now on. The amounts are read as they are written: as floating point
// numbers they would be rounded.
func (a *API) setPricing(w http.ResponseWriter, r *http.Request, _ caller.Caller) error {
	var b struct {
		CPUPerHour      json.Number `json:"cpu_per_hour"`
		MemoryGBPerHour json.Number `json:"memory_gb_per_hour"`
		DiskGBPerHour   json.Number `json:"disk_gb_per_hour"`
		EgressPerGB     json.Number `json:"network_egress_per_gb"`
		Currency        string      `json:"currency"`
	}
	if err := json.NewDecoder(r.Body).Decode(&b); err != nil {
		return httpserve.BodyError(err)
	}
	price := tariff.Price{Currency: b.Currency}
	for _, f := range []struct {
		name string
		from json.Number
		to   *decimal.Decimal
	}{
		{"cpu_per_hour", b.CPUPerHour, &price.CPUPerHour}, {"memory_gb_per_hour", b.MemoryGBPerHour, &price.MemoryGBPerHour},
		{"disk_gb_per_hour", b.DiskGBPerHour, &price.DiskGBPerHour},
		{"network_egress_per_gb", b.EgressPerGB, &price.EgressPerGB},
	} {
		var err error
		if *f.to, err = tariff.ParseAmount(f.name, string(f.from)); err != nil {
			return err
		}
	}
	set, err := a.billing.SetPricing(r.Context(), price)
	if err != nil {
		return err
	}
	return rest.WriteJSON(w, http.StatusOK, "application/json", apiPricing(set))
}

// tenantFilter returns the tenant that a filter names, or nil if there is no filter.
func tenantFilter(id *string) (*string, error) {
	if id == nil {
		return nil, nil
	}
	tenant := billing.TenantOf(*id)
	if tenant == "" {
		return &tenant, nil
	}
	return &tenant, record.CheckTenant("tenant", tenant)
}

func apiUsage(u billing.Usage) vmapi.UsageRecord {
	quantity := func(r tariff.Resource) float64 { return u.Quantity(r).InexactFloat64() }
	return vmapi.UsageRecord{
		VmId: u.VM, VmName: u.Name, TenantId: billing.TenantID(u.Tenant), PeriodStart: u.From, PeriodEnd: u.To,
		CpuHours: quantity(tariff.CPU), MemoryGbHours: quantity(tariff.Memory), DiskGbHours: quantity(tariff.Disk),
		NetworkEgressGb: quantity(tariff.Egress), TotalCost: u.Total().InexactFloat64(), Currency: u.Currency,
	}
}

// wantsCSV reports whether a client wants CSV: by the parameter format, or else by the header Accept.
func wantsCSV(format string, accept *string) bool {
	const csv = "csv"
	return format == csv || format == "" && strings.Contains(value(accept), "text/"+csv)
}

// ListUsage lists what VMs have used.
func (a *API) ListUsage(ctx context.Context, req vmapi.ListUsageRequestObject) (vmapi.ListUsageResponseObject, error) {
	q := req.Params
	f := record.UsageFilter{VM: value(q.Vm)}
	var err error
	if f.From, f.To, err = a.billing.Period(value(q.From), value(q.To)); err != nil {
		return nil, err
	}
	if f.Tenant, err = tenantFilter(q.Tenant); err != nil {
		return nil, err
	}
	ids, link, err := list.Rows(ctx, q.Limit, q.Cursor, 100,
		func(after string, limit int) ([]string, error) { return a.billing.UsedVMs(ctx, f, after, limit) },
		func(id string) string { return id }, func(id string) string { return id })
	if err != nil {
		return nil, err
	}
	all, err := a.billing.Usage(ctx, f, ids)
	if err != nil {
		return nil, err
	}
	headers := vmapi.ListUsage200ResponseHeaders{Link: link}
	if !wantsCSV(string(value(q.Format)), q.Accept) {
		return vmapi.ListUsage200JSONResponse{Body: list.Each(all, apiUsage), Headers: headers}, nil
	}
	var out bytes.Buffer
	if err := billing.WriteUsage(&out, all); err != nil {
		return nil, err
	}
	return vmapi.ListUsage200TextcsvResponse{Body: &out, Headers: headers, ContentLength: int64(out.Len())}, nil
}

func apiInvoice(v billing.Invoice) vmapi.Invoice {
	out := vmapi.Invoice{
		InvoiceId: billing.InvoiceID(v.Number), Status: vmapi.InvoiceStatusFinal, Reason: v.Draft,
		TenantId: billing.TenantID(v.Tenant), PeriodStart: v.From.UTC(), PeriodEnd: v.To.UTC(),
		LineItems: []vmapi.InvoiceLine{}, Total: v.Total.InexactFloat64(), Currency: v.Currency, Created: v.CreatedAt.UTC(),
	}
	if v.Number == 0 {
		out.Status = vmapi.InvoiceStatusDraft
	}
	for _, l := range v.Lines.V {
		out.LineItems = append(out.LineItems, vmapi.InvoiceLine{
			Description: l.Description, Amount: l.Amount.InexactFloat64(), VmId: l.VM, VmName: l.Name,
			Resource: vmapi.InvoiceLineResource(l.Resource), Quantity: l.Quantity.InexactFloat64(), Unit: l.Unit,
		})
	}
	return out
}

// CreateInvoice returns the invoice of a tenant for a month.
func (a *API) CreateInvoice(
	ctx context.Context, req vmapi.CreateInvoiceRequestObject,
) (vmapi.CreateInvoiceResponseObject, error) {
	period := ""
	if req.Body != nil {
		period = value(req.Body.Period)
	}
	if req.TenantId == "" {
		return nil, fault.InvalidField("tenant_id", "must not be empty")
	}
	v, err := a.billing.Bill(ctx, billing.TenantOf(req.TenantId), period)
	if err != nil {
		return nil, err
	}
	return vmapi.CreateInvoice200JSONResponse(apiInvoice(v)), nil
}

// ListInvoices lists the stored invoices.
func (a *API) ListInvoices(
	ctx context.Context, req vmapi.ListInvoicesRequestObject,
) (vmapi.ListInvoicesResponseObject, error) {
	tenant, err := tenantFilter(req.Params.Tenant)
	if err != nil {
		return nil, err
	}
	out, link, err := list.Down(ctx, req.Params.Limit, req.Params.Cursor, 100,
		func(before int64, limit int) ([]record.Invoice, error) {
			return a.store.Invoices(ctx, tenant, before, limit)
		},
		func(v record.Invoice) int64 { return v.Number },
		func(v record.Invoice) vmapi.Invoice { return apiInvoice(billing.Invoice{Invoice: v}) })
	return vmapi.ListInvoices200JSONResponse{Body: out, Headers: vmapi.ListInvoices200ResponseHeaders{Link: link}}, err
}

// GetInvoice returns a stored invoice.
func (a *API) GetInvoice(
	ctx context.Context, req vmapi.GetInvoiceRequestObject,
) (vmapi.GetInvoiceResponseObject, error) {
	number, err := billing.ParseInvoiceID(req.Id)
	if err != nil {
		return nil, err
	}
	v, err := a.store.Invoice(ctx, number)
	if err != nil {
		return nil, err
	}
	if !wantsCSV(string(value(req.Params.Format)), req.Params.Accept) {
		return vmapi.GetInvoice200JSONResponse(apiInvoice(billing.Invoice{Invoice: v})), nil
	}
	var out bytes.Buffer
	if err := billing.WriteInvoice(&out, &v); err != nil {
		return nil, err
	}
	return vmapi.GetInvoice200TextcsvResponse{Body: &out, ContentLength: int64(out.Len())}, nil
}
