package storage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s commands) dr() *cobra.Command {
	cmd := verb.Group("dr", "Volumes that are mirrored to another site, and failover",
		"  mainstay storage dr enable data --peer west\n  mainstay storage dr list\n  mainstay storage dr preflight")
	cmd.Long = `Work with volumes that are mirrored to a Ceph cluster at another site. A mirror is one volume at one site; if the gateway
knows both sites, there are two of them. Commands about a mirror act at its site. They take its ID, or the name of its
image if only one site has that.`
	cmd.AddCommand(
		s.drStatus(), s.drPreflight(), s.drPeers(), s.drList(), s.drShow(), s.drEnable(), s.drDisable(), s.drRPO(),
		s.drRehearse(), s.drFailover(), s.drPromote(), s.drDemote(), s.drResync(), s.drPool(),
	)
	return cmd
}

// secondsOf formats how old something is, in seconds.
func secondsOf(secs *int64) string {
	if secs == nil {
		return ""
	}
	return (time.Duration(*secs) * time.Second).String()
}

func (s commands) drStatus() *cobra.Command {
	var cluster string
	cmd := s.Object(verb.Verb{
		Use: "status", Short: "Show how the mirrors are, in numbers", Example: "  mainstay storage dr status",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.GetDRStatus(ctx, &storageapi.GetDRStatusParams{Cluster: verb.Given(c, "cluster", cluster)})
	})
	cmd.Flags().StringVar(&cluster, "cluster", "", clusterUsage)
	return cmd
}

var errNoFailover = errors.New("a failover would not work for all volumes now")

func (s commands) drPreflight() *cobra.Command {
	var cluster, mirror string
	cmd := s.Command(verb.Verb{
		Use: "preflight", Short: "Check whether a failover would work now, and list the steps for the case at hand",
		Long: `Check whether a failover would work now, and list the steps for the case at hand. It asks both sites of each mirror. It
fails, with exit code 1, if something is in the way.`,
		Example: "  mainstay storage dr preflight\n" +
			"  mainstay storage dr preflight --mirror 0199f2a4-58a4-7dcb-b0d5-3b8f6d1d2c3e",
	}, func(ctx context.Context, c *call) error {
		a, err := c.Send(c.API.GetDRPreflight(ctx, &storageapi.GetDRPreflightParams{
			Cluster: verb.Given(c, "cluster", cluster), MirrorId: verb.Given(c, "mirror", mirror),
		}))
		p, err := decode[storageapi.DRPreflight](a, err)
		if err != nil {
			return err
		}
		if !c.Table() {
			if err := c.Done(a, ""); err != nil {
				return err
			}
		} else if err := printPreflight(c, &p); err != nil {
			return err
		}
		if !p.Ready {
			return errNoFailover
		}
		return nil
	})
	cmd.Flags().StringVar(&cluster, "cluster", "", clusterUsage)
	cmd.Flags().StringVar(&mirror, "mirror", "", "only this mirror")
	return cmd
}

var stepColumns = output.Columns[storageapi.DRStep]{
	Heads: []string{"STEP", "COMMAND", "WHY"},
	Row:   func(t storageapi.DRStep) []any { return []any{t.Title, t.Command, t.Detail} },
}

func printPreflight(c *call, p *storageapi.DRPreflight) error {
	if err := printRows(c, checkColumns, p.Checks); err != nil || len(p.Steps) == 0 {
		return err
	}
	return printRows(c, stepColumns, p.Steps)
}

func (s commands) drPeers() *cobra.Command {
	var cluster string
	list := verb.List(s.session, verb.Verb{
		Use: "list", Short: "List the clusters that volumes can be mirrored to, newest first",
		Example: "  mainstay storage dr peer list",
	}, output.Columns[storageapi.Peer]{
		Heads: []string{"NAME", "STATE", "CLUSTER", "OTHER CLUSTER", "DIRECTION", "FSID", "ID", "LAST ERROR"},
		Row: func(p storageapi.Peer) []any {
			return []any{
				p.Name, p.State, output.Ref{Kind: "CLUSTER", ID: p.ClusterId}, output.Ref{Kind: "CLUSTER", ID: p.RemoteClusterId},
				p.Direction, p.RemoteFsid, p.Id, p.LastError,
			}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListPeers(ctx, &storageapi.ListPeersParams{
			Limit: p.Limit, Cursor: p.Cursor, Cluster: verb.Given(c, "cluster", cluster),
		})
	})
	list.Flags().StringVar(&cluster, "cluster", "", clusterUsage)
	cmd := verb.Group("peer", "The clusters that volumes can be mirrored to",
		"  mainstay storage dr peer add west --secret west --cluster east\n  mainstay storage dr peer list", "peers")
	cmd.AddCommand(list, s.drPeerAdd(), s.drPeerRemove())
	return cmd
}

func (s commands) drPeerAdd() *cobra.Command {
	var cluster, secret, remote string
	var oneWay bool
	cmd := s.Command(verb.Verb{
		Use: "add NAME", Short: "Register a cluster that volumes can be mirrored to", Required: []string{"secret"},
		Long: `Register a cluster that volumes can be mirrored to. On a host of that cluster, make a token:
"rbd mirror pool peer bootstrap create POOL". Put it into a file on the gateway's host, and name the file in the
gateway's setting mirror-peers.`,
		Example: "  mainstay storage dr peer add west --secret west --cluster east",
	}, func(ctx context.Context, c *call) error {
		spec := storageapi.PeerSpec{Name: c.Args[0], SecretRef: secret, RemoteCluster: verb.Given(c, "remote", remote)}
		if oneWay {
			spec.Direction = new(storageapi.PeerDirectionRxOnly)
		}
		where := storageapi.CreatePeerParams{Cluster: verb.Given(c, "cluster", cluster)}
		a, err := c.Send(c.API.CreatePeer(ctx, &where, spec))
		if err != nil {
			return err
		}
		return c.Done(a, "Registered the peer %s.", c.Args[0])
	})
	f := cmd.Flags()
	f.StringVar(&secret, "secret", "", "entry of the gateway's setting mirror-peers")
	f.StringVar(&cluster, "cluster", "", "cluster at this site; not needed if there is only one")
	f.StringVar(&remote, "remote", "", "the other cluster, if the gateway knows it, to check the token")
	f.BoolVar(&oneWay, "one-way", false, "only copy volumes from there")
	return cmd
}

func (s commands) drPeerRemove() *cobra.Command {
	return s.Confirmed(verb.Verb{
		Use: "remove PEER", Short: "Remove a peer that no mirror uses", Example: "  mainstay storage dr peer remove west --yes",
	}, "Remove the peer %s?", func(ctx context.Context, c *call) error {
		a, err := c.Send(c.API.DeletePeer(ctx, c.Args[0]))
		if err != nil {
			return err
		}
		return c.Done(a, "Removed the peer %s.", c.Typed[0])
	})
}

func (s commands) drList() *cobra.Command {
	var tenant, cluster string
	cmd := verb.List(s.session, verb.Verb{
		Use: "list", Short: "List mirrors, newest first",
		Example: "  mainstay storage dr list\n  mainstay storage dr list --cluster east --tenant acme",
	}, output.Columns[storageapi.Mirror]{
		Heads: []string{"IMAGE", "CLUSTER", "ROLE", "STATE", "AGE OF COPY", "RPO", "MODE", "ID", "LAST ERROR"},
		Row: func(m storageapi.Mirror) []any {
			rpo := ""
			if m.RpoSeconds > 0 {
				rpo = secondsOf(&m.RpoSeconds)
			}
			return []any{
				m.Pool + "/" + m.Image, output.Ref{Kind: "CLUSTER", ID: m.ClusterId}, m.Role, m.State, secondsOf(m.LagSeconds), rpo, m.Mode,
				m.Id, m.LastError,
			}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListMirrors(ctx, &storageapi.ListMirrorsParams{
			Limit: p.Limit, Cursor: p.Cursor, Tenant: verb.Given(c, "tenant", tenant),
			Cluster: verb.Given(c, "cluster", cluster),
		})
	})
	cmd.Flags().StringVar(&tenant, "tenant", "", "only those of this tenant")
	cmd.Flags().StringVar(&cluster, "cluster", "", clusterUsage)
	return cmd
}

func (s commands) drShow() *cobra.Command {
	return s.Object(verb.Verb{
		Use: "show MIRROR", Short: "Ask both sites of a mirror how it is, and whether it can be promoted",
		Example: "  mainstay storage dr show 0199f2a4-58a4-7dcb-b0d5-3b8f6d1d2c3e",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.GetMirrorStatus(ctx, c.Args[0])
	})
}

func (s commands) drEnable() *cobra.Command {
	var key func() *string
	var peer, mode string
	cmd := s.Command(verb.Verb{
		Use: "enable VOLUME", Short: "Mirror a volume to another site from now on", Required: []string{"peer"},
		Long: `Mirror a volume to another site from now on. By snapshots, the gateway sends what has changed twice in the time that the
copy may be old, which is 15 minutes until 'mainstay storage dr rpo' says something else. By its journal, each write is
sent; that makes writes slower.`,
		Example: "  mainstay storage dr enable data --peer west\n  mainstay storage dr enable log --peer west --mode journal",
	}, func(ctx context.Context, c *call) error {
		r, err := c.API.EnableMirror(ctx, c.Args[0], &storageapi.EnableMirrorParams{
			Peer: peer, Mode: verb.Given(c, "mode", storageapi.MirrorMode(mode)), IdempotencyKey: key(),
		}, storageapi.Nothing{})
		return await(ctx, c, "Mirroring "+c.Typed[0], r, err, func(b begun) error {
			return removed(ctx, c, b.JobID, "%s is mirrored from now on.")
		})
	})
	cmd.Flags().StringVar(&peer, "peer", "", "peer to mirror it to, as 'mainstay storage dr peer list' shows them")
	cmd.Flags().StringVar(&mode, "mode", "snapshot", "snapshot or journal")
	key = jobFlags(cmd)
	return cmd
}

func (s commands) drDisable() *cobra.Command {
	var key func() *string
	cmd := s.Confirmed(verb.Verb{
		Use: "disable VOLUME", Short: "Stop mirroring a volume; its copy at the other site is removed",
		Example: "  mainstay storage dr disable data --yes",
	}, "Stop mirroring %s, and remove its copy?", func(ctx context.Context, c *call) error {
		r, err := c.API.DisableMirror(ctx, c.Args[0], &storageapi.DisableMirrorParams{IdempotencyKey: key()})
		return await(ctx, c, "Ending the mirroring of "+c.Typed[0], r, err, func(b begun) error {
			return removed(ctx, c, b.JobID, "%s is not mirrored any more.")
		})
	})
	key = jobFlags(cmd)
	return cmd
}

func (s commands) drRPO() *cobra.Command {
	var within time.Duration
	cmd := s.Command(verb.Verb{
		Use: "rpo MIRROR", Short: "Say how old the copy of a volume may be", Required: []string{"within"},
		Long: `Say how old the copy of a volume may be. The gateway sends what has changed twice in this time, and opens an alert when
the copy is older. With 0 it does neither.`,
		Example: "  mainstay storage dr rpo 0199f2a4-58a4-7dcb-b0d5-3b8f6d1d2c3e --within 5m",
	}, func(ctx context.Context, c *call) error {
		a, err := c.Send(c.API.SetRPO(ctx, c.Args[0], storageapi.RPO{RpoSeconds: int64(within / time.Second)}))
		if err != nil {
			return err
		}
		return c.Done(a, "The copy of %s may be %s old.", c.Typed[0], within)
	})
	cmd.Flags().DurationVar(&within, "within", 0, "how old the copy may be, such as 5m")
	return cmd
}

// onMirror builds a command that begins a job about a mirror, after a question unless that is empty.
func (s commands) onMirror(
	v verb.Verb, question, doing, done string,
	begin func(ctx context.Context, c *call, id string, key *string) (*http.Response, error),
) *cobra.Command {
	var key func() *string
	run := func(ctx context.Context, c *call) error {
		r, err := begin(ctx, c, c.Args[0], key())
		return await(ctx, c, fmt.Sprintf(doing, c.Typed[0]), r, err, func(b begun) error {
			return removed(ctx, c, b.JobID, done)
		})
	}
	var cmd *cobra.Command
	if question == "" {
		cmd = s.Command(v, run)
	} else {
		cmd = s.Confirmed(v, question, run)
	}
	key = jobFlags(cmd)
	return cmd
}

func (s commands) drRehearse() *cobra.Command {
	return s.onMirror(verb.Verb{
		Use: "rehearse MIRROR", Short: "Read all of the copy of a volume, and compare it with the original",
		Long: `Read all of the copy of a volume through a clone, and compare it with a snapshot of the original. Neither of them changes.
'mainstay storage dr list -o json' shows how it ended.`,
		Example: "  mainstay storage dr rehearse 0199f2a4-58a4-7dcb-b0d5-3b8f6d1d2c3e",
	}, "", "Reading the copy of %s", "The copy of %s can be read.",
		func(ctx context.Context, c *call, id string, key *string) (*http.Response, error) {
			return c.API.RehearseFailover(ctx, id, &storageapi.RehearseFailoverParams{IdempotencyKey: key}, storageapi.Nothing{})
		})
}

// forceFlags defines the flags of commands that skip checks.
func forceFlags(cmd *cobra.Command, force, replayed *bool) {
	cmd.Flags().BoolVar(force, "force", false, "also if the other site does not answer or is not demoted")
	cmd.Flags().BoolVar(replayed, "peer-replayed", false, "you know that all writes of the other site have arrived")
}

func (s commands) drFailover() *cobra.Command {
	var force, replayed bool
	cmd := s.onMirror(verb.Verb{
		Use: "failover MIRROR", Short: "Demote a volume at the other site, and promote it at the site of a mirror",
		Long: `Demote a volume at the other site, wait until that has arrived, and promote it at the site of this mirror. No client may
have the volume open. With --force, the other site need not answer, and what has not arrived after 30 seconds is lost.`,
		Example: "  mainstay storage dr failover 0199f2a4-58a4-7dcb-b0d5-3b8f6d1d2c3e --yes",
	}, "Move the work of %s to this site?", "Failing over %s", "%s is primary at this site.",
		func(ctx context.Context, c *call, id string, key *string) (*http.Response, error) {
			return c.API.FailOver(ctx, &storageapi.FailOverParams{IdempotencyKey: key}, storageapi.Failover{
				MirrorId: id, Confirm: true, Force: &force, PeerReplayed: &replayed,
			})
		})
	forceFlags(cmd, &force, &replayed)
	return cmd
}

func (s commands) drPromote() *cobra.Command {
	var force, replayed bool
	cmd := s.onMirror(verb.Verb{
		Use: "promote MIRROR", Short: "Make a volume the one that is written to",
		Long: `Make a volume the one that is written to. The other site must be demoted, and this one must have that. With --force it
need not: the volume may be written to at both sites then, and one of them has to be copied again.`,
		Example: "  mainstay storage dr promote 0199f2a4-58a4-7dcb-b0d5-3b8f6d1d2c3e --yes",
	}, "Promote %s at this site?", "Promoting %s", "%s is primary at this site.",
		func(ctx context.Context, c *call, id string, key *string) (*http.Response, error) {
			return c.API.PromoteMirror(ctx, id, &storageapi.PromoteMirrorParams{
				Force: &force, PeerReplayed: &replayed, IdempotencyKey: key,
			}, storageapi.Nothing{})
		})
	forceFlags(cmd, &force, &replayed)
	return cmd
}

func (s commands) drDemote() *cobra.Command {
	return s.onMirror(verb.Verb{
		Use: "demote MIRROR", Short: "Make a volume the copy of the one at the other site",
		Example: "  mainstay storage dr demote 0199f2a4-58a4-7dcb-b0d5-3b8f6d1d2c3e --yes",
	}, "Demote %s at this site?", "Demoting %s", "%s is not primary at this site any more.",
		func(ctx context.Context, c *call, id string, key *string) (*http.Response, error) {
			return c.API.DemoteMirror(ctx, id, &storageapi.DemoteMirrorParams{IdempotencyKey: key}, storageapi.Nothing{})
		})
}

func (s commands) drResync() *cobra.Command {
	return s.onMirror(verb.Verb{
		Use: "resync MIRROR", Short: "Throw away what this site has of a volume, and copy it again",
		Example: "  mainstay storage dr resync 0199f2a4-58a4-7dcb-b0d5-3b8f6d1d2c3e --yes",
	}, "Throw away what this site has of %s?", "Asking for a new copy of %s", "%s is being copied again; 'mainstay storage dr show' tells when its health is ok.",
		func(ctx context.Context, c *call, id string, key *string) (*http.Response, error) {
			return c.API.ResyncMirror(ctx, id, &storageapi.ResyncMirrorParams{IdempotencyKey: key}, storageapi.Nothing{})
		})
}

func (s commands) drPool() *cobra.Command {
	var cluster, mode string
	cmd := s.Command(verb.Verb{
		Use: "pool POOL", Short: "Show or change which images of a pool are mirrored",
		Long: `Show which images of a pool are mirrored: image (those that are chosen one by one), pool (all that have a journal) or
disabled. With --mode, change that.`,
		Example: "  mainstay storage dr pool vms\n  mainstay storage dr pool vms --mode image --cluster east",
	}, func(ctx context.Context, c *call) error {
		where := verb.Given(c, "cluster", cluster)
		var r *http.Response
		var err error
		if m := verb.Given(c, "mode", storageapi.PoolMirroringMode(mode)); m != nil {
			r, err = c.API.SetPoolMirroring(ctx, c.Args[0], &storageapi.SetPoolMirroringParams{Cluster: where},
				storageapi.PoolMirroringSpec{Mode: *m})
		} else {
			r, err = c.API.GetPoolMirroring(ctx, c.Args[0], &storageapi.GetPoolMirroringParams{Cluster: where})
		}
		a, err := c.Send(r, err)
		p, err := decode[storageapi.PoolMirroring](a, err)
		if err != nil {
			return err
		}
		return c.Done(a, "Mirroring of the pool %s: %s.", p.Pool, p.Mode)
	})
	cmd.Flags().StringVar(&cluster, "cluster", "", clusterUsage)
	cmd.Flags().StringVar(&mode, "mode", "", "image, pool or disabled")
	return cmd
}
