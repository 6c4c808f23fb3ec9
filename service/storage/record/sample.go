package record

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/mainstay-infra/mainstay/service/storage/driver"
)

// Sample is a number about a cluster, with the name and the labels that Ceph's own module for Prometheus gives it, and
// the label cluster.
type Sample struct {
	Name   string
	Value  float64
	Labels map[string]string
}

// Key orders samples: by name, then by labels.
func (s Sample) Key() string {
	key := s.Name
	for _, label := range slices.Sorted(maps.Keys(s.Labels)) {
		key += " " + label + "=" + s.Labels[label]
	}
	return key
}

// CephSamples returns numbers of the Ceph clusters, as they were last asked, ordered by their keys. Clusters that do
// not answer have none. cluster is the id of one; empty: all.
func (s *Store) CephSamples(ctx context.Context, cluster string) (all []Sample, err error) {
	backends, err := s.Backends(ctx)
	if err != nil {
		return nil, err
	}
	for _, b := range backends {
		if b.Type != TypeCeph || b.LastError != "" {
			continue
		}
		c, known, err := s.ClusterIfKnown(ctx, b.ID)
		if err != nil {
			return nil, err
		}
		if !known || cluster != "" && c.ID != cluster {
			continue
		}
		var pools []Pool
		if err := s.db.Select(ctx, &pools, "SELECT * FROM pools WHERE cluster_id = ? AND NOT missing", c.ID); err != nil {
			return nil, err
		}
		var osds []OSD
		if err := s.db.Select(ctx, &osds, "SELECT * FROM osds WHERE cluster_id = ?", c.ID); err != nil {
			return nil, err
		}
		all = append(all, samplesOf(b.Name, &c, pools, osds)...)
	}
	slices.SortFunc(all, func(a, b Sample) int { return cmp.Compare(a.Key(), b.Key()) })
	return all, nil
}

// samplesOf returns the samples of a cluster.
func samplesOf(name string, c *Cluster, pools []Pool, osds []OSD) (all []Sample) {
	add := func(metric string, value float64, labels ...string) {
		of := map[string]string{"cluster": name}
		for i := 0; i < len(labels); i += 2 {
			of[labels[i]] = labels[i+1]
		}
		all = append(all, Sample{metric, value, of})
	}
	health := map[driver.Health]float64{driver.Healthy: 0, driver.Warning: 1, driver.Critical: 2}
	if value, known := health[c.Health]; known {
		add("ceph_health_status", value)
	}
	add("ceph_cluster_total_bytes", float64(c.Raw))
	add("ceph_cluster_total_used_bytes", float64(c.Used))
	add("ceph_num_objects_degraded", float64(c.DegradedObjects))
	for _, p := range pools {
		add("ceph_pool_stored", float64(p.Used), "name", p.Name)
		add("ceph_pool_max_avail", float64(max(0, p.Max-p.Used)), "name", p.Name)
	}
	for _, o := range osds {
		daemon := []string{"ceph_daemon", fmt.Sprintf("osd.%d", o.Number)}
		add("ceph_osd_metadata", 1, append(daemon, "hostname", o.Host, "device_class", o.DeviceClass)...)
		add("ceph_osd_up", truth(o.Up), daemon...)
		add("ceph_osd_in", truth(o.In), daemon...)
		add("ceph_osd_stat_bytes", float64(o.Capacity), daemon...)
		add("ceph_osd_stat_bytes_used", float64(o.Used), daemon...)
		if o.Weight != nil {
			add("ceph_osd_weight", *o.Weight, daemon...)
		}
	}
	return all
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
