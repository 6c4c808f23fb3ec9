package monitor

import (
	"context"
	"fmt"
	"strings"

	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
)

// Check is one question before the gateway is replaced by a newer version.
type Check struct {
	Name   string
	OK     bool
	Detail string // why not, or what was found
}

// Preflight checks whether this is a good time to replace the gateway by a newer version: nothing should be under way,
// and nothing broken that a newer version would be blamed for.
func (m *Monitor) Preflight(ctx context.Context) ([]Check, error) {
	own := caller.ByItself(ctx)
	state, err := m.cfg.Store.Maintenance(own)
	if err != nil {
		return nil, err
	}
	jobs := Check{Name: "jobs", OK: state.Running == 0, Detail: fmt.Sprintf("%d run, %d wait", state.Running, state.Queued)}
	if !jobs.OK {
		jobs.Detail += "; pause the gateway, and wait until none runs: they would begin again afterwards"
	}
	alarm, err := m.cfg.Audit.Alarm(own)
	if err != nil {
		return nil, err
	}
	log := Check{Name: "audit log", OK: alarm == "", Detail: "it verifies"}
	if !log.OK {
		log.Detail = alarm
	}
	storage, err := m.checkStorage(own)
	return append([]Check{jobs, log}, storage...), err
}

// checkStorage checks backends and clusters.
func (m *Monitor) checkStorage(ctx context.Context) ([]Check, error) {
	backends, err := m.cfg.Store.Backends(ctx)
	if err != nil {
		return nil, err
	}
	var silent, sick []string
	for _, b := range backends {
		if b.LastError != "" {
			silent = append(silent, b.Name+": "+b.LastError)
			continue
		}
		cluster, known, err := m.cfg.Store.ClusterIfKnown(ctx, b.ID)
		switch {
		case err != nil:
			return nil, err
		case !known:
			silent = append(silent, b.Name+": it was not reached yet")
		case cluster.Recovering:
			sick = append(sick, b.Name+": it is recovering")
		case cluster.Health == driver.Critical:
			sick = append(sick, b.Name+": "+cluster.Summary)
		}
	}
	return []Check{
		checkNone("backends", silent, fmt.Sprintf("all %d answer", len(backends))),
		checkNone("clusters", sick, "none is in error or recovering"),
	}, nil
}

// checkNone is a check that nothing is wrong.
func checkNone(name string, wrong []string, fine string) Check {
	if len(wrong) == 0 {
		return Check{Name: name, OK: true, Detail: fine}
	}
	return Check{Name: name, Detail: strings.Join(wrong, "; ")}
}
