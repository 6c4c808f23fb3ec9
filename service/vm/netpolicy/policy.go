package netpolicy

import (
	"regexp"
	"slices"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// EveryTenant is the tenant of groups and network policies that hold for all tenants. No tenant has
// this name.
const EveryTenant = "*"

// Policy is a VM's own policy.
type Policy struct {
	Groups  []string     `json:"groups,omitempty"` // that the VM is in
	Ingress OwnDirection `json:"ingress"`
	Egress  OwnDirection `json:"egress"`
}

// OwnDirection is one direction of a VM's own policy.
type OwnDirection struct {
	// Default is what happens to packets that no rule of any policy matches. Empty: deny if this policy or
	// one of the VM's groups has rules in this direction, else allow. Allow: this policy and the VM's groups
	// do not make the default a deny; other policies may.
	Default string    `json:"default,omitempty"`
	Rules   []OwnRule `json:"rules,omitempty"`
}

// maxGroups is the most groups that a VM may be in.
const maxGroups = 64

// Check returns a fault that names the part of a policy that is not valid.
func (p *Policy) Check() error {
	if len(p.Groups) > maxGroups {
		return fault.InvalidField("groups", "has %d groups; a VM is in at most %d", len(p.Groups), maxGroups)
	}
	for i, name := range p.Groups {
		if err := CheckName(at("groups", i), name); err != nil {
			return err
		}
		if slices.Contains(p.Groups[:i], name) {
			return fault.InvalidField(at("groups", i), "%s is given twice", name)
		}
	}
	if n := len(p.Ingress.Rules) + len(p.Egress.Rules); n > MaxRules {
		return fault.InvalidField("ingress", "the policy has %d rules; at most %d are taken", n, MaxRules)
	}
	for _, d := range []struct {
		name string
		of   *OwnDirection
	}{{Ingress, &p.Ingress}, {Egress, &p.Egress}} {
		if d.of.Default != "" && d.of.Default != Allow && d.of.Default != Deny {
			return fault.InvalidField(d.name+".default", "must be allow or deny")
		}
		for i := range d.of.Rules {
			r, path := &d.of.Rules[i], at(d.name+".rules", i)
			if r.Direction != "" && r.Direction != d.name {
				return fault.InvalidField(path+".direction", "is that of the list that the rule is in")
			}
			if err := r.check(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// empty reports whether a policy says nothing.
func (p *Policy) empty() bool {
	return len(p.Groups) == 0 && p.Ingress.Default == "" && p.Egress.Default == "" && len(p.Ingress.Rules)+len(p.Egress.Rules) == 0
}

// GroupNames returns the groups that a policy names, sorted.
func (p *Policy) GroupNames() []string {
	return groupNames(p.Groups, p.Ingress.Rules, p.Egress.Rules)
}

// Group is a security group: rules for the VMs that are in it.
type Group struct {
	Name        string    `json:"name"`
	Description string    `json:"description,omitempty"`
	Rules       []OwnRule `json:"rules,omitempty"`
}

// Check returns a fault that names the part of a group that is not valid.
func (g *Group) Check() error {
	if err := CheckName("name", g.Name); err != nil {
		return err
	}
	if err := checkDescription("description", g.Description); err != nil {
		return err
	}
	if len(g.Rules) > MaxRules {
		return fault.InvalidField("rules", "the group has %d rules; at most %d are taken", len(g.Rules), MaxRules)
	}
	for i := range g.Rules {
		if d := g.Rules[i].Direction; d != Ingress && d != Egress {
			return fault.InvalidField(at("rules", i)+".direction", "must be ingress or egress")
		}
		if err := g.Rules[i].check(at("rules", i)); err != nil {
			return err
		}
	}
	return nil
}

// GroupNames returns the groups that the rules of a group name, sorted.
func (g *Group) GroupNames() []string { return groupNames(nil, g.Rules) }

func groupNames(names []string, lists ...[]OwnRule) []string {
	out := slices.Clone(names)
	for _, rules := range lists {
		for i := range rules {
			if rules[i].Group != "" {
				out = append(out, rules[i].Group)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

var validName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

// CheckName returns a fault if a name of a group or policy is not valid.
func CheckName(field, name string) error {
	if !validName.MatchString(name) {
		return fault.InvalidField(field, "%.70q is not a valid name: it has 1 to 63 letters, digits, dots, dashes and underscores, "+
			"and begins and ends with a letter or digit", name)
	}
	return nil
}
