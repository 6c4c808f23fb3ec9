//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/bench/section"
)

// daemon is a measured hypervisor daemon.
type daemon struct {
	url  string
	data string
	cmd  *exec.Cmd
	http *http.Client
}

type object = map[string]any

// start starts a daemon without credentials on a free port.
func (b *bench) start(ctx context.Context, name string, args ...string) (*daemon, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, err
	}
	d := &daemon{
		url:  "http://" + address,
		data: filepath.Join(b.dir, name),
		http: &http.Client{Timeout: 5 * time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
	}
	d.cmd = exec.Command(
		filepath.Join(b.bin, "mainstay"),
		append(
			[]string{
				"serve", "hypervisor", "--listen", address, "--data", d.data, "--accel", "tcg", "--access-log",
				"off", "--log-level", "error",
			},
			args...)...)
	d.cmd.Stderr = os.Stderr
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	if err := section.AwaitReady(ctx, d.http, d.url); err != nil {
		return nil, errors.Join(err, d.stop())
	}
	return d, nil
}

// stop deletes the VMs and stops the daemon.
func (d *daemon) stop() error {
	var vms []struct{ ID string }
	if err := d.call("GET", "/v1/vms?limit=1000", nil, &vms); err == nil {
		for _, vm := range vms {
			_ = d.call("DELETE", "/v1/vms/"+vm.ID, nil, nil) // its folder is removed at the end of the run
		}
	}
	_ = d.cmd.Process.Signal(os.Interrupt)
	return d.cmd.Wait()
}

// call sends a request and returns an error unless it succeeds.
func (d *daemon) call(method, path string, body, into any) error {
	var r io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return err
		}
		r = bytes.NewReader(raw)
	}
	req, err := http.NewRequest(method, d.url+path, r)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := d.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %d %s", method, path, res.StatusCode, raw)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(raw, into)
}

// operation starts a long-running operation and waits until it has succeeded.
func (d *daemon) operation(method, path string, body any) error {
	var op struct{ ID, State, Error string }
	if err := d.call(method, path, body, &op); err != nil {
		return err
	}
	for op.State == "queued" || op.State == "running" {
		if err := d.call("GET", "/v1/operations/"+op.ID+"?wait=60", nil, &op); err != nil {
			return err
		}
	}
	if op.State != "succeeded" {
		return fmt.Errorf("%s: %s", path, op.Error)
	}
	return nil
}

// answers waits until the agent of a VM responds.
func (d *daemon) answers(ctx context.Context, id string) error {
	for ctx.Err() == nil {
		if err := d.call("POST", "/v1/vms/"+id+"/agent/ping", object{}, nil); err == nil {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return ctx.Err()
}

// memory returns the daemon's resident anonymous memory, in bytes.
func (d *daemon) memory() (int64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "RssAnon: %d kB", &kib); n == 1 {
			return kib << 10, nil
		}
	}
	return 0, errors.New("/proc says nothing of memory")
}
