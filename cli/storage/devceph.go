package storage

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/input"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

// devCeph returns the commands for a throw-away Ceph on this machine. They ask no service.
func (s commands) devCeph() *cobra.Command {
	cmd := verb.Group("dev-ceph", "A throw-away Ceph cluster on this machine, to try the gateway with",
		"  mainstay storage dev-ceph up\n  mainstay storage dev-ceph status\n  mainstay storage dev-ceph down")
	cmd.Long = `Run a Ceph cluster with an object gateway on this machine, out of Debian's packages and without containers, to try the
storage gateway with. All of it is in one folder and listens on 127.0.0.1.

Do not keep data there that anybody needs: everything is on one disk. 'up' and 'down' need root.`
	cmd.AddCommand(s.devCephUp(), s.devCephDown(), s.devCephStatus())
	return cmd
}

// cephDir defines --dir.
func cephDir(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", "", "folder of the cluster (default .mainstay/ceph, where 'mainstay dev' looks for it)")
}

// in returns the folder of the cluster.
func (s commands) in(dir string) string {
	if dir == "" {
		dir = filepath.Join(s.Env.Dir, ".mainstay", "ceph")
	}
	return dir
}

// entry matches the names that the gateway's settings may give to clusters.
var entry = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)

// maxOSDs is how many OSDs a machine may be asked for.
const maxOSDs = 16

// defaultOSDSize is how large an OSD is unless something else is said, in bytes.
const defaultOSDSize = 10 << 30

// smallestOSD is how large an OSD must be at least: some of it is Ceph's own.
const smallestOSD = 2 << 30

func (s commands) devCephUp() *cobra.Command {
	var dir string
	want := newCluster{size: input.Bytes()}
	cmd := s.Local(verb.Verb{
		Use: "up", Short: "Start the cluster, or what does not run of it",
		Long: `Start a monitor, a manager, OSDs and an object gateway, and make a pool for images (rbd) and a user that administers
buckets. If there is a cluster in the folder, it is started as it was, with its data, and what runs of it stays.

'mainstay dev' in the same working directory uses the cluster by itself, from its next start on. For a folder elsewhere,
the environment variables that it needs are printed.

It needs root, and programs of Ceph; what is missing is named, and installed with --install.`,
		Example: `  mainstay storage dev-ceph up
  mainstay storage dev-ceph up --install
  mainstay storage dev-ceph up --dir /srv/ceph --backend lab --osds 5 --osd-size 50GiB`,
		Check: func(*cobra.Command, []string) error { return want.check() },
	}, func(ctx context.Context, c *call) error { return cephUp(ctx, c, s.in(dir), want) })
	cephDir(cmd, &dir)
	cmd.Flags().StringVar(&want.name, "backend", "dev", "name of the cluster in the gateway's settings, and of the backend")
	cmd.Flags().IntVar(&want.osds, "osds", 3, "number of OSDs of a new cluster")
	cmd.Flags().Var(&want.size, "osd-size", "size of each OSD of a new cluster; room is taken as data is written (default 10GiB)")
	cmd.Flags().BoolVar(&want.install, "install", false, "install missing programs with apt-get")
	return cmd
}

// newCluster is what a new cluster is to be.
type newCluster struct {
	name    string
	osds    int
	size    input.Size
	install bool
}

func (n *newCluster) check() error {
	switch {
	case !entry.MatchString(n.name):
		return exit.Usagef("--backend must be letters, digits, and . - _ between them, not %q", n.name)
	case n.osds < 1 || n.osds > maxOSDs:
		return exit.Usagef("--osds must be between 1 and %d", maxOSDs)
	case n.size.Count != 0 && n.bytes() < smallestOSD:
		return exit.Usagef("--osd-size must be at least 2GiB")
	}
	return nil
}

// bytes returns the size of an OSD.
func (n *newCluster) bytes() int64 {
	if n.size.Count == 0 {
		return defaultOSDSize
	}
	return int64(n.size.Count)
}

func (s commands) devCephDown() *cobra.Command {
	var dir string
	var purge, yes bool
	cmd := s.Local(verb.Verb{
		Use: "down", Short: "Stop the cluster; its data stays",
		Long: `Stop the cluster. Its data stays, and 'mainstay storage dev-ceph up' starts it again. With --purge, its folder is removed
with all data.`,
		Example: "  mainstay storage dev-ceph down\n  mainstay storage dev-ceph down --purge --yes",
	}, func(ctx context.Context, c *call) error { return cephDown(ctx, c, s.in(dir), purge, yes) })
	cephDir(cmd, &dir)
	cmd.Flags().BoolVar(&purge, "purge", false, "remove the cluster's folder, with all data")
	verb.YesFlag(cmd, &yes)
	return cmd
}

func (s commands) devCephStatus() *cobra.Command {
	var dir string
	cmd := s.Local(verb.Verb{
		Use: "status", Short: "Show whether the cluster runs, its health, and how full it is",
		Example: "  mainstay storage dev-ceph status\n  mainstay storage dev-ceph status -o json",
	}, func(ctx context.Context, c *call) error { return cephStatus(ctx, c, s.in(dir)) })
	cephDir(cmd, &dir)
	return cmd
}

// cluster is what is told about a cluster.
type cluster struct {
	Dir   string `json:"dir"`
	State string `json:"state"` // none, unfinished, stopped, partial or running
	cephFacts
	Daemons  []daemon          `json:"daemons"`
	Health   string            `json:"health,omitempty"`
	Problems []string          `json:"problems"`
	Raw      int64             `json:"raw_bytes"`
	Used     int64             `json:"used_bytes"`
	Free     int64             `json:"free_bytes"`
	Settings map[string]string `json:"settings,omitempty"` // environment variables of the gateway
}

// cephFacts are those of a cluster that is there.
type cephFacts struct {
	Name          string `json:"name,omitempty"`
	FSID          string `json:"fsid,omitempty"`
	Pool          string `json:"pool,omitempty"`
	Conf          string `json:"conf,omitempty"`
	ObjectGateway string `json:"object_gateway,omitempty"`
}

// daemon is one of the cluster. PID 0: it does not run.
type daemon struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
}

// The states of a cluster.
const (
	cephNone       = "none"
	cephUnfinished = "unfinished" // it was never complete
	cephStopped    = "stopped"
	cephPartial    = "partial" // some daemons do not run
	cephRunning    = "running"
)

// print prints what is known of a cluster.
func (k *cluster) print(c *call) error {
	raw, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return c.Out.ObjectAs(raw, func() error { return k.table(c) })
}

func (k *cluster) table(c *call) error {
	switch k.State {
	case cephNone:
		return c.Say("There is no cluster in %s. 'mainstay storage dev-ceph up' creates one.", k.Dir)
	case cephStopped:
		return c.Say("The cluster in %s is stopped. 'mainstay storage dev-ceph up' starts it.", k.Dir)
	case cephUnfinished:
		if err := c.Say("The cluster in %s is not complete. 'mainstay storage dev-ceph up' completes it.", k.Dir); err != nil {
			return err
		}
	}
	rows := [][]any{
		{"State", k.State}, {"Folder", k.Dir}, {"Pool for images", k.Pool}, {"Object gateway", k.ObjectGateway},
	}
	if k.Health != "" {
		rows = append(rows, []any{"Health", strings.Join(append([]string{k.Health}, k.Problems...), "; ")}, []any{
			"Capacity", fmt.Sprintf("%s of %s used; %s can be written to the pool", verb.Bytes(k.Used), verb.Bytes(k.Raw), verb.Bytes(k.Free)),
		})
	}
	for _, d := range k.Daemons {
		text := fmt.Sprintf("process %d", d.PID)
		if d.PID == 0 {
			text = "does not run; 'mainstay storage dev-ceph up' starts it"
		}
		rows = append(rows, []any{d.Name, text})
	}
	return c.Out.Rows(rows)
}

// next says what makes the gateway use the cluster. found: 'mainstay dev' finds it by itself.
func (k *cluster) next(c *call, found bool) error {
	dev := "mainstay dev"
	if !found {
		dev = fmt.Sprintf("STORE_CEPH_CLUSTERS=%s STORE_OBJECT_GATEWAYS=%s mainstay dev",
			k.Settings["STORE_CEPH_CLUSTERS"], k.Settings["STORE_OBJECT_GATEWAYS"])
	}
	_, err := fmt.Fprintf(c.Out.Out, `
The gateway knows the cluster as %[1]s if it is started like this, as root:

  %[2]s

Then, once, in another terminal:

  mainstay storage backend create %[1]s --type ceph
  mainstay storage backend discover %[1]s
  mainstay storage policy set %[1]s --backend %[1]s --kind block --pool %[3]s
  mainstay storage volume create first --size 1GiB --policy %[1]s
  mainstay storage bucket create first-bucket

For Ceph's own programs: export CEPH_CONF=%[4]s
`, output.Escape(k.Name), output.Escape(dev), output.Escape(k.Pool), output.Escape(k.Conf))
	return err
}

// needsRoot returns an error unless root runs the command.
func needsRoot(c *call) error {
	if os.Geteuid() == 0 {
		return nil
	}
	return exit.Hinted(fmt.Errorf("%s needs root", c.Cmd.CommandPath()), "run it with sudo")
}
