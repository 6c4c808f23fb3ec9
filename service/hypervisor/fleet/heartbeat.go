package fleet

import (
	"context"
	"errors"
	"net/url"
	"regexp"
	"strings"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/text"
	"github.com/mainstay-infra/mainstay/service/hypervisor/placement"
)

// Limits of a heartbeat's content.
const (
	maxURL      = 512
	maxVersion  = 64
	maxLabels   = 64
	maxLabel    = 63 // bytes of a key and of a value
	maxBackends = 16
	maxVCPUs    = 1 << 20
	maxMemory   = 1 << 34 // MiB
	maxNodeVMs  = 1 << 20
)

// nodeName matches valid node names. They are used in paths.
var nodeName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

// Heartbeat stores a node's heartbeat; a new node joins. after is the sequence from the response to
// the node's previous heartbeat, or 0 if there was none. The returned sequence is for its next one
// (see the package comment). A cordon is unchanged.
func (r *Registry) Heartbeat(
	ctx context.Context, name string, hb hypervisorapi.Heartbeat, after int64,
) (hypervisorapi.Node, int64, error) {
	if err := checkHeartbeat(name, &hb); err != nil {
		return hypervisorapi.Node{}, 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.ledgers[name]
	if l == nil {
		// Larger than any number that an earlier registry gave out.
		l = &ledger{sequence: r.cfg.Now().UnixMicro(), reserved: map[*reservation]struct{}{}}
	}
	current := !l.heard || after == l.sequence
	counted, left := l.split(after, r.cfg.Now())
	heard := nodeRow{
		Name:    name,
		URL:     strings.TrimRight(hb.Url, "/"),
		Version: hb.Version,
		Labels:  db.JSON[hypervisorapi.Labels]{V: hypervisorapi.Labels{}},
		Backends: db.JSON[[]hypervisorapi.Backend]{
			V: hb.Backends,
		},
		VCPUs:         hb.Vcpus,
		MemoryMiB:     hb.MemoryMib,
		HeartbeatAt:   db.At(r.cfg.Now()),
		FreeVCPUs:     hb.FreeVcpus - left.VCPUs,
		FreeMemoryMiB: hb.FreeMemoryMib - left.MemoryMiB,
		VMs:           hb.Vms,
	}
	if hb.Labels != nil && *hb.Labels != nil {
		heard.Labels.V = *hb.Labels
	}
	var stored nodeRow
	err := r.cfg.DB.Update(ctx, func(tx *db.Tx) error {
		n := heard
		before, err := findNode(ctx, tx, name)
		switch {
		case errors.Is(err, db.ErrNoRows):
		case err != nil:
			return err
		case before.URL != n.URL && r.healthy(&before):
			return nameTaken(&before)
		case !current:
			n.FreeVCPUs, n.FreeMemoryMiB, n.VMs = before.FreeVCPUs, before.FreeMemoryMiB, before.VMs
		}
		stored, err = putNode(ctx, tx, &n)
		return err
	})
	if err != nil {
		return hypervisorapi.Node{}, 0, err
	}
	if current {
		for _, one := range counted {
			delete(l.reserved, one)
		}
		l.heard = true
		l.sequence++
	}
	r.ledgers[name] = l
	r.wakeLocked()
	return r.node(&stored), l.sequence, nil
}

// nameTaken refuses the heartbeat of a host if another healthy host has its name. Otherwise the two
// would replace each other with every heartbeat, and lists would miss the VMs of one of them. A host
// whose address has changed is accepted when its old entry is no longer healthy.
func nameTaken(n *nodeRow) error {
	return fault.New(
		fault.Conflict,
		"the host at %s already uses the name %s: give this host another name (--node-name); "+
			"if it is the same host at a new address, it is accepted as soon as the old entry is unhealthy",
		n.URL, n.Name,
	).WithCode("node_name_taken")
}

func checkHeartbeat(name string, hb *hypervisorapi.Heartbeat) error {
	if !nodeName.MatchString(name) {
		return fault.InvalidField(
			"name",
			"a node's name is 1 to 63 letters, digits, dots, dashes and underscores, and begins and ends with a letter or digit",
		)
	}
	if err := checkURL("url", hb.Url); err != nil {
		return err
	}
	if len(hb.Version) > maxVersion {
		return fault.InvalidField("version", "has more than %d bytes", maxVersion)
	}
	if err := text.Check("version", hb.Version); err != nil {
		return err
	}
	if hb.Labels != nil {
		if err := checkLabels("labels", *hb.Labels); err != nil {
			return err
		}
	}
	if len(hb.Backends) > maxBackends {
		return fault.InvalidField("backends", "are more than %d", maxBackends)
	}
	for _, b := range hb.Backends {
		if !b.Valid() {
			return fault.InvalidField("backends", "%.32q is not a backend", string(b))
		}
	}
	if hb.Backends == nil {
		hb.Backends = []hypervisorapi.Backend{}
	}
	for _, one := range []struct {
		field            string
		value, min, most int
	}{
		{"vcpus", hb.Vcpus, 1, maxVCPUs},
		{"memory_mib", hb.MemoryMib, 1, maxMemory},
		{"free_vcpus", hb.FreeVcpus, -maxVCPUs, hb.Vcpus},
		{"free_memory_mib", hb.FreeMemoryMib, -maxMemory, hb.MemoryMib},
		{"vms", hb.Vms, 0, maxNodeVMs},
	} {
		if one.value < one.min || one.value > one.most {
			return fault.InvalidField(one.field, "must be between %d and %d, not %d", one.min, one.most, one.value)
		}
	}
	return nil
}

func checkLabels(field string, labels hypervisorapi.Labels) error {
	if len(labels) > maxLabels {
		return fault.InvalidField(field, "are more than %d", maxLabels)
	}
	for key, value := range labels {
		if key == "" || len(key) > maxLabel || len(value) > maxLabel {
			return fault.InvalidField(
				field, "%.64q: a key has 1 to %d bytes, a value at most %d", key, maxLabel, maxLabel,
			)
		}
		if err := errors.Join(text.Check(field, key), text.Check(field, value)); err != nil {
			return err
		}
	}
	return nil
}

// checkURL rejects URLs that cannot be a daemon's. Credentials in it would be shown in lists.
func checkURL(field, s string) error {
	u, err := url.Parse(s)
	switch {
	case len(s) > maxURL:
		return fault.InvalidField(field, "has more than %d bytes", maxURL)
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return fault.InvalidField(field, "must be http://HOST:PORT or https://HOST:PORT")
	case u.User != nil:
		return fault.InvalidField(field, "must not hold credentials")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.Contains(s, "#"):
		return fault.InvalidField(field, "must end with the host or a path, without a query or fragment")
	}
	return nil
}

// sizeOf returns the resources of a VM, with the contract's defaults.
func sizeOf(spec *hypervisorapi.FleetVMSpec) placement.Resources {
	size := placement.Resources{VCPUs: 1, MemoryMiB: 512}
	if spec.Vcpus != nil {
		size.VCPUs = *spec.Vcpus
	}
	if spec.MemoryMib != nil {
		size.MemoryMiB = *spec.MemoryMib
	}
	return size
}
