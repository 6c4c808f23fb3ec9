package netpolicy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Numbers of identities, as Cilium has them.
const (
	IdentityUnknown = 0
	IdentityHost    = 1
	IdentityWorld   = 2

	// FirstIdentity is the lowest number of an identity of VMs.
	FirstIdentity = 256
	// FirstNetwork is the lowest number of an identity of a network that a policy names.
	FirstNetwork = 1 << 24
)

// Reserved are the identities with fixed numbers.
var Reserved = map[int64]string{
	0: "unknown", 1: "host", 2: "world", 3: "unmanaged", 4: "health", 5: "init", 6: "remote-node", 7: "kube-apiserver",
	8: "ingress",
}

// LabelsKey identifies a set of labels: equal sets have equal keys.
func LabelsKey(labels map[string]string) string {
	if labels == nil {
		labels = map[string]string{}
	}
	text, err := json.Marshal(labels) // sorted by key
	if err != nil {
		panic(err) // it holds texts only
	}
	return string(text)
}

// LabelList returns a set of labels as KEY=VALUE, sorted.
func LabelList(labels map[string]string) []string {
	out := make([]string, 0, len(labels))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, key+"="+labels[key])
	}
	return out
}

// at returns the path of an element of a list.
func at(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }
