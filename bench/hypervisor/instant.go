//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/service/hypervisor/demo"
)

// instant compares VMs that start from a template with VMs that boot: the time from the request to the
// agent's first response, and what their processes take of the host's memory.
func instant(ctx context.Context, b *bench) error {
	built, err := demo.Build(
		ctx, demo.Options{Folder: filepath.Join(b.dir, "guest"), Agent: filepath.Join(b.bin, "mainstay-guest")},
	)
	if err != nil {
		return err
	}
	d, err := b.start(ctx, "instant")
	if err != nil {
		return err
	}
	defer func() { _ = d.stop() }()
	if err := d.operation(
		"POST", "/v1/images/catalog", object{"name": "demo", "kernel": built.Kernel, "initrd": built.Initrd},
	); err != nil {
		return err
	}
	began := time.Now()
	if err := d.operation(
		"POST", "/v1/templates", object{"name": "warm", "image": "demo", "memory_mib": 256},
	); err != nil {
		return err
	}
	var template struct {
		Size int64 `json:"size_bytes"`
	}
	if err := d.call("GET", "/v1/templates/warm", nil, &template); err != nil {
		return err
	}
	fmt.Printf("%-44s %8s, %d MiB on disk\n", "make a template", ms(time.Since(began)), template.Size>>20)
	var first time.Duration
	var fast, slow []time.Duration
	for round := range b.rounds + 1 {
		var took [2]time.Duration
		for i, from := range []bool{true, false} {
			if took[i], err = d.started(ctx, fmt.Sprintf("vm-%d-%d", round, i), from, true); err != nil {
				return err
			}
		}
		if round == 0 { // the first one reads the template, and the host's caches are cold
			first = took[0]
			continue
		}
		fast, slow = append(fast, took[0]), append(slow, took[1])
	}
	fmt.Printf("%-44s %8s\n", "the first VM of the template", ms(first))
	compare("request to the agent's answer, from a template", fast, slow, "boot")
	const together = 8
	var memory [2]int64
	for i, from := range []bool{true, false} {
		for n := range together {
			if _, err := d.started(ctx, fmt.Sprintf("many-%d-%d", i, n), from, false); err != nil {
				return err
			}
		}
		if memory[i], err = d.shares(); err != nil {
			return err
		}
		if err := d.deleteAll(); err != nil {
			return err
		}
	}
	fmt.Printf(
		"%-44s %8d MiB   boot %d MiB   %.2f times\n", fmt.Sprintf("memory of each of %d VMs (PSS)", together),
		memory[0]/together>>20, memory[1]/together>>20, float64(memory[0])/float64(memory[1]),
	)
	return nil
}

// started creates and starts a VM, and returns how long it took until its agent responded.
func (d *daemon) started(ctx context.Context, name string, fromTemplate, remove bool) (time.Duration, error) {
	began := time.Now()
	var vm struct{ ID, Template string }
	if err := d.call("POST", "/v1/vms", object{
		"name": name, "image": "demo", "memory_mib": 256, "start": true, "instant": fromTemplate,
	}, &vm); err != nil {
		return 0, err
	}
	if err := d.answers(ctx, vm.ID); err != nil {
		return 0, err
	}
	took := time.Since(began)
	if err := d.call("GET", "/v1/vms/"+vm.ID, nil, &vm); err != nil {
		return 0, err
	}
	if fromTemplate != (vm.Template == "warm") {
		return 0, fmt.Errorf("the VM %s has the template %q", name, vm.Template)
	}
	if !remove {
		return took, nil
	}
	return took, d.call("DELETE", "/v1/vms/"+vm.ID, nil, nil)
}

// shares returns the memory of the processes of all VMs, in bytes. Of what several map, each counts its
// share.
func (d *daemon) shares() (sum int64, err error) {
	var vms []struct {
		PID int `json:"pid"`
	}
	if err := d.call("GET", "/v1/vms?limit=1000", nil, &vms); err != nil {
		return 0, err
	}
	for _, vm := range vms {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", vm.PID))
		if err != nil {
			return 0, err
		}
		found := false
		for line := range strings.Lines(string(raw)) {
			var kib int64
			if n, _ := fmt.Sscanf(line, "Pss: %d kB", &kib); n == 1 {
				sum, found = sum+kib<<10, true
			}
		}
		if !found {
			return 0, errors.New("/proc says nothing of shares of memory")
		}
	}
	return sum, nil
}

func (d *daemon) deleteAll() error {
	var vms []struct{ ID string }
	if err := d.call("GET", "/v1/vms?limit=1000", nil, &vms); err != nil {
		return err
	}
	for _, vm := range vms {
		if err := d.call("DELETE", "/v1/vms/"+vm.ID, nil, nil); err != nil {
			return err
		}
	}
	return nil
}
