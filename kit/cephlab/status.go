//go:build linux

package cephlab

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Status is how a cluster is.
type Status struct {
	Health   string   // HEALTH_OK, HEALTH_WARN or HEALTH_ERR
	Problems []string // sentences, sorted
	Inactive bool     // some data cannot be read and written
	Raw      int64    // bytes; without a manager, 0
	Used     int64
	Free     int64 // what can be written to the pool, which stores it more than once
}

// Status asks the cluster how it is.
func (l *Lab) Status(ctx context.Context) (Status, error) {
	var s Status
	var told struct {
		Health struct {
			Status string `json:"status"`
			Checks map[string]struct {
				Summary struct {
					Message string `json:"message"`
				} `json:"summary"`
			} `json:"checks"`
		} `json:"health"`
		PGs struct {
			Inactive float64 `json:"inactive_pgs_ratio"`
			Unknown  float64 `json:"unknown_pgs_ratio"`
		} `json:"pgmap"`
	}
	if err := l.ask(ctx, &told, "status"); err != nil {
		return s, err
	}
	s.Health, s.Inactive = told.Health.Status, told.PGs.Inactive > 0 || told.PGs.Unknown > 0
	for _, check := range told.Health.Checks {
		s.Problems = append(s.Problems, check.Summary.Message)
	}
	slices.Sort(s.Problems)
	if !l.Manager {
		return s, nil
	}
	var df struct {
		Stats struct {
			Raw  int64 `json:"total_bytes"`
			Used int64 `json:"total_used_raw_bytes"`
		} `json:"stats"`
		Pools []struct {
			Name  string `json:"name"`
			Stats struct {
				Free int64 `json:"max_avail"`
			} `json:"stats"`
		} `json:"pools"`
	}
	if err := l.ask(ctx, &df, "df"); err != nil {
		return s, err
	}
	s.Raw, s.Used = df.Stats.Raw, df.Stats.Used
	for _, p := range df.Pools {
		if p.Name == l.Pool {
			s.Free = p.Stats.Free
		}
	}
	return s, nil
}

// ask reads what the command ceph answers.
func (l *Lab) ask(ctx context.Context, to any, args ...string) error {
	out, err := l.Run(ctx, nil, "ceph", append([]string{"--connect-timeout", "5", "--format", "json"}, args...)...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(out), to); err != nil {
		return fault.Wrap(fault.Unavailable, err, "%s", fmt.Sprintf("the answer to ceph %v is not JSON", args))
	}
	return nil
}
