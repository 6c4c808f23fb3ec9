package billing

import (
	"io"
	"time"

	"github.com/shopspring/decimal"

	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/service/vm/billing/tariff"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// columns are those of FOCUS 1.0, the FinOps Open Cost and Usage Specification.
var columns = []string{
	"AvailabilityZone", "BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd",
	"BillingPeriodStart", "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargeFrequency", "ChargePeriodEnd",
	"ChargePeriodStart", "CommitmentDiscountCategory", "CommitmentDiscountId", "CommitmentDiscountName",
	"CommitmentDiscountStatus", "CommitmentDiscountType", "ConsumedQuantity", "ConsumedUnit", "ContractedCost",
	"ContractedUnitPrice", "EffectiveCost", "InvoiceIssuerName", "ListCost", "ListUnitPrice", "PricingCategory",
	"PricingQuantity", "PricingUnit", "ProviderName", "PublisherName", "RegionId", "RegionName", "ResourceId",
	"ResourceName", "ResourceType", "ServiceCategory", "ServiceName", "SkuId", "SkuPriceId", "SubAccountId",
	"SubAccountName", "Tags",
}

// issuer is who sells and bills, in the columns of FOCUS.
const issuer = "Mainstay"

// charge is a row of the CSV.
type charge struct {
	vm, name, tenant, description, currency string
	resource                                tariff.Resource
	from, to                                time.Time
	quantity, cost                          decimal.Decimal
	unitPrice                               string // empty: it was not the same all the time
}

func (c *charge) row() []string {
	start, end := tariff.Month(c.from)
	service, category := "Virtual machines", "Compute"
	switch c.resource {
	case tariff.Disk:
		service, category = "Disks", "Storage"
	case tariff.Egress:
		service, category = "Network", "Networking"
	case tariff.CPU, tariff.Memory:
	}
	at := func(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }
	cost, quantity := c.cost.String(), c.quantity.String()
	values := map[string]string{
		"BilledCost": cost, "EffectiveCost": cost, "ListCost": cost, "ContractedCost": cost,
		"BillingAccountId": issuer, "BillingAccountName": issuer, "BillingCurrency": c.currency,
		"BillingPeriodStart": at(start), "BillingPeriodEnd": at(end),
		"ChargePeriodStart": at(c.from), "ChargePeriodEnd": at(c.to),
		"ChargeCategory": "Usage", "ChargeDescription": c.description, "ChargeFrequency": "Usage-Based",
		"ConsumedQuantity": quantity, "ConsumedUnit": c.resource.Unit(), "PricingQuantity": quantity,
		"PricingUnit": c.resource.Unit(), "PricingCategory": "Standard",
		"ListUnitPrice": c.unitPrice, "ContractedUnitPrice": c.unitPrice,
		"InvoiceIssuerName": issuer, "ProviderName": issuer, "PublisherName": issuer,
		"ResourceId": c.vm, "ResourceName": c.name, "ResourceType": "Virtual machine",
		"ServiceCategory": category, "ServiceName": service, "SkuId": string(c.resource), "SkuPriceId": string(c.resource),
		"SubAccountId": c.tenant, "SubAccountName": c.tenant, // empty for VMs without a tenant
	}
	out := make([]string, len(columns))
	for i, name := range columns {
		out[i] = values[name]
	}
	return out
}

func write(w io.Writer, charges []charge) error {
	rows := make([][]string, len(charges))
	for i := range charges {
		rows[i] = charges[i].row()
	}
	return list.WriteCSV(w, columns, rows)
}

// WriteUsage writes usage as CSV with the columns of FOCUS 1.0: a row for each resource of each VM in each
// month. The costs of whole months are those of the invoices' lines.
func WriteUsage(w io.Writer, all []Usage) error {
	var charges []charge
	for i := range all {
		u := &all[i]
		for n := range u.Months {
			month := &u.Months[n]
			for _, r := range tariff.Resources() {
				c := charge{
					vm: u.VM, name: u.Name, tenant: u.Tenant, description: names[r] + " of VM " + u.Name, currency: u.Currency,
					resource: r, from: month.From, to: month.To, quantity: month.Sum.Quantity(r), cost: month.Cost(r),
				}
				if price, ok := month.UnitPrice(r); ok {
					c.unitPrice = price.String()
				}
				charges = append(charges, c)
			}
		}
	}
	return write(w, charges)
}

// WriteInvoice writes an invoice as CSV with the columns of FOCUS 1.0: a row for each line.
func WriteInvoice(w io.Writer, v *record.Invoice) error {
	var charges []charge
	for _, l := range v.Lines.V {
		charges = append(charges, charge{
			vm: l.VM, name: l.Name, tenant: v.Tenant, description: l.Description, currency: v.Currency,
			resource: tariff.Resource(l.Resource), from: v.From.UTC(), to: v.To.UTC(), quantity: l.Quantity, cost: l.Amount,
		})
	}
	return write(w, charges)
}
