package spec

import (
	"reflect"
	"regexp"

	"github.com/mainstay-infra/mainstay/kit/document"
)

// syntax is that of the documents.
var syntax = document.Syntax{
	MaxBytes: MaxBytes, MaxValues: 1 << 14, MaxItems: 512, Lenient: true,
	Needs: "it needs apiVersion, metadata, and image or build",
	Scalars: map[reflect.Type]document.Scalar{
		reflect.TypeFor[CPU]():      {Name: "processors", Pattern: wholeCPU.String() + "|" + milliCPU.String(), Parse: func(text string) (any, error) { return ParseCPU(text) }},
		reflect.TypeFor[Bytes]():    {Name: "bytes", Pattern: bytesForm.String(), Parse: func(text string) (any, error) { return ParseBytes(text) }},
		reflect.TypeFor[Duration](): {Name: "duration", Pattern: document.DurationPattern, Parse: func(text string) (any, error) { return parseDuration(text) }},
	},
	Forms: forms,
}

func form(pattern, says string) document.Form {
	return document.Form{Pattern: regexp.MustCompile(pattern), Says: says}
}

// maxName leaves room for what is appended to names in Kubernetes, where they have 63 characters (RFC 1123).
const maxName = 40

// forms are what texts must look like. Names have no two hyphens in a row, so that names that are joined by two of them
// are never the same as others.
var forms = map[string]document.Form{
	"name": {
		Pattern: regexp.MustCompile(`^[a-z](-?[a-z0-9])*$`), Max: maxName,
		Says: "lower-case letters, digits and single hyphens, at most 40, and begin with a letter",
	},
	"label": form(`^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$`,
		"letters, digits, hyphens, underscores and dots, at most 63"),
	"line":       form(`^[^\x00-\x1f\x7f]{0,128}$`, "a line of at most 128 characters"),
	"port":       form(`^[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?$`, "lower-case letters, digits and hyphens, at most 15"),
	"registry":   form(`^[a-z0-9]([-a-z0-9.]{0,253}[a-z0-9])?(:[0-9]{1,5})?$`, "a host with or without a port, as in registry.example.com:5000"),
	"repository": form(`^[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*){0,15}$`, "a repository, as in library/nginx"),
	"tag":        form(`^[A-Za-z0-9_][-A-Za-z0-9_.]{0,127}$`, "a tag, as in 1.27"),
	"digest":     form(`^sha256:[0-9a-f]{64}$`, "sha256: and 64 hexadecimal digits"),
	"context": form(`^(upload:[A-Za-z0-9-]{1,64}|https://[A-Za-z0-9.-]+(:[0-9]{1,5})?/[^\s?#]{1,512}(#[A-Za-z0-9._/-]{1,128})?)$`,
		"an upload, as upload:ID, or a git repository, as https://host/path#ref"),
	"path":       form(`^[^/\x00-\x1f\x7f][^\x00-\x1f\x7f]{0,254}$`, "a path that does not begin with a slash"),
	"mount":      form(`^/[^\x00-\x1f\x7f:]{1,254}$`, "an absolute path without colons, and not /"),
	"urlpath":    form(`^/[^\s\x00-\x1f\x7f]{0,254}$`, "a path that begins with a slash"),
	"host":       form(`^(\*\.)?[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`, "a host name in lower case"),
	"peer":       form(`^[a-z0-9A-F:][-a-z0-9A-F.:/]{0,62}$`, "the name of a workload, an address, or a network as 10.0.0.0/8"),
	"file":       form(`^[-A-Za-z0-9_][-A-Za-z0-9_.]{0,252}$`, "letters, digits, hyphens, underscores and dots, and not begin with a dot"),
	"variable":   form(variable, "letters, digits and underscores, and not begin with a digit"),
	"capability": form(`^[A-Z][A-Z_]{1,31}$`, "a capability in capitals without CAP_, as NET_RAW, or ALL"),
}

const variable = `^[A-Za-z_][A-Za-z0-9_]{0,255}$`

// Read reads a document. Its error is a fault of kind Invalid that tells all problems. Each warning names the path of a
// key that is not known, and has no effect.
func Read(raw []byte) (s *Spec, warnings []string, err error) {
	s = &Spec{}
	problems, unknown := syntax.Decode(raw, s)
	refuseHost(raw, problems)
	if problems.None() { // a value that could not be read looks like one that is not set
		s.complete()
		s.check(problems)
	}
	if err := problems.Fault(); err != nil {
		return nil, unknown.Lines(), err
	}
	return s, unknown.Lines(), nil
}

// complete sets the defaults that depend on other values.
func (s *Spec) complete() {
	if s.Restart.Policy == "" {
		s.Restart.Policy = "on-failure"
		if s.Kind == Workload {
			s.Restart.Policy = "always"
		}
	}
	for _, i := range []*Image{s.Image, s.Runtime.Disk} {
		if i == nil {
			continue
		}
		if i.Registry == "" {
			i.Registry = "docker.io"
		}
		if i.Tag == "" && i.Digest == "" {
			i.Tag = "latest"
		}
	}
	for i := range s.Network.Ports {
		if p := &s.Network.Ports[i]; p.Name == "" {
			p.Name = p.Protocol + "-" + itoa(int(p.Port))
		}
	}
	if c := &s.Scaling; c.Max > 0 && c.TargetCPU == 0 && c.TargetMemory == 0 {
		c.TargetCPU = 80
	}
	if c := &s.Scaling; c.Max > 0 && c.Min == 0 {
		c.Min = 1
	}
}

// Schema returns the JSON Schema of documents.
func Schema() map[string]any {
	return syntax.Schema(reflect.TypeFor[Spec](), "Workload of the version "+Version)
}

// Reference lists all keys of documents.
func Reference() []document.Row { return syntax.Reference(reflect.TypeFor[Spec]()) }

// Markdown returns the reference as a Markdown table.
func Markdown() string { return syntax.Markdown(reflect.TypeFor[Spec]()) }
