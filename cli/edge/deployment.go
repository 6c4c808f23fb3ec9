package edge

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s *session) deployments() *cobra.Command {
	cmd := verb.Group(
		"deployment", "Deployments: containers that sites run", "  mainstay edge deployment list --site plant-7",
		"deployments", "deploy",
	)
	cmd.AddCommand(
		s.deploymentList(),
		s.show("deployment", "DEPLOYMENT", "deployment", func(ctx context.Context, c *call) (*http.Response, error) {
			return c.API.GetDeployment(ctx, c.Args[0])
		}),
		s.deploymentCreate(), s.deploymentUpdate(),
		s.delete("deployment", "DEPLOYMENT", "deployment", "", func(ctx context.Context, c *call) (*http.Response, error) {
			return c.API.DeleteDeployment(ctx, c.Args[0])
		}),
	)
	return cmd
}

func deploymentRow(v edgeapi.Deployment) []any {
	return []any{v.Id, siteRef(v.SiteId), v.Name, v.Image, v.Version, v.DesiredState, knownStatus(v), v.UpdatedAt}
}

// knownStatus returns the status of a deployment as far as it is known: the agent's last report may
// be outdated if its site is not online.
func knownStatus(v edgeapi.Deployment) string {
	if v.SiteStatus == nil || *v.SiteStatus == edgeapi.SiteStatusOnline {
		return string(v.Status)
	}
	switch v.Status {
	case edgeapi.DeploymentStatusRunning, edgeapi.DeploymentStatusStopped, edgeapi.DeploymentStatusPulling:
		return fmt.Sprintf("unknown (was %s)", v.Status)
	}
	return string(v.Status)
}

func deploymentHeads(more ...string) []string {
	return append([]string{"ID", "SITE", "NAME", "IMAGE", "VERSION", "DESIRED", "STATUS", "UPDATED"}, more...)
}

func (s *session) deploymentList() *cobra.Command {
	var site, search, sort string
	var status []string
	cmd := verb.List(s.Session, verb.Verb{
		Use: "list", Short: "List deployments, oldest first",
		Example: "  mainstay edge deployment list --site plant-7\n  mainstay edge deployment list --status failed,denied,unknown\n  mainstay edge deployment list --search acme/camera:1.4 --sort name",
	},
		output.Columns[edgeapi.Deployment]{Heads: deploymentHeads(), Row: deploymentRow},
		func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
			return c.API.ListDeployments(ctx, &edgeapi.ListDeploymentsParams{
				Limit:  p.Limit,
				Cursor: p.Cursor,
				SiteId: verb.Given(c, "site", site),
				Status: verb.Given(c, "status", words[edgeapi.KnownDeploymentStatus](status)),
				Q:      verb.Given(c, "search", search),
				Sort:   verb.Given(c, "sort", edgeapi.ListDeploymentsParamsSort(sort)),
			})
		})
	f := cmd.Flags()
	f.StringVar(&site, "site", "", "only deployments of this site")
	f.StringSliceVar(
		&status, "status", nil,
		"pending, pulling, running, stopped, failed, denied, rolled_back, or unknown while the site is not online; may be repeated",
	)
	f.StringVar(
		&search, "search", "",
		"only deployments with this text in the name, the ID, the image, the version, or the site's name, ID or a label",
	)
	f.StringVar(&sort, "sort", "", "id or name; a dash before it means descending")
	return cmd
}

// words returns the values of a flag as a contract names them.
func words[T ~string](values []string) []T {
	all := make([]T, len(values))
	for i, v := range values {
		all[i] = T(v)
	}
	return all
}

// deploymentFlags are the flags for creating and changing a deployment.
type deploymentFlags struct {
	site, image, version, state string
	pull, restart               string
	env                         verb.Pairs
	ports                       []string
	health                      string
	interval, timeout           int
	retries, startPeriod        int
}

func (d *deploymentFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&d.image, "image", "", "OCI image reference")
	f.StringVar(&d.version, "version", "", "what people call this release")
	f.StringVar(&d.state, "state", "running", "running or stopped")
	f.Var(&d.env, "env", "environment variable; may be repeated, replaces all of them")
	f.StringArrayVar(&d.ports, "port", nil, "[HOST:]CONTAINER[/udp]; may be repeated, replaces all of them")
	f.StringVar(&d.pull, "pull", "missing", "when to pull the image: missing, always or never")
	f.StringVar(&d.restart, "restart", "always", "when to start an ended container again: always, on_failure or no")
	f.StringVar(
		&d.health, "health-command", "",
		"program and arguments, split at spaces, that exit with 0 inside a healthy container; empty removes the check",
	)
	f.IntVar(&d.interval, "health-interval", 10, "seconds between two checks")
	f.IntVar(&d.timeout, "health-timeout", 5, "seconds after which a check has failed")
	f.IntVar(&d.retries, "health-retries", 3, "failed checks in a row that make the container unhealthy")
	f.IntVar(&d.startPeriod, "health-start-period", 0, "seconds after the start in which failed checks do not count")
}

// check returns the health check, or nil if no flag sets its command.
func (d *deploymentFlags) check(c *call) *edgeapi.HealthCheck {
	if !c.Cmd.Flags().Changed("health-command") {
		return nil
	}
	return &edgeapi.HealthCheck{
		Command:            strings.Fields(d.health),
		IntervalSeconds:    verb.Given(c, "health-interval", d.interval),
		TimeoutSeconds:     verb.Given(c, "health-timeout", d.timeout),
		Retries:            verb.Given(c, "health-retries", d.retries),
		StartPeriodSeconds: verb.Given(c, "health-start-period", d.startPeriod),
	}
}

func (s *session) deploymentCreate() *cobra.Command {
	var d deploymentFlags
	cmd := s.Object(verb.Verb{
		Required: []string{"site", "image", "version"},
		Check:    d.valid,
		Use:      "create NAME", Short: "Have a site run a container image",
		Example: `  mainstay edge deployment create web --site plant-7 --image docker.io/library/nginx:1.29 --version 1.29 \
    --port 8080:80 --env NGINX_ENTRYPOINT_QUIET_LOGS=1`,
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		ports, err := parsePorts(d.ports)
		if err != nil {
			return nil, err
		}
		return c.API.CreateDeployment(ctx, edgeapi.DeploymentInput{
			Name:         c.Args[0],
			SiteId:       d.site,
			Image:        d.image,
			Version:      d.version,
			DesiredState: verb.Given(c, "state", edgeapi.DesiredState(d.state)),
			Env:          verb.Given(c, "env", edgeapi.Env(d.env)),
			Ports:        verb.Given(c, "port", ports),
			PullPolicy:   verb.Given(c, "pull", edgeapi.PullPolicy(d.pull)),
			Restart:      verb.Given(c, "restart", edgeapi.RestartPolicy(d.restart)),
			Health:       d.check(c),
		})
	})
	d.add(cmd)
	cmd.Flags().StringVar(&d.site, "site", "", "site to run it (required)")
	return cmd
}

func (s *session) deploymentUpdate() *cobra.Command {
	var d deploymentFlags
	cmd := s.Object(verb.Verb{
		Check:   d.valid,
		Use:     "update DEPLOYMENT",
		Short:   "Change image or version, start or stop it; what no flag names stays",
		Example: "  mainstay edge deployment update web --image docker.io/library/nginx:1.30 --version 1.30\n  mainstay edge deployment update web --state stopped",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		ports, err := parsePorts(d.ports)
		if err != nil {
			return nil, err
		}
		return c.API.PatchDeployment(ctx, c.Args[0], edgeapi.DeploymentPatch{
			Image:        verb.Given(c, "image", d.image),
			Version:      verb.Given(c, "version", d.version),
			DesiredState: verb.Given(c, "state", edgeapi.DesiredState(d.state)),
			Env:          verb.Given(c, "env", edgeapi.Env(d.env)),
			Ports:        verb.Given(c, "port", ports),
			PullPolicy:   verb.Given(c, "pull", edgeapi.PullPolicy(d.pull)),
			Restart:      verb.Given(c, "restart", edgeapi.RestartPolicy(d.restart)),
			Health:       d.check(c),
		})
	})
	d.add(cmd)
	return cmd
}

// valid says what is wrong with the flags.
func (d *deploymentFlags) valid(*cobra.Command, []string) error {
	_, err := parsePorts(d.ports)
	return err
}

// parsePorts parses [HOST:]CONTAINER[/PROTOCOL], like container tools.
func parsePorts(texts []string) ([]edgeapi.Port, error) {
	ports := make([]edgeapi.Port, 0, len(texts))
	for _, text := range texts {
		var p edgeapi.Port
		numbers, protocol, ok := strings.Cut(text, "/")
		if ok {
			p.Protocol = new(edgeapi.PortProtocol(protocol))
		}
		host, container, mapped := strings.Cut(numbers, ":")
		if !mapped {
			container = host
		}
		var err error
		if p.ContainerPort, err = portNumber(container); err == nil && mapped {
			var n int
			n, err = portNumber(host)
			p.HostPort = &n
		}
		if err != nil {
			return nil, exit.Usagef("--port %q must be [HOST:]CONTAINER[/udp]: %w", text, err)
		}
		ports = append(ports, p)
	}
	return ports, nil
}

func portNumber(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err == nil && (n < 1 || n > 65535) {
		err = fmt.Errorf("%d is not a port", n)
	}
	return n, err
}
