//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// manager is a measured VM management service above a daemon.
type manager struct {
	*daemon
	token string
}

const managerPassword = "bench-password-6f1d"

// manage starts VM management above a daemon, with a repository of its own.
func (b *bench) manage(ctx context.Context, below *daemon, repository string) (*manager, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, err
	}
	m := &manager{daemon: &daemon{
		url: "http://" + address, data: filepath.Join(b.dir, "vm"), http: &http.Client{Timeout: 15 * time.Minute},
	}}
	m.cmd = exec.Command(
		filepath.Join(b.bin, "mainstay"), "serve", "vm", "--listen", address, "--data", m.data, "--access-log", "off",
		"--log-level", "error", "--hypervisor-url", below.url, "--admin-username", "admin",
		"--backup-repository", filepath.Join(b.dir, repository),
	)
	m.cmd.Env = append(os.Environ(), "VM_ADMIN_PASSWORD="+managerPassword)
	m.cmd.Stderr = os.Stderr
	if err := m.cmd.Start(); err != nil {
		return nil, err
	}
	for ctx.Err() == nil {
		var session struct{ Token string }
		err := m.send("POST", "/api/auth/login", object{"username": "admin", "password": managerPassword}, &session)
		if err == nil {
			m.token = session.Token
			return m, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil, errors.Join(ctx.Err(), m.end())
}

func (m *manager) end() error {
	_ = m.cmd.Process.Signal(os.Interrupt)
	return m.cmd.Wait()
}

// send is call with the token.
func (m *manager) send(method, path string, body, into any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequest(method, m.url+path, bytes.NewReader(raw))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if m.token != "" {
		req.Header.Set("Authorization", "Bearer "+m.token)
	}
	res, err := m.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %d", method, path, res.StatusCode)
	}
	return json.NewDecoder(res.Body).Decode(into)
}

// job waits until a job has ended well.
func (m *manager) job(id string) error {
	for {
		var j struct{ Status, Error string }
		if err := m.send("GET", "/api/jobs/"+id+"?wait=60", nil, &j); err != nil {
			return err
		}
		switch j.Status {
		case "completed":
			return nil
		case "queued", "running":
		default:
			return fmt.Errorf("the job %s: %s", j.Status, j.Error)
		}
	}
}

// saved is a backup as the service describes it.
type saved struct {
	ID        string
	SizeBytes int64  `json:"size_bytes"`
	ReadBytes int64  `json:"read_bytes"`
	JobID     string `json:"job_id"`
}

// save backs a VM up and returns how long that took.
func (m *manager) save(vm, kind string) (b saved, took time.Duration, err error) {
	began := time.Now()
	if err := m.send("POST", "/api/backups", object{"vm_name": vm, "backup_type": kind}, &b); err != nil {
		return b, 0, err
	}
	if err := m.job(b.JobID); err != nil {
		return b, 0, err
	}
	took = time.Since(began)
	return b, took, m.send("GET", "/api/backups/"+b.ID, nil, &b)
}

// run runs a program.
func run(ctx context.Context, program string, args ...string) error {
	if out, err := exec.CommandContext(ctx, program, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, out)
	}
	return nil
}

// timed returns how long f takes.
func timed(f func() error) (time.Duration, error) {
	began := time.Now()
	err := f()
	return time.Since(began), err
}

// vmBackups compares backups of VM management with qemu-img and zstd by hand, and with restic if it is
// there. The disk is a file system with files of this host.
func vmBackups(ctx context.Context, b *bench) error {
	raw := filepath.Join(b.dir, "files.raw")
	if err := run(ctx, "mke2fs", "-q", "-t", "ext4", "-d", "/usr/lib/x86_64-linux-gnu", raw, "4G"); err != nil {
		return err
	}
	d, err := b.start(ctx, "below")
	if err != nil {
		return err
	}
	defer func() { _ = d.stop() }()
	if err := d.operation("POST", "/v1/images/catalog", object{"name": "files", "path": raw}); err != nil {
		return err
	}
	names := []string{"one", "two"}
	for i := range b.rounds {
		names = append(names, fmt.Sprintf("restored-%d", i))
	}
	var full, byHand, restores, copies []time.Duration
	var content, packed, stored int64
	for round := range max(3, b.rounds/2) {
		m, err := b.manage(ctx, d, fmt.Sprintf("repository-%d", round))
		if err != nil {
			return err
		}
		if round == 0 {
			for _, name := range names[:2] {
				var vm struct{ Job struct{ ID string } }
				if err := m.send("POST", "/api/vms", object{"name": name, "image": "files", "memory": 64}, &vm); err != nil {
					return err
				}
				if err := m.job(vm.Job.ID); err != nil {
					return err
				}
			}
		}
		one, took, err := m.save("one", "full")
		if err != nil {
			return err
		}
		full, content, stored = append(full, took), one.ReadBytes, one.SizeBytes
		var j struct{ ID string }
		took, err = timed(func() error {
			spec := object{"backup_id": one.ID, "target_vm_name": names[2+round]}
			if err := m.send("POST", "/api/backups/restore", spec, &j); err != nil {
				return err
			}
			return m.job(j.ID)
		})
		if err != nil {
			return err
		}
		restores = append(restores, took)
		disk, err := d.diskOf("one")
		if err != nil {
			return err
		}
		plain, small := filepath.Join(b.dir, "plain"), filepath.Join(b.dir, "small")
		took, err = timed(func() error {
			if err := run(ctx, "qemu-img", "convert", "-O", "raw", disk, plain); err != nil {
				return err
			}
			return run(ctx, "zstd", "-q", "-f", "-3", "-T0", plain, "-o", small)
		})
		if err != nil {
			return err
		}
		byHand = append(byHand, took)
		if info, err := os.Stat(small); err == nil {
			packed = info.Size()
		}
		took, err = timed(func() error { return run(ctx, "zstd", "-q", "-f", "-d", small, "-o", plain) })
		if err != nil {
			return err
		}
		copies = append(copies, took)
		if round == 0 {
			if err := m.later(ctx, disk, one, full[0]); err != nil {
				return err
			}
		}
		if err := m.end(); err != nil {
			return err
		}
	}
	const hand = "qemu-img convert, zstd -3"
	compare(fmt.Sprintf("full backup, %d MB of files", content/1e6), full, byHand, hand)
	compare("restore to a new VM", restores, copies, "zstd -d")
	fmt.Printf("%-44s %d MB, zstd %d MB   %.2f times\n", "size", stored/1e6, packed/1e6, float64(stored)/float64(packed))
	return b.restic(ctx, filepath.Join(b.dir, "plain"), full, stored)
}

// later measures what follows a first backup: one after small changes, and one of another VM of the
// same image.
func (m *manager) later(ctx context.Context, disk string, first saved, took time.Duration) error {
	args := []string{}
	const block, size = 64 << 10, 4 << 30
	for range size / block / 100 {
		args = append(args, "-c", fmt.Sprintf("write -q -P %d %d %d", rand.IntN(256), rand.IntN(size/block)*block, block))
	}
	if err := run(ctx, "qemu-io", append(args, disk)...); err != nil {
		return err
	}
	// The image was written behind the daemon's back, in which QEMU keeps its notes of what changed.
	next, after, err := m.save("one", "incremental")
	if err != nil {
		return err
	}
	share := func(a, b int64) float64 { return 100 * float64(a) / float64(b) }
	fmt.Printf("%-44s %s, %.1f %% of the time, %.1f %% of the bytes (%d MB read)\n", "incremental after 1 % of 64 KiB writes",
		ms(after), share(int64(after), int64(took)), share(next.SizeBytes, first.SizeBytes), next.ReadBytes/1e6)
	second, _, err := m.save("two", "full")
	if err != nil {
		return err
	}
	fmt.Printf("%-44s %.1f %% of the bytes\n", "second VM of the same image", share(second.SizeBytes, first.SizeBytes))
	return nil
}

// restic compares with restic, if it is there.
func (b *bench) restic(ctx context.Context, plain string, ours []time.Duration, stored int64) error {
	if _, err := exec.LookPath("restic"); err != nil {
		fmt.Println("restic is not there")
		return nil
	}
	var theirs []time.Duration
	var size int64
	for round := range max(3, b.rounds/2) {
		repository := filepath.Join(b.dir, fmt.Sprintf("restic-%d", round))
		base := []string{"--no-cache", "-q", "-r", repository}
		cmd := func(args ...string) error {
			c := exec.CommandContext(ctx, "restic", append(base, args...)...)
			c.Env = append(os.Environ(), "RESTIC_PASSWORD=bench", "RESTIC_COMPRESSION=auto")
			if out, err := c.CombinedOutput(); err != nil {
				return fmt.Errorf("restic: %w: %s", err, out)
			}
			return nil
		}
		if err := cmd("init", "--repository-version", "2"); err != nil {
			return err
		}
		took, err := timed(func() error { return cmd("backup", plain) })
		if err != nil {
			return err
		}
		theirs, size = append(theirs, took), 0
		err = filepath.WalkDir(repository, func(_ string, e os.DirEntry, err error) error {
			if info, infoErr := e.Info(); infoErr == nil && e.Type().IsRegular() {
				size += info.Size()
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	compare("full backup", ours, theirs, "restic backup")
	fmt.Printf("%-44s %d MB, restic %d MB   %.2f times\n", "size", stored/1e6, size/1e6, float64(stored)/float64(size))
	return nil
}

// diskOf returns the disk of a VM.
func (d *daemon) diskOf(name string) (string, error) {
	var vms []struct{ ID, Name string }
	if err := d.call("GET", "/v1/vms?limit=1000", nil, &vms); err != nil {
		return "", err
	}
	for _, vm := range vms {
		if vm.Name == name {
			return filepath.Join(d.data, "vms", vm.ID, "disk.qcow2"), nil
		}
	}
	return "", fmt.Errorf("the daemon has no VM %s", name)
}
