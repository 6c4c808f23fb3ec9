//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
)

// vmLoad measures what VM management does for people while much is asked of it: lists of few and of many VMs, a
// burst of starts, and logins while others fail.
func vmLoad(ctx context.Context, b *bench) error {
	d, err := b.start(ctx, "load")
	if err != nil {
		return err
	}
	defer func() { _ = d.stop() }()
	raw := filepath.Join(b.dir, "small.raw")
	if err := os.WriteFile(raw, make([]byte, 1<<20), 0o600); err != nil {
		return err
	}
	if err := d.operation("POST", "/v1/images/catalog", object{"name": "small", "path": raw}); err != nil {
		return err
	}
	m, err := b.manage(ctx, d, "no-repository")
	if err != nil {
		return err
	}
	var vm struct{ Job struct{ ID string } }
	if err := m.send("POST", "/api/vms", object{"name": "vm", "image": "small", "disk": 1, "memory": 64}, &vm); err != nil {
		return errors.Join(err, m.end())
	}
	few, many := 200, b.vms
	var pages [][]time.Duration
	for _, number := range []int{few, many} {
		if err := m.end(); err != nil {
			return err
		}
		if err := m.copies(ctx, number); err != nil {
			return err
		}
		if m, err = b.manage(ctx, d, "no-repository"); err != nil {
			return err
		}
		page, err := m.repeat(300, "GET", func(int) string { return fmt.Sprintf("/api/vms?limit=200&offset=%d", number-few) })
		if err != nil {
			return errors.Join(err, m.end())
		}
		pages = append(pages, page)
	}
	fmt.Printf("list of 200 VMs: p50 %s, p99 %s of %d VMs; p50 %s, p99 %s of %d; %.2f times; memory %s\n", ms(middle(pages[0])),
		ms(p99(pages[0])), few, ms(middle(pages[1])), ms(p99(pages[1])), many,
		float64(middle(pages[1]))/float64(middle(pages[0])), m.memory())
	if err := m.logins(); err != nil {
		return errors.Join(err, m.end())
	}
	starts, err := m.repeat(200, "POST", func(i int) string { return fmt.Sprintf("/api/vms/vm-%05d/start", i+1) })
	if err != nil {
		return errors.Join(err, m.end())
	}
	reads, err := m.repeat(200, "GET", func(i int) string { return fmt.Sprintf("/api/vms/vm-%05d", i+1) })
	if err != nil {
		return errors.Join(err, m.end())
	}
	compare("one of 200 starts accepted", starts, reads, "read of a VM meanwhile")
	return m.end()
}

// p99 returns the 99th percentile.
func p99(all []time.Duration) time.Duration {
	all = slices.Clone(all)
	slices.Sort(all)
	return all[len(all)*99/100]
}

// repeat sends requests one after the other, and returns how long each took.
func (m *manager) repeat(times int, method string, path func(i int) string) (took []time.Duration, err error) {
	var answer any
	for i := range times {
		one, err := timed(func() error { return m.send(method, path(i), object{}, &answer) })
		if err != nil {
			return nil, err
		}
		took = append(took, one)
	}
	return took, nil
}

// copies fills the database of a service that has ended with copies of its VM.
func (m *manager) copies(ctx context.Context, number int) error {
	d, err := db.Open(ctx, db.Config{Path: filepath.Join(m.data, "vm.db")})
	if err != nil {
		return err
	}
	var columns []string
	err = d.Select(ctx, &columns, "SELECT name FROM pragma_table_info('vms')")
	values := slices.Clone(columns)
	for i, c := range values {
		switch c {
		case "id":
			values[i] = "id || printf('-%05d', i)"
		case "name", "search":
			values[i] = "printf('vm-%05d', i)"
		case "driver_id":
			values[i] = "''"
		}
	}
	if err == nil {
		err = d.Update(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
				INSERT INTO vms (%s) SELECT %s FROM vms, n WHERE name = 'vm' ON CONFLICT DO NOTHING`,
				number-1, strings.Join(columns, ", "), strings.Join(values, ", ")))
			return err
		})
	}
	return errors.Join(err, d.Close())
}

// memory returns the resident memory of the service.
func (m *manager) memory() string {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.cmd.Process.Pid))
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(raw)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// logins compares logins while nobody else logs in with those while 40 others fail: with 50 failures nobody could.
func (m *manager) logins() error {
	login := func(name, password string) (int, error) {
		raw, err := json.Marshal(object{"username": name, "password": password})
		if err != nil {
			return 0, err
		}
		res, err := m.http.Post(m.url+"/api/auth/login", "application/json", bytes.NewReader(raw))
		if err != nil {
			return 0, err
		}
		return res.StatusCode, res.Body.Close()
	}
	right := func() ([]time.Duration, error) {
		var took []time.Duration
		for range 60 {
			one, err := timed(func() error {
				status, err := login("admin", managerPassword)
				if err == nil && status != http.StatusOK {
					err = fmt.Errorf("a login was answered with %d", status)
				}
				return err
			})
			if err != nil {
				return nil, err
			}
			took = append(took, one)
		}
		return took, nil
	}
	alone, err := right()
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() { _, _ = login(fmt.Sprintf("nobody-%d", i), "wrong") }) // its outcome does not matter
	}
	beside, err := right()
	wg.Wait()
	if err != nil {
		return err
	}
	compare("login while 40 others fail", beside, alone, "login alone")
	fmt.Printf("their p99: %s and %s\n", ms(p99(beside)), ms(p99(alone)))
	return nil
}
