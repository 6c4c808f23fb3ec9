package config

import (
	"regexp"
	"slices"
	"strings"
)

// envValue is the text of a setting in the environment.
type envValue struct {
	text   string
	source string // names the variable, and the file it points to
}

// readEnviron returns the values by key and adds problems to p.
func readEnviron(environ []string, prefix string, fields []field, p *problems) map[string]envValue {
	env := map[string]string{}
	for _, line := range environ {
		if name, value, ok := strings.Cut(line, "="); ok {
			env[name] = value
		}
	}
	found := map[string]envValue{}
	var known []string
	for i := range fields {
		f := &fields[i]
		known = append(known, f.Env)
		value := env[f.Env]
		if value != "" {
			found[f.Key] = envValue{value, "environment variable " + f.Env}
		}
		if !f.Secret {
			continue
		}
		known = append(known, f.fileEnv())
		path := env[f.fileEnv()]
		if path == "" {
			continue
		}
		if value != "" {
			p.add(
				f.Key, "environment variables %s and %s: %s: both are set; keep one of them", f.Env, f.fileEnv(), f.Key,
			)
			continue
		}
		raw, err := readBounded(path)
		if err != nil {
			p.add(f.Key, "environment variable %s: %s: file %s: %s", f.fileEnv(), f.Key, path, reason(err))
			continue
		}
		text := strings.TrimSuffix(strings.TrimSuffix(string(raw), "\n"), "\r")
		if text == "" { // it counts as not set
			p.add(f.Key, "environment variable %s: %s: file %s is empty", f.fileEnv(), f.Key, path)
			continue
		}
		found[f.Key] = envValue{text, "file " + path + " (environment variable " + f.fileEnv() + ")"}
	}
	if prefix = strings.TrimSuffix(prefix, "_"); prefix == "" {
		return found
	}
	var unknown []string
	for name, value := range env {
		rest, ours := strings.CutPrefix(name, prefix+"_")
		if ours && !slices.Contains(known, name) && !slices.Contains(clientVariables, rest) &&
			!fromKubernetes(rest, value) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		p.add(name, "environment variable %s: no setting has this name%s", name, suggestion(name, known))
	}
	return found
}

// clientVariables are the names, after a service's prefix, of the variables for the command line:
// EDGE_SERVER, EDGE_TOKEN and so on. People export them in the shell that starts the server.
var clientVariables = []string{"SERVER", "URL", "TOKEN", "PASSWORD"}

// fromKubernetes recognises the variables that Kubernetes adds to every pod for each Service of the
// namespace: a Service named edge, or edge-api, defines EDGE_SERVICE_HOST, EDGE_API_PORT_8080_TCP
// and so on.
func fromKubernetes(rest, value string) bool {
	link := regexp.MustCompile(`^(.+_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)
	if link.MatchString(rest) {
		return true
	}
	address := regexp.MustCompile(`^(tcp|udp|sctp)://`)
	return (rest == "PORT" || strings.HasSuffix(rest, "_PORT")) && address.MatchString(value)
}
