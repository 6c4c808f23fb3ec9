//go:build linux

package ceph

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/ceph/wire"
)

// status is the part of "ceph status" that is read.
type status struct {
	FSID   string `json:"fsid"`
	Health struct {
		Status string `json:"status"`
		Checks map[string]struct {
			Summary struct {
				Message string `json:"message"`
			} `json:"summary"`
			Muted bool `json:"muted"`
		} `json:"checks"`
	} `json:"health"`
	PGMap struct {
		DegradedObjects int64 `json:"degraded_objects"`
		States          []struct {
			Name string `json:"state_name"`
		} `json:"pgs_by_state"`
	} `json:"pgmap"`
	MgrMap struct {
		Available bool `json:"available"`
	} `json:"mgrmap"`
}

// usage is the part of "ceph df" that is read.
type usage struct {
	Stats struct {
		Total     int64 `json:"total_bytes"`
		Available int64 `json:"total_avail_bytes"`
		Used      int64 `json:"total_used_raw_bytes"`
	} `json:"stats"`
	Pools []struct {
		ID    int64 `json:"id"`
		Stats struct {
			Stored    int64 `json:"stored"`
			Available int64 `json:"max_avail"`
		} `json:"stats"`
	} `json:"pools"`
}

// pool is the part of "ceph osd pool ls detail" that is read.
type pool struct {
	ID           int64                     `json:"pool_id"`
	Name         string                    `json:"pool_name"`
	Type         int                       `json:"type"` // 1: replicated, 3: erasure coded
	Size         int                       `json:"size"`
	Rule         int                       `json:"crush_rule"`
	Flags        string                    `json:"flags_names"`
	Applications map[string]map[string]any `json:"application_metadata"`
}

func (p *pool) kind() driver.PoolKind {
	has := func(name string) bool { _, ok := p.Applications[name]; return ok }
	switch {
	case has("rbd"):
		return driver.PoolRBD
	case has("cephfs"):
		if _, ok := p.Applications["cephfs"]["metadata"]; ok {
			return driver.PoolCephFSMetadata
		}
		return driver.PoolCephFSData
	case has("rgw"):
		return driver.PoolRGW
	}
	return driver.PoolOther
}

// erasureCoded is a type of pools.
const erasureCoded = 3

// replicas returns how often data is stored as a whole.
func (p *pool) replicas() int {
	if p.Type == erasureCoded {
		return 1
	}
	return p.Size
}

func (p *pool) health() driver.Health {
	flags := strings.Split(p.Flags, ",")
	switch {
	case slices.Contains(flags, "full") || slices.Contains(flags, "full_quota"):
		return driver.Critical
	case slices.Contains(flags, "nearfull") || slices.Contains(flags, "backfillfull"):
		return driver.Warning
	}
	return driver.Healthy
}

// rule is the part of "ceph osd crush rule dump" that is read.
type rule struct {
	ID    int `json:"rule_id"`
	Steps []struct {
		Op   string `json:"op"`
		Item string `json:"item_name"`
	} `json:"steps"`
}

// class returns the class of the devices that a rule takes, as in default~ssd.
func (r *rule) class() string {
	for _, s := range r.Steps {
		if _, class, ok := strings.Cut(s.Item, "~"); s.Op == "take" && ok {
			return class
		}
	}
	return ""
}

// tree is the part of "ceph osd tree" that is read.
type tree struct {
	Nodes []struct {
		ID       int     `json:"id"`
		Name     string  `json:"name"`
		Type     string  `json:"type"`
		Class    string  `json:"device_class"`
		Status   string  `json:"status"`
		Reweight float64 `json:"reweight"`
		Children []int   `json:"children"`
	} `json:"nodes"`
}

// fill is the part of "ceph osd df" that is read.
type fill struct {
	Nodes []struct {
		ID   int   `json:"id"`
		All  int64 `json:"kb"`
		Used int64 `json:"kb_used"`
	} `json:"nodes"`
}

const (
	askStatus, askUsage, askPools = "status", "df", "osd pool ls detail"
	askRules, askTree, askFill    = "osd crush rule dump", "osd tree", "osd df"
)

// asked sends commands, and reads their answers into what is given for each.
func (d *Driver) asked(ctx context.Context, into map[string]any) error {
	commands := slices.Sorted(maps.Keys(into))
	answer, err := d.call(ctx, wire.Request{Op: wire.Ask, Commands: commands})
	if err != nil {
		return err
	}
	for _, c := range commands {
		if err := json.Unmarshal(answer.Answers[c], into[c]); err != nil {
			return fault.Wrap(fault.Unavailable, err, "the cluster's answer to %q is not understood", c)
		}
	}
	return nil
}

func (d *Driver) pools(ctx context.Context) (pools []pool, err error) {
	return pools, d.asked(ctx, map[string]any{askPools: &pools})
}

// Inspect returns the cluster's condition. Without a manager, the cluster does not tell how full it is.
func (d *Driver) Inspect(ctx context.Context) (driver.Cluster, error) {
	var (
		s     status
		u     usage
		pools []pool
		rules []rule
		osds  tree
		full  fill
	)
	if err := d.asked(ctx, map[string]any{
		askStatus: &s, askUsage: &u, askPools: &pools, askRules: &rules, askTree: &osds,
	}); err != nil {
		return driver.Cluster{}, err
	}
	if s.MgrMap.Available {
		if err := d.asked(ctx, map[string]any{askFill: &full}); err != nil {
			d.cfg.Log.Warn("the cluster does not tell how full its OSDs are", "error", err)
		}
	}
	c := driver.Cluster{
		NativeID: s.FSID, Raw: u.Stats.Total, Used: u.Stats.Used, Available: u.Stats.Available,
		DegradedObjects: s.PGMap.DegradedObjects, Recovering: s.recovering(), OSDs: osdsOf(&osds, &full),
		Pools: poolsOf(pools, &u, rules),
	}
	c.Health, c.Summary = s.health()
	return c, nil
}

func (s *status) recovering() bool {
	for _, state := range s.PGMap.States {
		if strings.Contains(state.Name, "recover") || strings.Contains(state.Name, "backfill") {
			return true
		}
	}
	return false
}

// health returns the cluster's judgement, and the sentences of its checks.
func (s *status) health() (driver.Health, string) {
	var why []string
	for _, name := range slices.Sorted(maps.Keys(s.Health.Checks)) {
		if check := s.Health.Checks[name]; !check.Muted {
			why = append(why, check.Summary.Message)
		}
	}
	summary := strings.Join(why, "; ")
	switch s.Health.Status {
	case "HEALTH_OK":
		return driver.Healthy, ""
	case "HEALTH_WARN":
		return driver.Warning, summary
	case "HEALTH_ERR":
		return driver.Critical, summary
	}
	return driver.Unknown, summary
}

func poolsOf(pools []pool, u *usage, rules []rule) (all []driver.Pool) {
	for _, p := range pools {
		out := driver.Pool{Name: p.Name, Kind: p.kind(), Replicas: p.replicas(), Health: p.health()}
		for _, r := range rules {
			if r.ID == p.Rule {
				out.DeviceClass = r.class()
			}
		}
		for _, of := range u.Pools {
			if of.ID == p.ID {
				out.Used, out.Max = of.Stats.Stored, of.Stats.Stored+of.Stats.Available
			}
		}
		all = append(all, out)
	}
	return all
}

func osdsOf(t *tree, full *fill) (all []driver.OSD) {
	hosts := map[int]string{}
	for _, n := range t.Nodes {
		if n.Type == "host" {
			for _, child := range n.Children {
				hosts[child] = n.Name
			}
		}
	}
	for _, n := range t.Nodes {
		if n.Type != "osd" {
			continue
		}
		o := driver.OSD{
			ID: n.ID, Up: n.Status == "up", In: n.Reweight > 0, DeviceClass: n.Class, Host: hosts[n.ID], Weight: &n.Reweight,
		}
		for _, f := range full.Nodes {
			if f.ID == n.ID {
				o.Used, o.Capacity = f.Used<<10, f.All<<10
			}
		}
		all = append(all, o)
	}
	return all
}
