// Package template has the workloads that people start from: documents with a few values to fill in.
//
//	template.go  List and Make
//	documents/   a document for each template
//
// # Invariants
//
//   - What Make returns is a valid workload, which the runtimes of the template can run.
//   - It keeps the rules of development, and those of production but for what only its owner knows: the registry, the
//     digest and the owner.
package template

import (
	"embed"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/orchestrator/spec"
)

//go:embed documents/*.yaml
var documents embed.FS

// Template is a workload to start from.
type Template struct {
	Name     string
	Summary  string
	Runtimes []string // that can run it
}

var (
	everywhere = []string{"podman", "kubernetes"}
	templates  = []Template{
		{"web-app", "A web server in two instances, at a port of its hosts.", everywhere},
		{"rest-api", "An API in two instances, for other workloads.", everywhere},
		{"database", "A database server, whose content is kept.", everywhere},
		{"cache", "A cache, whose content is lost when it stops.", everywhere},
		{"worker", "A process that takes its work from a queue.", everywhere},
		{"cron-job", "A program that runs every night.", everywhere},
		{"ml-training", "A training on a GPU, which ends.", []string{"kubernetes"}},
		{"microservice", "A small service that is scaled by what it uses.", everywhere},
	}
)

// List returns all templates.
func List() []Template { return slices.Clone(templates) }

// Values are filled into a template. Empty ones are the template's.
type Values struct {
	WorkloadName, Owner, Project string
	Registry                     string // instead of docker.io
	CPU, Memory                  string // amounts, as documents have them
	Port, Replicas               int
}

// Make returns a workload of a template and its document. Faults are NotFound if there is no such template, and Invalid
// with the field if a value is not valid.
func Make(name string, v Values) (*spec.Spec, []byte, error) {
	at := slices.IndexFunc(templates, func(t Template) bool { return t.Name == name })
	if at < 0 {
		return nil, nil, fault.New(fault.NotFound, "there is no template %.64q", name)
	}
	raw, err := documents.ReadFile("documents/" + name + ".yaml")
	if err != nil {
		return nil, nil, err
	}
	var root yaml.Node
	if err := yaml.Unmarshal(raw, &root); err != nil {
		return nil, nil, err
	}
	document := root.Content[0]
	for _, one := range values(document, &v) {
		for _, c := range one.changes {
			set(document, c.to, c.path...)
		}
		// One at a time, so that a problem is that of its value.
		if _, _, err := read(document); err != nil {
			return nil, nil, fault.InvalidField(one.field, "%s", reason(err))
		}
	}
	return read(document)
}

// value is one that is filled in, at one or more places of the document.
type value struct {
	field   string
	changes []change
}

type change struct {
	to   any
	path []string
}

func values(document *yaml.Node, v *Values) (all []value) {
	at := func(path ...string) []string { return path }
	text := func(field, to string, path ...string) {
		if to != "" {
			all = append(all, value{field, []change{{to, path}}})
		}
	}
	text("workload_name", v.WorkloadName, "metadata", "name")
	text("owner", v.Owner, "metadata", "owner")
	text("project", v.Project, "metadata", "project")
	text("registry", v.Registry, "image", "registry")
	text("cpu", v.CPU, "requirements", "cpu")
	if v.Memory != "" {
		memory := value{"memory", []change{{v.Memory, at("requirements", "memory")}}}
		if b, err := spec.ParseBytes(v.Memory); err == nil { // the limit stays twice as much, as in the templates
			memory.changes = append(memory.changes, change{(2 * b).String(), at("resources", "memory")})
		}
		all = append(all, memory)
	}
	if v.Replicas != 0 {
		key := "replicas"
		if find(document, "scaling", "max") != nil {
			key = "min"
		}
		all = append(all, value{"replicas", []change{{v.Replicas, at("scaling", key)}}})
	}
	if v.Port != 0 {
		port := value{"port", []change{{v.Port, at("network", "ports", "0", "port")}}}
		for _, check := range []string{"ready", "live"} {
			for _, path := range [][]string{{"health", check, "http", "port"}, {"health", check, "tcp"}} {
				if find(document, path...) != nil {
					port.changes = append(port.changes, change{v.Port, path})
				}
			}
		}
		all = append(all, port)
	}
	return all
}

func read(document *yaml.Node) (*spec.Spec, []byte, error) {
	raw, err := yaml.Marshal(document)
	if err != nil {
		return nil, nil, err
	}
	s, _, err := spec.Read(raw)
	return s, raw, err
}

// reason returns what is wrong with a value, without its path in the document.
func reason(err error) string {
	_, text, found := strings.Cut(fault.From(err).Message, ": ")
	if !found {
		return fault.From(err).Message
	}
	text, _, _ = strings.Cut(text, " (line ")
	return text
}

func child(n *yaml.Node, key string) *yaml.Node {
	switch {
	case n == nil:
		return nil
	case n.Kind == yaml.SequenceNode && key == "0" && len(n.Content) > 0:
		return n.Content[0]
	case n.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == key {
				return n.Content[i+1]
			}
		}
	}
	return nil
}

func find(n *yaml.Node, path ...string) *yaml.Node {
	for _, key := range path {
		n = child(n, key)
	}
	return n
}

// set sets a value in a document, with the mappings that lead to it.
func set(n *yaml.Node, to any, path ...string) {
	for i, key := range path {
		next := child(n, key)
		if next == nil {
			next = &yaml.Node{Kind: yaml.MappingNode}
			n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, next)
		}
		if n = next; i == len(path)-1 {
			_ = n.Encode(to) // texts and numbers always encode
		}
	}
}
