package spec

import (
	"bytes"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/mainstay-infra/mainstay/kit/document"
)

// ofTheHost are keys by which other formats give a container something of the host (Kubernetes, compose, podman). They
// would only be warned about otherwise, and whoever writes them must know that they have no effect.
var ofTheHost = map[string]string{
	"privileged": "privileged containers", "hostNetwork": "the host's network", "network_mode": "the host's network",
	"hostPID": "the host's processes", "pid": "the host's processes",
	"hostIPC": "the host's memory", "ipc": "the host's memory",
	"hostUsers": "the host's users", "userns_mode": "the host's users", "cgroup_parent": "the host's control groups",
	"hostPath": "paths of the host", "devices": "devices of the host", "device_cgroup_rules": "devices of the host",
	"capAdd": "more capabilities", "cap_add": "more capabilities", "addCapabilities": "more capabilities",
	"allowPrivilegeEscalation": "more rights", "procMount": "paths of the host", "sysctls": "settings of the host",
	"security_opt": "other rules of the host",
}

// freeText are sections whose keys a person chooses.
var freeText = map[string]bool{
	"env": true, "configMaps": true, "annotations": true, "labels": true, "args": true,
}

// maxDepth is deeper than documents are.
const maxDepth = 16

// refuseHost reports keys that ask for something of the host, wherever they are. What aliases repeat is reported where
// it is written.
func refuseHost(raw []byte, p *document.Problems) {
	var root yaml.Node
	if len(raw) > MaxBytes || yaml.NewDecoder(bytes.NewReader(raw)).Decode(&root) != nil || len(root.Content) == 0 {
		return // which is told already
	}
	visit(root.Content[0], "", 0, p)
}

func visit(n *yaml.Node, path string, depth int, p *document.Problems) {
	if depth > maxDepth {
		return
	}
	switch n.Kind {
	case yaml.SequenceNode:
		for i, item := range n.Content {
			visit(item, path+"["+strconv.Itoa(i)+"]", depth+1, p)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i].Value
			at := key
			if path != "" {
				at = path + "." + key
			}
			if what, ok := ofTheHost[key]; ok {
				p.AddAt(n.Content[i].Line, at, "workloads do not get %s", what)
			} else if !freeText[key] {
				visit(n.Content[i+1], at, depth+1, p)
			}
		}
	}
}
