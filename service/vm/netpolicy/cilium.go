package netpolicy

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// MaxDocument is the maximum size of a document, in bytes.
const MaxDocument = 256 << 10

// What a network policy must be of.
const (
	APIVersion = "cilium.io/v2"
	Kind       = "CiliumNetworkPolicy"
)

// Limits on lists in a network policy.
const (
	maxSpecs  = 64
	maxInRule = 1000 // of selectors, networks and names in a rule
	maxLabels = 64   // of a selector
	maxValues = 256  // of a requirement
)

// Cilium is a network policy in Cilium's form, as it was read.
type Cilium struct {
	Name  string
	Specs []spec
}

// spec is one part of a network policy: rules for the VMs that it selects.
type spec struct {
	path     string // in the names of rules: empty, or specs/INDEX/
	selects  Selector
	sections []section
	// ingress and egress: this denies what no rule allows.
	ingress, egress bool
}

// section is a list of rules of a spec.
type section struct {
	name      string // as in the document
	direction string
	rules     []rule
}

var (
	cnpName  = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)
	labelKey = regexp.MustCompile(`^[^\s\x00-\x1f]{1,63}$`)
)

// ParseCilium reads a network policy from decoded JSON. A fault names the path of what is not valid or
// not supported, for example spec.ingress[0].toPorts[0].rules.
func ParseCilium(document map[string]any) (Cilium, error) {
	r := &reader{}
	var out Cilium
	o := r.object("", document, "apiVersion", "kind", "metadata", "spec", "specs")
	if v := r.text("apiVersion", o["apiVersion"]); v != APIVersion {
		r.fail("apiVersion", "must be %s", APIVersion)
	}
	if v := r.text("kind", o["kind"]); v != Kind {
		r.fail("kind", "must be %s", Kind)
	}
	meta := r.object("metadata", o["metadata"], "name", "labels", "annotations")
	if out.Name = r.text("metadata.name", meta["name"]); !cnpName.MatchString(out.Name) {
		r.fail("metadata.name", "%.70q is not a valid name: it has 1 to 63 lower-case letters, digits, dots and dashes, and begins "+
			"and ends with a letter or digit", out.Name)
	}
	r.pairs("metadata.labels", meta["labels"], maxLabels)
	r.pairs("metadata.annotations", meta["annotations"], maxLabels)
	if o["spec"] != nil {
		out.Specs = append(out.Specs, r.spec("spec", "", o["spec"]))
	}
	for i, v := range r.list("specs", o["specs"], maxSpecs) {
		out.Specs = append(out.Specs, r.spec(at("specs", i), at("specs", i)+"/", v))
	}
	if len(out.Specs) == 0 {
		r.fail("spec", "is needed")
	}
	for i := range out.Specs {
		out.Specs[i].path = strings.NewReplacer("[", "/", "]", "").Replace(out.Specs[i].path)
	}
	if r.err != nil {
		return Cilium{}, r.err
	}
	return out, nil
}

func (r *reader) spec(path, name string, value any) spec {
	o := r.object(path, value,
		"description", "endpointSelector", "ingress", "ingressDeny", "egress", "egressDeny", "enableDefaultDeny")
	out := spec{path: name}
	r.text(path+".description", o["description"])
	if o["endpointSelector"] == nil {
		r.fail(path+".endpointSelector", "is needed; {} selects every VM")
	}
	out.selects = r.selector(path+".endpointSelector", o["endpointSelector"])
	for _, s := range []struct {
		name, direction string
		deny            bool
	}{
		{"ingress", Ingress, false}, {"ingressDeny", Ingress, true}, {"egress", Egress, false}, {"egressDeny", Egress, true},
	} {
		part := section{name: s.name, direction: s.direction}
		for i, v := range r.list(path+"."+s.name, o[s.name], MaxRules) {
			part.rules = append(part.rules, r.rule(at(path+"."+s.name, i), v, s.direction, s.deny))
		}
		if len(part.rules) == 0 {
			continue
		}
		out.sections = append(out.sections, part)
		out.ingress = out.ingress || s.direction == Ingress
		out.egress = out.egress || s.direction == Egress
	}
	if o["enableDefaultDeny"] != nil {
		d := r.object(path+".enableDefaultDeny", o["enableDefaultDeny"], "ingress", "egress")
		if v := r.boolean(path+".enableDefaultDeny.ingress", d["ingress"]); v != nil {
			out.ingress = *v
		}
		if v := r.boolean(path+".enableDefaultDeny.egress", d["egress"]); v != nil {
			out.egress = *v
		}
	}
	return out
}

func (r *reader) selector(path string, value any) (out Selector) {
	if value == nil {
		return out
	}
	o := r.object(path, value, "matchLabels", "matchExpressions")
	labels := r.pairs(path+".matchLabels", o["matchLabels"], maxLabels)
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		v := labels[key]
		if out.Labels == nil {
			out.Labels = map[string]string{}
		}
		here := path + ".matchLabels." + printable(key)
		name := r.label(here, key)
		if _, twice := out.Labels[name]; twice {
			r.fail(here, "the label is given twice, with and without any:")
		}
		out.Labels[name] = v
	}
	for i, v := range r.list(path+".matchExpressions", o["matchExpressions"], maxLabels) {
		here := at(path+".matchExpressions", i)
		e := r.object(here, v, "key", "operator", "values")
		q := Requirement{
			Key: r.label(here+".key", r.text(here+".key", e["key"])), Operator: r.text(here+".operator", e["operator"]),
			Values: r.texts(here+".values", e["values"], maxValues),
		}
		switch {
		case q.Operator == opIn || q.Operator == opNotIn:
			if len(q.Values) == 0 {
				r.fail(here+".values", "is needed")
			}
		case q.Operator == opExists || q.Operator == opDoesNotExist:
			if len(q.Values) > 0 {
				r.fail(here+".values", "is not for %s", q.Operator)
			}
		default:
			r.fail(here+".operator", "must be In, NotIn, Exists or DoesNotExist")
		}
		slices.Sort(q.Values)
		out.Requirements = append(out.Requirements, q)
	}
	return out
}

// label returns the key of a label without the source any. Other sources are not known here.
func (r *reader) label(path, key string) string {
	key = strings.TrimPrefix(key, "any:")
	switch {
	case strings.HasPrefix(key, "k8s:") || strings.HasPrefix(key, "reserved:"):
		r.fail(path, "labels with a source are not supported, except any:; they are the labels of VMs")
	case !labelKey.MatchString(key):
		r.fail(path, "is not the key of a label")
	}
	return key
}
