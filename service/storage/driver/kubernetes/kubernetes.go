package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/kube"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
)

// userAgent is by which clusters know the gateway.
const userAgent = "mainstay-storage"

// DefaultPatience is how long a call waits at most for what the cluster does.
const DefaultPatience = 10 * time.Minute

// Config says where volumes are.
type Config struct {
	Kubeconfig string        // path
	Namespace  string        // exists; empty: that of the kubeconfig
	UID        string        // of the cluster: that of its namespace kube-system; empty: any
	Patience   time.Duration // 0: DefaultPatience
}

// Driver keeps volumes in a namespace.
type Driver struct {
	client    *kube.Client
	namespace string
	uid       string
	patience  time.Duration
	can       atomic.Pointer[driver.Capabilities] // as the cluster was seen last
}

// label matches the names of namespaces.
var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// CheckNamespace reports whether a namespace may have that name.
func CheckNamespace(name string) bool { return label.MatchString(name) }

// Open opens a cluster. Another one than before is a fault of kind Conflict.
func Open(ctx context.Context, cfg Config) (*Driver, error) {
	client, err := kube.Open(kube.Config{Kubeconfig: cfg.Kubeconfig, UserAgent: userAgent})
	if err != nil {
		return nil, err
	}
	d := &Driver{
		client: client, namespace: cmp.Or(cfg.Namespace, client.Namespace()), patience: cmp.Or(cfg.Patience, DefaultPatience),
	}
	system, err := kube.Get[object](ctx, client, kube.Namespaces, "", "kube-system")
	switch {
	case err != nil:
		return nil, err
	case cfg.UID != "" && system.Meta.UID != cfg.UID:
		return nil, fault.New(fault.Conflict, "it is another cluster than before: the UID of its namespace kube-system is %s, "+
			"not %s; check the kubeconfig", system.Meta.UID, cfg.UID)
	}
	d.uid = system.Meta.UID
	if _, err := kube.Get[object](ctx, client, kube.Namespaces, "", d.namespace); err != nil {
		if fault.Is(err, fault.NotFound) {
			return nil, fault.Wrap(fault.Unavailable, err, "the cluster has no namespace %s", d.namespace)
		}
		return nil, err
	}
	_, err = d.look(ctx)
	return d, err
}

// Close closes the connections.
func (d *Driver) Close() error {
	d.client.Close()
	return nil
}

// Capabilities returns what the cluster could do when it was asked last.
func (d *Driver) Capabilities() driver.Capabilities { return *d.can.Load() }

// look reads the storage classes, and what can be done with them.
func (d *Driver) look(ctx context.Context) (map[string]*storageClass, error) {
	classes := map[string]*storageClass{}
	can := driver.Capabilities{}
	if err := kube.Each(ctx, d.client, kube.StorageClasses, "", kube.Query{}, func(c *storageClass) error {
		classes[c.Meta.Name] = c
		can.Expansion = can.Expansion || c.AllowVolumeExpansion
		return nil
	}); err != nil {
		return nil, err
	}
	snapshots, err := d.client.Serves(ctx, kube.VolumeSnapshots)
	if err != nil {
		return nil, err
	}
	can.Block, can.File, can.Snapshots, can.Clone = true, true, snapshots, snapshots
	d.can.Store(&can)
	return classes, nil
}

// noProvisioner is what classes of volumes have that people make.
const noProvisioner = "kubernetes.io/no-provisioner"

// unfit returns why a class cannot have volumes of the gateway; empty: it can.
func (c *storageClass) unfit() string {
	switch {
	case c.Provisioner == noProvisioner:
		return "has no provisioner"
	case c.VolumeBindingMode == "WaitForFirstConsumer":
		return "makes volumes only when a pod uses them (volumeBindingMode WaitForFirstConsumer)"
	}
	return ""
}

// Inspect tells the storage classes. What a class holds is the sum of the claims in the namespace, and what it has room
// for is what its driver publishes (CSIStorageCapacity).
func (d *Driver) Inspect(ctx context.Context) (driver.Cluster, error) {
	classes, err := d.look(ctx)
	if err != nil {
		return driver.Cluster{}, err
	}
	free := map[string]int64{}
	if err := kube.Each(ctx, d.client, kube.CSIStorageCapacities, "", kube.Query{}, func(c *capacity) error {
		free[c.StorageClassName] += kube.Bytes(c.Capacity)
		return nil
	}); err != nil {
		return driver.Cluster{}, err
	}
	used := map[string]int64{}
	if err := d.EachVolume(ctx, func(v driver.Volume) error {
		used[v.Pool] += v.Size
		return nil
	}); err != nil {
		return driver.Cluster{}, err
	}
	out := driver.Cluster{NativeID: d.uid, Name: d.namespace, Health: driver.Healthy}
	for name, c := range classes {
		p := driver.Pool{Name: name, Kind: driver.PoolStorageClass, Replicas: 1, Health: driver.Unknown}
		if c.unfit() != "" {
			p.Kind = driver.PoolOther
		}
		if room, ok := free[name]; ok {
			p.Used, p.Max = used[name], used[name]+room
			out.Available += room
			out.Used += p.Used
			out.Raw += p.Max
		}
		out.Pools = append(out.Pools, p)
	}
	return out, nil
}

// EachVolume calls do with the volumes of the namespace. It leaves out claims whose volumes are not made yet.
func (d *Driver) EachVolume(ctx context.Context, do func(driver.Volume) error) error {
	return kube.Each(ctx, d.client, kube.PersistentVolumeClaims, d.namespace, kube.Query{}, func(c *claim) error {
		if !c.complete() {
			return nil
		}
		return do(c.volume())
	})
}

// patient bounds how long a call waits for the cluster.
func (d *Driver) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d.patience, errSlow)
}

var errSlow = fault.New(fault.Unavailable, "the cluster has not done it in time")

// why adds to the error of a call whose time ran out what the cluster says. Only the log gets it: drivers of storage
// systems say what they like.
func (d *Driver) why(ctx context.Context, err error, ask func(ctx context.Context) (string, error)) error {
	if !fault.Is(err, fault.Unavailable) {
		return err
	}
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), kube.DefaultTimeout)
	defer cancel()
	says, unanswered := ask(asking)
	if unanswered != nil || says == "" {
		return err
	}
	return fault.Wrap(fault.Unavailable, errors.Join(errors.New(says), err), "%s", fault.From(err).Message)
}

// told is why with the last warning about an object.
func (d *Driver) told(ctx context.Context, r kube.Resource, m *kube.Meta, err error) error {
	return d.why(ctx, err, func(ctx context.Context) (string, error) {
		var last event
		q := kube.Query{Fields: strings.Join([]string{
			"involvedObject.kind=" + r.Kind, "involvedObject.name=" + m.Name, "involvedObject.uid=" + m.UID, "type=Warning",
		}, ",")}
		err := kube.Each(ctx, d.client, kube.Events, d.namespace, q, func(e *event) error {
			if !e.Last.Before(last.Last) {
				last = *e
			}
			return nil
		})
		return last.Message, err
	})
}

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Volumes   = (*Driver)(nil)
	_ driver.Snapshots = (*Driver)(nil)
	_ driver.Cloner    = (*Driver)(nil)
)
