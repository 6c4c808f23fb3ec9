package netpolicy

import (
	"fmt"
	"slices"
)

// rule is a rule of any source, before it is known which addresses it means.
type rule struct {
	deny      bool
	selectors []Selector
	networks  []Peer
	entities  []string
	names     []string // of the domain name system
	group     string
	ports     []Port
	somebody  bool // it names peers, although there may be none in its lists
	nobody    bool // it matches nothing
}

// everybody reports whether a rule matches every address.
func (r *rule) everybody() bool {
	peers := len(r.selectors) + len(r.networks) + len(r.entities) + len(r.names)
	named := r.somebody || peers > 0 || r.group != ""
	return !named || slices.Contains(r.entities, EntityAll)
}

// source is one document that applies to a VM.
type source struct {
	kind, name, tenant string
	prefix             string // of the names of its rules
	ingress, egress    bool   // it denies what no rule allows
	rules              []named
}

// named is a rule with its place in its source.
type named struct {
	rule
	direction, place string
}

// sourceOf returns a policy of a VM as a source of rules.
func sourceOf(p *Policy) source {
	out := source{kind: "vm", prefix: "vm"}
	for _, d := range []struct {
		name string
		of   *OwnDirection
		deny *bool
	}{{Ingress, &p.Ingress, &out.ingress}, {Egress, &p.Egress, &out.egress}} {
		*d.deny = d.of.Default == Deny || d.of.Default == "" && len(d.of.Rules) > 0
		for i := range d.of.Rules {
			out.rules = append(out.rules, named{d.of.Rules[i].rule(), d.name, fmt.Sprintf("%s/%d", d.name, i)})
		}
	}
	return out
}

// qualified returns a name that differs between a tenant's document and one of every tenant.
func qualified(tenant, name string) string {
	if tenant == EveryTenant {
		return "all:" + name
	}
	return name
}

// groupSource returns a group as a source of rules for a VM that is in it.
func groupSource(g *TenantGroup, p *Policy) source {
	out := source{kind: "group", name: g.Name, tenant: g.Tenant, prefix: "group/" + qualified(g.Tenant, g.Name)}
	for i := range g.Rules {
		r := &g.Rules[i]
		out.rules = append(out.rules, named{r.rule(), r.Direction, fmt.Sprint(i)})
		switch {
		case r.Direction == Ingress && p.Ingress.Default != Allow:
			out.ingress = true
		case r.Direction == Egress && p.Egress.Default != Allow:
			out.egress = true
		}
	}
	return out
}

// ciliumSource returns what of a network policy applies to a VM with these labels.
func ciliumSource(c *TenantCilium, labels map[string]string) (out source, applies bool) {
	out = source{kind: "cnp", name: c.Name, tenant: c.Tenant, prefix: "cnp/" + qualified(c.Tenant, c.Name)}
	for i := range c.Specs {
		s := &c.Specs[i]
		if !s.selects.Selects(labels) {
			continue
		}
		applies = true
		out.ingress, out.egress = out.ingress || s.ingress, out.egress || s.egress
		for _, part := range s.sections {
			for j, r := range part.rules {
				out.rules = append(out.rules, named{r, part.direction, fmt.Sprintf("%s%s/%d", s.path, part.name, j)})
			}
		}
	}
	return out, applies
}
