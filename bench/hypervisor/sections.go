//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/service/hypervisor/demo"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest"
	"github.com/mainstay-infra/mainstay/service/hypervisor/seed"
)

// boot compares the time from the request to the agent's first response with that of the same QEMU
// command started by hand. Both are measured by polling.
func boot(ctx context.Context, b *bench) error {
	built, err := demo.Build(
		ctx, demo.Options{Folder: filepath.Join(b.dir, "guest"), Agent: filepath.Join(b.bin, "mainstay-guest")},
	)
	if err != nil {
		return err
	}
	d, err := b.start(ctx, "boot")
	if err != nil {
		return err
	}
	defer func() { _ = d.stop() }()
	if err := d.operation(
		"POST", "/v1/images/catalog", object{"name": "demo", "kernel": built.Kernel, "initrd": built.Initrd},
	); err != nil {
		return err
	}
	var ours, theirs []time.Duration
	var command []string
	for round := range b.rounds + 1 {
		began := time.Now()
		var vm struct {
			ID  string
			PID int `json:"pid"`
		}
		if err := d.call(
			"POST",
			"/v1/vms",
			object{
				"name":       fmt.Sprintf("vm-%d", round),
				"image":      "demo",
				"memory_mib": 256,
				"network":    object{"mode": "none"},
				"start":      true,
			},
			&vm,
		); err != nil {
			return err
		}
		if err := d.answers(ctx, vm.ID); err != nil {
			return err
		}
		took := time.Since(began)
		if command == nil {
			if err := d.call("GET", "/v1/vms/"+vm.ID, nil, &vm); err != nil {
				return err
			}
			raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", vm.PID))
			if err != nil {
				return err
			}
			command = strings.Split(strings.TrimSuffix(string(raw), "\x00"), "\x00")
		}
		if err := d.call("DELETE", "/v1/vms/"+vm.ID, nil, nil); err != nil {
			return err
		}
		hand, err := b.byHand(ctx, d, command)
		if err != nil {
			return err
		}
		if round > 0 { // the first round warms the host's caches
			ours, theirs = append(ours, took), append(theirs, hand)
		}
	}
	compare("request to the agent's answer", ours, theirs, "by hand")
	return nil
}

// byHand runs QEMU with the arguments that the daemon used, in a folder like a VM's.
func (b *bench) byHand(ctx context.Context, d *daemon, command []string) (time.Duration, error) {
	folder, err := os.MkdirTemp(b.dir, "hand-")
	if err != nil {
		return 0, err
	}
	if err := os.Mkdir(filepath.Join(folder, "run"), 0o700); err != nil {
		return 0, err
	}
	const secret = "a-secret-by-hand"
	began := time.Now()
	disk := filepath.Join(folder, "seed.iso")
	if err := seed.Write(disk, seed.Content{InstanceID: "hand", Hostname: "hand", Secret: secret}); err != nil {
		return 0, err
	}
	args := make([]string, len(command)-1)
	for i, a := range command[1:] {
		if strings.HasPrefix(a, "driver=file,filename=") && strings.Contains(a, "seed.iso") {
			_, rest, _ := strings.Cut(a, "seed.iso")
			a = "driver=file,filename=" + disk + rest
		}
		// The monitor is not used here.
		args[i] = strings.Replace(a, "wait=on", "wait=off", 1)
	}
	cmd := exec.Command(command[0], args...)
	cmd.Dir, cmd.Stderr = folder, os.Stderr
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	for ctx.Err() == nil {
		conn, err := net.Dial("unix", filepath.Join(folder, "run", "agent.sock"))
		if err != nil {
			time.Sleep(time.Millisecond)
			continue
		}
		waiting, cancel := context.WithTimeout(ctx, time.Minute)
		client, err := guest.Connect(waiting, conn, secret)
		if err == nil {
			err = client.Ping(waiting)
			took := time.Since(began)
			cancel()
			return took, errors.Join(err, client.Close())
		}
		cancel()
	}
	return 0, ctx.Err()
}

// busyboxRoot creates a root file system for sandboxes.
func (b *bench) busyboxRoot() (string, error) {
	root := filepath.Join(b.dir, "rootfs")
	for _, dir := range []string{"bin", "tmp", "proc", "dev", "run", "sys"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return "", err
		}
	}
	path, err := exec.LookPath("busybox")
	if err != nil {
		return "", err
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	return root, os.WriteFile(filepath.Join(root, "bin", "busybox"), raw, 0o755)
}

// sandboxes compares the time from the request to the end of a program in a sandbox with that of
// the same program under runsc run.
func sandboxes(ctx context.Context, b *bench) error {
	root, err := b.busyboxRoot()
	if err != nil {
		return err
	}
	d, err := b.start(ctx, "sandbox")
	if err != nil {
		return err
	}
	defer func() { _ = d.stop() }()
	if err := d.operation("POST", "/v1/images/catalog", object{"name": "box", "path": root}); err != nil {
		return err
	}
	var ours, theirs []time.Duration
	var before int64
	for round := range 3*b.rounds + 1 {
		began := time.Now()
		var vm struct{ ID string }
		if err := d.call(
			"POST", "/v1/vms",
			object{"name": fmt.Sprintf("box-%d", round), "image": "box", "memory_mib": 64, "start": true}, &vm,
		); err != nil {
			return err
		}
		for ctx.Err() == nil {
			if err := d.call(
				"POST", "/v1/vms/"+vm.ID+"/agent/exec", object{"argv": []string{"/bin/busybox", "true"}}, nil,
			); err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		took := time.Since(began)
		if err := d.call("DELETE", "/v1/vms/"+vm.ID, nil, nil); err != nil {
			return err
		}
		hand, err := b.runsc(ctx, root)
		if err != nil {
			return err
		}
		if round > 0 {
			ours, theirs = append(ours, took), append(theirs, hand)
		} else if before, err = d.memory(); err != nil {
			return err
		}
	}
	compare("sandbox: request to a program's end", ours, theirs, "runsc run")
	const many = 30
	for i := range many {
		var vm struct{ ID string }
		if err := d.call(
			"POST", "/v1/vms",
			object{"name": fmt.Sprintf("many-%d", i), "image": "box", "memory_mib": 32, "start": true}, &vm,
		); err != nil {
			return err
		}
		if err := d.answers(ctx, vm.ID); err != nil {
			return err
		}
	}
	after, err := d.memory()
	if err != nil {
		return err
	}
	fmt.Printf(
		"%-44s %.0f KiB beside its process (%d sandboxes with agents)\n", "memory of the daemon for a VM that runs",
		float64(after-before)/many/1024, many,
	)
	return nil
}

// runsc runs a program with runsc directly.
func (b *bench) runsc(ctx context.Context, root string) (time.Duration, error) {
	bundle, err := os.MkdirTemp(b.dir, "bundle-")
	if err != nil {
		return 0, err
	}
	config := fmt.Sprintf(
		`{"ociVersion":"1.0.2","process":{"args":["/bin/busybox","true"],"cwd":"/"},"root":{"path":%q,"readonly":true},"mounts":[{"destination":"/proc","type":"proc","source":"proc"}],"linux":{"namespaces":[{"type":"pid"},{"type":"network"},{"type":"ipc"},{"type":"uts"},{"type":"mount"}]}}`,
		root,
	)
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), []byte(config), 0o600); err != nil {
		return 0, err
	}
	began := time.Now()
	out, err := exec.CommandContext(
		ctx, "runsc", "--root", filepath.Join(bundle, "state"), "--platform=systrap", "--network=none",
		"--ignore-cgroups", "run", "--bundle", bundle, filepath.Base(bundle),
	).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("runsc: %w: %s", err, out)
	}
	return time.Since(began), nil
}

// lists compares the time of a list page with few and with many VMs.
func lists(ctx context.Context, b *bench) error {
	d, err := b.start(ctx, "list")
	if err != nil {
		return err
	}
	defer func() { _ = d.cmd.Process.Kill(); _ = d.cmd.Wait() }()
	read := func(path string) ([]time.Duration, error) {
		var all []time.Duration
		for range 200 {
			began := time.Now()
			if err := d.call("GET", path, nil, nil); err != nil {
				return nil, err
			}
			all = append(all, time.Since(began))
		}
		return all, nil
	}
	made := 0
	until := func(n int) error {
		var work sync.WaitGroup
		errs := make(chan error, n)
		slots := make(chan struct{}, 8)
		for ; made < n; made++ {
			name := fmt.Sprintf("vm-%d", made)
			slots <- struct{}{}
			work.Go(func() {
				defer func() { <-slots }()
				vm := object{"name": name, "memory_mib": 64, "kernel": "/proc/version", "network": object{"mode": "none"}}
				errs <- d.call("POST", "/v1/vms", vm, nil)
			})
		}
		work.Wait()
		close(errs)
		for err := range errs {
			if err != nil {
				return err
			}
		}
		return nil
	}
	for _, n := range []int{10, b.vms} {
		began := time.Now()
		before := made
		if err := until(n); err != nil {
			return err
		}
		rate := float64(n-before) / time.Since(began).Seconds()
		page, err := read("/v1/vms?limit=10")
		if err != nil {
			return err
		}
		memory, err := d.memory()
		if err != nil {
			return err
		}
		fmt.Printf(
			"%-44s %.2f ms a page of 10; made %.0f a second; the daemon has %d MiB\n",
			fmt.Sprintf("list at %d VMs", n), middle(page).Seconds()*1000, rate, memory>>20,
		)
		for _, path := range []string{
			"/v1/vms", "/v1/vms?sort=-name", "/v1/vms?sort=state", "/v1/vms?q=vm-9", "/v1/vms?q=nothing",
			"/v1/vms?q=nothing&sort=state", "/v1/vms?state=running&q=nothing", "/v1/vms?label=a=b", "/v1/images/catalog?q=nothing",
		} {
			page, err := read(path)
			if err != nil {
				return err
			}
			fmt.Printf(
				"%-44s %.2f ms, at most %.2f ms\n", path, middle(page).Seconds()*1000, slices.Max(page).Seconds()*1000,
			)
		}
	}
	return nil
}

// fleets compares the rate at which VMs are created across ten daemons with the rate of one of them
// alone.
func fleets(ctx context.Context, b *bench) error {
	registry, err := b.start(ctx, "registry", "--heartbeat-interval", "500ms")
	if err != nil {
		return err
	}
	defer func() { _ = registry.cmd.Process.Kill(); _ = registry.cmd.Wait() }()
	var nodes []*daemon
	for i := range 10 {
		n, err := b.start(
			ctx, fmt.Sprintf("node-%d", i), "--registry", registry.url, "--node-name", fmt.Sprintf("n%d", i),
			"--node-vcpus", "100000", "--node-memory-mib", "100000000", "--heartbeat-interval", "500ms",
		)
		if err != nil {
			return err
		}
		defer func() { _ = n.cmd.Process.Kill(); _ = n.cmd.Wait() }()
		nodes = append(nodes, n)
	}
	for {
		var c struct {
			Healthy int `json:"healthy_nodes"`
		}
		if err := registry.call("GET", "/fleet/capacity", nil, &c); err != nil {
			return err
		}
		if c.Healthy == len(nodes) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	rate := func(d *daemon, path, prefix string) (float64, error) {
		var work sync.WaitGroup
		errs, slots := make(chan error, b.creates), make(chan struct{}, 16)
		began := time.Now()
		for i := range b.creates {
			slots <- struct{}{}
			work.Go(func() {
				defer func() { <-slots }()
				vm := object{"name": fmt.Sprintf("%s-%d", prefix, i), "memory_mib": 64, "network": object{"mode": "none"}}
				errs <- d.call("POST", path, vm, nil)
			})
		}
		work.Wait()
		close(errs)
		for err := range errs {
			if err != nil {
				return 0, err
			}
		}
		return float64(b.creates) / time.Since(began).Seconds(), nil
	}
	direct, err := rate(nodes[0], "/v1/vms", "direct")
	if err != nil {
		return err
	}
	across, err := rate(registry, "/fleet/vms", "across")
	if err != nil {
		return err
	}
	fmt.Printf(
		"%-44s %.0f a second across ten daemons, %.0f a second of one directly: %.2f times (all on the same cores)\n",
		"VMs made, each with a disk", across, direct, across/direct,
	)
	return nil
}

// backups compares the rate of a full backup with that of qemu-img convert.
func backups(ctx context.Context, b *bench) error {
	raw := filepath.Join(b.dir, "raw")
	f, err := os.Create(raw)
	if err != nil {
		return err
	}
	if _, err := io.CopyN(f, rand.Reader, int64(b.megabytes)<<20); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	d, err := b.start(ctx, "backup")
	if err != nil {
		return err
	}
	defer func() { _ = d.stop() }()
	if err := d.operation("POST", "/v1/images/catalog", object{"name": "random", "path": raw}); err != nil {
		return err
	}
	var vm struct{ ID string }
	if err := d.call(
		"POST", "/v1/vms",
		object{"name": "one", "image": "random", "memory_mib": 64, "network": object{"mode": "none"}}, &vm,
	); err != nil {
		return err
	}
	disk := filepath.Join(d.data, "vms", vm.ID, "disk.qcow2")
	var ours, theirs []time.Duration
	for round := range max(3, b.rounds/2) {
		began := time.Now()
		if err := d.operation("POST", "/v1/vms/"+vm.ID+"/backups", object{}); err != nil {
			return err
		}
		ours = append(ours, time.Since(began))
		target := filepath.Join(b.dir, fmt.Sprintf("converted-%d", round))
		began = time.Now()
		if out, err := exec.CommandContext(
			ctx, "qemu-img", "convert", "-O", "qcow2", disk, target,
		).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		theirs = append(theirs, time.Since(began))
		if err := os.Remove(target); err != nil {
			return err
		}
	}
	compare(fmt.Sprintf("full backup of %d MiB, with its SHA-256", b.megabytes), ours, theirs, "qemu-img convert")
	mb := func(all []time.Duration) float64 { return float64(b.megabytes) * 1.048576 / middle(all).Seconds() }
	fmt.Printf("%-44s %.0f MB/s, qemu-img convert %.0f MB/s\n", "", mb(ours), mb(theirs))
	return nil
}
