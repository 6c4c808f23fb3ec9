//go:build linux && ceph

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/bench/section"
	"github.com/mainstay-infra/mainstay/kit/cephlab"
)

// gateway is a storage gateway that is measured.
type gateway struct {
	url  string
	cmd  *exec.Cmd
	http *http.Client
}

type object = map[string]any

// start starts a gateway without credentials for some clusters, and discovers them.
func (b *bench) start(ctx context.Context, name string, labs ...*cephlab.Lab) (*gateway, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, err
	}
	var clusters, gateways []string
	for _, lab := range labs {
		clusters, gateways = append(clusters, lab.Clusters()), append(gateways, lab.Gateways())
	}
	g := &gateway{
		url:  "http://" + address,
		http: &http.Client{Timeout: 30 * time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
	}
	g.cmd = exec.Command(filepath.Join(b.bin, "mainstay"), "serve", "storage", "--listen", address, "--grpc-addr", "off",
		"--data", filepath.Join(b.dir, name), "--access-log", "off", "--log-level", "error",
		"--ceph-clusters", strings.Join(clusters, ","), "--object-gateways", strings.Join(gateways, ","))
	g.cmd.Stderr = os.Stderr
	if err := g.cmd.Start(); err != nil {
		return nil, err
	}
	if err := section.AwaitReady(ctx, g.http, g.url); err != nil {
		g.stop()
		return nil, err
	}
	for _, lab := range labs {
		if err := g.register(lab.Name); err != nil {
			g.stop()
			return nil, err
		}
	}
	return g, nil
}

// register has a gateway use a cluster of its settings, with a policy of the same name.
func (g *gateway) register(name string) error {
	var made struct{ ID string }
	if err := g.call("POST", "/backends", object{"name": name, "backend_type": "ceph"}, &made); err != nil {
		return err
	}
	if err := g.call("POST", "/backends/"+made.ID+"/discover", nil, nil); err != nil {
		return err
	}
	return g.call("PUT", "/policies/"+name, object{"backend_id": name, "kind": "block", "pool": "rbd"}, nil)
}

func (g *gateway) stop() {
	_ = g.cmd.Process.Signal(os.Interrupt)
	_ = g.cmd.Wait() // what it was for is measured
}

// call sends a request, and returns an error unless it succeeds.
func (g *gateway) call(method, path string, body, into any) error {
	_, err := g.page(method, path, body, into)
	return err
}

// page is call, and returns the path of the next page, or "" after the last one.
func (g *gateway) page(method, path string, body, into any) (next string, err error) {
	var r io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return "", err
		}
		r = bytes.NewReader(raw)
	}
	if !strings.HasPrefix(path, "/api/") {
		path = "/api/store/v1" + path
	}
	req, err := http.NewRequest(method, g.url+path, r)
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := g.http.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return "", err
	}
	if res.StatusCode >= 300 {
		return "", fmt.Errorf("%s %s: %d %s", method, path, res.StatusCode, raw)
	}
	if link := res.Header.Get("Link"); link != "" {
		next, _, _ = strings.Cut(strings.TrimPrefix(link, "<"), ">")
	}
	if into == nil {
		return next, nil
	}
	return next, json.Unmarshal(raw, into)
}

// job begins a job, waits until it has succeeded, and returns the id of what it is about.
func (g *gateway) job(method, path string, body any) (string, error) {
	var begun struct {
		JobID string `json:"job_id"`
	}
	if err := g.call(method, path, body, &begun); err != nil {
		return "", err
	}
	for {
		var j struct {
			State    string
			Error    struct{ Message string }
			Resource struct{ ID string }
		}
		if err := g.call("GET", "/jobs/"+begun.JobID+"?wait=60", nil, &j); err != nil {
			return "", err
		}
		switch j.State {
		case "succeeded":
			return j.Resource.ID, nil
		case "failed":
			return "", fmt.Errorf("%s %s: %s", method, path, j.Error.Message)
		}
	}
}

// memory returns the resident memory of a gateway and of its helpers, in bytes.
func (g *gateway) memory() (sum int64) {
	all, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	for _, e := range all {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join("/proc", e.Name(), "status"))
		if err != nil {
			continue
		}
		if pid == g.cmd.Process.Pid || field(text, "PPid:") == int64(g.cmd.Process.Pid) {
			sum += field(text, "VmRSS:") << 10
		}
	}
	return sum
}

// field returns the number in a line of /proc/PID/status.
func field(text []byte, name string) int64 {
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == name {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n
		}
	}
	return 0
}

// peak watches the memory until stop is called, which returns the most of it.
func (g *gateway) peak() (stop func() int64) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan int64)
	go func() {
		var most int64
		for ctx.Err() == nil {
			most = max(most, g.memory())
			time.Sleep(50 * time.Millisecond)
		}
		done <- most
	}()
	return func() int64 { cancel(); return <-done }
}
