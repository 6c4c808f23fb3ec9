package convert

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/mainstay-infra/mainstay/service/orchestrator/spec"
)

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// escapeReferences has Kubernetes take $(NAME) as it is written.
func escapeReferences(text string) string { return strings.ReplaceAll(text, "$(", "$$(") }

func protocol(p spec.Port) string { return strings.ToUpper(p.Protocol) }

// services adds the address at which the workload is reached, and for a StatefulSet the names of its pods.
func (c *kubernetes) services() {
	if c.stateful() {
		c.add("v1", "Service", part(c.name(), "instances"), Object{"spec": Object{
			"clusterIP": "None", "selector": c.selector(), "publishNotReadyAddresses": true,
		}})
	}
	var ports []any
	for _, p := range c.s.Network.Ports {
		ports = append(ports, Object{"name": p.Name, "port": p.Port, "targetPort": p.Port, "protocol": protocol(p)})
	}
	if len(ports) > 0 {
		c.add("v1", "Service", c.name(), Object{"spec": Object{"selector": c.selector(), "ports": ports}})
	}
}

func (c *kubernetes) ingress() {
	var rules, tls []any
	for _, in := range c.s.Network.Ingress {
		rule := Object{"http": Object{"paths": []any{Object{
			"path": in.Path, "pathType": "Prefix",
			"backend": Object{"service": Object{"name": c.name(), "port": Object{"number": in.Port}}},
		}}}}
		if in.Host != "" {
			rule["host"] = in.Host
		}
		rules = append(rules, rule)
		if in.TLS != "" {
			tls = append(tls, Object{"hosts": []any{in.Host}, "secretName": SecretName(c.name(), in.TLS)})
		}
	}
	if len(rules) == 0 {
		return
	}
	o := Object{"rules": rules}
	if len(tls) > 0 {
		o["tls"] = tls
	}
	c.add("networking.k8s.io/v1", "Ingress", c.name(), Object{"spec": o})
}

// policy adds who may connect. Names of other workloads stand for their pods in any namespace of this orchestrator.
func (c *kubernetes) policy() {
	n := c.s.Network
	var types []any
	o := Object{"podSelector": Object{"matchLabels": c.selector()}}
	if len(n.AllowFrom) > 0 {
		types = append(types, "Ingress")
		o["ingress"] = []any{Object{"from": c.peers(n.AllowFrom)}}
	}
	if len(n.AllowTo) > 0 {
		types = append(types, "Egress")
		o["egress"] = []any{
			Object{"to": c.peers(n.AllowTo)},
			Object{"ports": []any{ // names must be found
				Object{"port": 53, "protocol": "UDP"}, Object{"port": 53, "protocol": "TCP"},
			}},
		}
	}
	if len(types) == 0 {
		return
	}
	o["policyTypes"] = types
	c.notes.Warnings.Add("network", "allowFrom and allowTo hold only if the cluster's network enforces NetworkPolicies")
	c.add("networking.k8s.io/v1", "NetworkPolicy", c.name(), Object{"spec": o})
}

func (c *kubernetes) peers(names []string) (all []any) {
	for _, name := range names {
		if a, err := netip.ParseAddr(name); err == nil {
			name = netip.PrefixFrom(a, a.BitLen()).String()
		}
		if strings.Contains(name, "/") {
			all = append(all, Object{"ipBlock": Object{"cidr": name}})
			continue
		}
		all = append(all, Object{
			"namespaceSelector": Object{},
			"podSelector":       Object{"matchLabels": Object{LabelServer: c.owner.Server, LabelName: name}},
		})
	}
	return all
}
