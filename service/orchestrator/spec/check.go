package spec

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/mainstay-infra/mainstay/kit/document"
)

func itoa(n int) string { return strconv.Itoa(n) }

// checker collects what is wrong across the values of a Spec.
type checker struct {
	*document.Problems
	*Spec
	mounts map[string]string // the paths that are taken, and by what
}

func (s *Spec) check(p *document.Problems) {
	c := &checker{p, s, map[string]string{}}
	c.kind()
	c.image()
	c.amounts()
	c.runtime()
	c.scaling()
	c.network()
	c.volumes()
	c.files()
	c.env()
	c.health()
	c.others()
}

// kind checks what only some kinds have.
func (c *checker) kind() {
	if c.Kind == CronJob && c.Schedule == nil {
		c.Add("schedule", "is required for the kind CronJob")
	}
	if c.Kind != CronJob && c.Schedule != nil {
		c.Add("schedule", "is for the kind CronJob only")
	}
	if c.Kind == Workload {
		if c.Restart.Policy == "on-failure" {
			c.Add("restart.policy", "must be always or never for the kind Workload, which has no end")
		}
		return
	}
	if c.Restart.Policy == "always" {
		c.Add("restart.policy", "must be on-failure or never for the kind %s, which has an end", c.Kind)
	}
	if c.Scaling != (Scaling{Replicas: 1}) {
		c.Add("scaling", "is for the kind Workload only")
	}
	if len(c.Network.Ingress) > 0 {
		c.Add("network.ingress", "is for the kind Workload only")
	}
	if c.Network.VIP != "" {
		c.Add("network.vip", "is for the kind Workload only")
	}
}

func (c *checker) image() {
	switch {
	case c.Image == nil && c.Build == nil:
		c.Add("image", "is required, unless there is build")
	case c.Image != nil && c.Build != nil:
		c.Add("build", "cannot be given beside image")
	}
	if b := c.Build; b != nil && !clean(b.Dockerfile) {
		c.Add("build.dockerfile", "must be a path in the context, without . and ..")
	}
}

// clean reports whether a path has no parts that lead elsewhere.
func clean(p string) bool { return path.Clean(p) == p && p != ".." && !strings.HasPrefix(p, "../") }

func (c *checker) amounts() {
	if limit := c.Resources.CPU; limit > 0 && limit < c.Requirements.CPU {
		c.Add("resources.cpu", "must be at least what is required, %s, not %s", c.Requirements.CPU, limit)
	}
	if limit := c.Resources.Memory; limit > 0 && limit < c.Requirements.Memory {
		c.Add("resources.memory", "must be at least what is required, %s, not %s", c.Requirements.Memory, limit)
	}
}

func (c *checker) runtime() {
	r := c.Runtime
	if r.Preferred != "" && len(r.Allow) > 0 && !slices.Contains(r.Allow, r.Preferred) {
		c.Add("runtime.preferred", "must be one of runtime.allow")
	}
	c.unique("runtime.allow", len(r.Allow), func(i int) string { return r.Allow[i] })
}

func (c *checker) scaling() {
	s := c.Scaling
	switch {
	case s.Max == 0 && s.Min > 0:
		c.Add("scaling.min", "needs scaling.max")
	case s.Max == 0 && (s.TargetCPU > 0 || s.TargetMemory > 0):
		c.Add("scaling.max", "is required with a target")
	case s.Max > 0 && s.Min > s.Max:
		c.Add("scaling.min", "must be at most scaling.max, %d, not %d", s.Max, s.Min)
	}
	if s.Max > 0 && s.TargetCPU > 0 && c.Requirements.CPU == 0 {
		c.Add("requirements.cpu", "is required to scale by processors")
	}
	if s.Max > 0 && s.TargetMemory > 0 && c.Requirements.Memory == 0 {
		c.Add("requirements.memory", "is required to scale by memory")
	}
}

func (c *checker) network() {
	n := c.Network
	numbers, published := map[string]string{}, map[string]string{}
	c.unique("network.ports", len(n.Ports), func(i int) string { return n.Ports[i].Name })
	for i, p := range n.Ports {
		at := fmt.Sprintf("network.ports[%d]", i)
		c.taken(numbers, fmt.Sprintf("%s/%d", p.Protocol, p.Port), at+".port")
		if p.Publish > 0 {
			c.taken(published, fmt.Sprintf("%s/%d", p.Protocol, p.Publish), at+".publish")
		}
	}
	served := func(port uint16) bool {
		return slices.ContainsFunc(n.Ports, func(p Port) bool { return p.Port == port && p.Protocol == "tcp" })
	}
	rules := map[string]string{}
	for i, in := range n.Ingress {
		at := fmt.Sprintf("network.ingress[%d]", i)
		if !served(in.Port) {
			c.Add(at+".port", "must be one of network.ports, with the protocol tcp")
		}
		if in.TLS != "" && in.Host == "" {
			c.Add(at+".host", "is required with tls")
		}
		c.taken(rules, in.Host+in.Path, at)
	}
	for _, list := range []struct {
		path  string
		peers []string
	}{{"network.allowFrom", n.AllowFrom}, {"network.allowTo", n.AllowTo}} {
		for i, peer := range list.peers {
			if !isName(peer) && !isNetwork(peer) {
				c.Add(fmt.Sprintf("%s[%d]", list.path, i), "must be the name of a workload, or a network as 10.0.0.0/8")
			}
		}
	}
	if n.VIP != "" {
		if a, err := netip.ParseAddr(n.VIP); err != nil || a.Zone() != "" {
			c.Add("network.vip", "must be an IP address")
		}
		if len(n.Ports) == 0 {
			c.Add("network.ports", "is required with network.vip")
		}
	}
}

func isName(s string) bool { return forms["name"].Match(s) }

// isNetwork reports whether a text is a network without bits beyond its prefix, or one address.
func isNetwork(s string) bool {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p == p.Masked()
	}
	a, err := netip.ParseAddr(s)
	return err == nil && a.Zone() == ""
}

// taken reports a value that another one has, and notes this one.
func (c *checker) taken(by map[string]string, value, path string) {
	if first, ok := by[value]; ok {
		c.Add(path, "is the same as %s", first)
		return
	}
	by[value] = path
}

// unique reports items of a list whose names are those of earlier ones.
func (c *checker) unique(list string, n int, name func(i int) string) {
	seen := map[string]string{}
	for i := range n {
		c.taken(seen, name(i), fmt.Sprintf("%s[%d]", list, i))
	}
}

// reserved are folders that a container gets from its runtime.
var reserved = []string{"/proc", "/sys", "/dev"}

// mount checks a path at which a container has something.
func (c *checker) mount(p, at string) {
	switch {
	case path.Clean(p) != p:
		c.Add(at, "must be a path without . and .., and without a slash at its end")
		return
	case slices.ContainsFunc(reserved, func(r string) bool { return p == r || strings.HasPrefix(p, r+"/") }):
		c.Add(at, "must not be in %s", strings.Join(reserved, ", "))
		return
	}
	for other, of := range c.mounts {
		if other == p {
			c.Add(at, "is the same as %s", of)
			return
		}
	}
	c.mounts[p] = at
}

func (c *checker) volumes() {
	all := c.Persistence.Volumes
	c.unique("persistence.volumes", len(all), func(i int) string { return all[i].Name })
	for i, v := range all {
		at := fmt.Sprintf("persistence.volumes[%d]", i)
		c.mount(v.MountPath, at+".mountPath")
		if v.Ephemeral && (v.Shared || v.ReadOnly) {
			c.Add(at+".ephemeral", "cannot be given with shared or readOnly")
		}
	}
}

func (c *checker) files() {
	c.unique("configMaps", len(c.ConfigMaps), func(i int) string { return c.ConfigMaps[i].Name })
	size := 0
	for i, m := range c.ConfigMaps {
		at := fmt.Sprintf("configMaps[%d]", i)
		c.mount(m.MountPath, at+".mountPath")
		for _, name := range sorted(m.Data) {
			size += len(name) + len(m.Data[name])
			if !forms["file"].Match(name) {
				c.Add(at+".data", "%s must be %s", document.Quoted(name), forms["file"].Says)
			}
		}
	}
	if size > MaxData {
		c.Add("configMaps", "have %d bytes together, which is more than %d", size, MaxData)
	}
	variables := map[string]string{}
	folders := map[string]bool{}
	for i, s := range c.Secrets {
		at := fmt.Sprintf("secrets[%d]", i)
		switch {
		case (s.Env == "") == (s.MountPath == ""):
			c.Add(at, "give exactly one of env and mountPath")
		case s.Env != "" && s.Key == "":
			c.Add(at+".key", "is required with env")
		case s.Env != "":
			c.taken(variables, s.Env, at+".env")
			if _, ok := c.Env[s.Env]; ok {
				c.Add(at+".env", "is also one of env")
			}
		default:
			place := s.Name + " " + s.MountPath
			if !folders[place] || s.Key == "" { // else another key of the same secret, in the same folder
				c.mount(s.MountPath, at+".mountPath")
			}
			folders[place] = true
		}
	}
}

var variablePattern = regexp.MustCompile(variable)

func (c *checker) env() {
	for _, name := range sorted(c.Env) {
		switch {
		case !variablePattern.MatchString(name):
			c.Add("env", "%s must be %s", document.Quoted(name), forms["variable"].Says)
		case strings.ContainsRune(c.Env[name], 0):
			c.Add("env."+name, "must not hold NUL")
		case len(c.Env[name]) > 32<<10:
			c.Add("env."+name, "has more than %d bytes", 32<<10)
		}
	}
	for _, name := range sorted(c.Metadata.Labels) {
		if name == "" || !forms["label"].Match(name) {
			c.Add("metadata.labels", "%s must be %s", document.Quoted(name), forms["label"].Says)
		}
	}
}

func sorted(m map[string]string) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (c *checker) health() {
	h := c.Health
	for name, check := range map[string]*Check{"ready": h.Ready, "live": h.Live, "startup": h.Startup} {
		if check == nil {
			continue
		}
		at, given := "health."+name, 0
		for _, is := range []bool{check.HTTP != nil, check.TCP > 0, len(check.Exec) > 0} {
			if is {
				given++
			}
		}
		if given != 1 {
			c.Add(at, "give exactly one of http, tcp and exec")
		}
		if check.Timeout > check.Interval {
			c.Add(at+".timeout", "must be at most interval, %s, not %s", check.Interval, check.Timeout)
		}
	}
}

func (c *checker) others() {
	c.unique("dependsOn", len(c.DependsOn), func(i int) string { return c.DependsOn[i] })
	if i := slices.Index(c.DependsOn, c.Metadata.Name); i >= 0 {
		c.Add(fmt.Sprintf("dependsOn[%d]", i), "is the workload itself")
	}
	if s := c.Schedule; s != nil {
		if _, err := parseCron(s.Cron); err != nil {
			c.Add("schedule.cron", "%v", err)
		}
		if _, err := s.zone(); err != nil {
			c.Add("schedule.timeZone", "must be the name of a time zone, as Europe/Berlin, not %s", document.Quoted(s.TimeZone))
		}
	}
}

func (s *Schedule) zone() (*time.Location, error) {
	if s.TimeZone == "Local" { // which is the server's, and not what the document's author knows
		return nil, errors.New("not the name of a time zone")
	}
	return time.LoadLocation(s.TimeZone)
}

// Next returns when a schedule is due next after a time, in its time zone. It is zero if that is more than five years
// away, as the 30th of February is. A time of day that a change of clocks leaves out is not due on that day.
func (s *Schedule) Next(after time.Time) (time.Time, error) {
	times, err := parseCron(s.Cron)
	if err != nil {
		return time.Time{}, err
	}
	zone, err := s.zone()
	if err != nil {
		return time.Time{}, err
	}
	return times.Next(after.In(zone)), nil
}

// parseCron reads the five fields of a schedule, as in crontab(5), or a word such as @daily. The time zone is another
// value.
func parseCron(text string) (cron.Schedule, error) {
	wrong := fmt.Errorf("must be five fields, as 0 3 * * 1-5, or @hourly, @daily, @weekly, @monthly, not %s", document.Quoted(text))
	if strings.Contains(text, "TZ=") || strings.HasPrefix(text, "@every") {
		return nil, wrong
	}
	s, err := cron.ParseStandard(text)
	if err != nil {
		return nil, wrong
	}
	return s, nil
}
