//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/mainstay-infra/mainstay/kit/netlab"
	"github.com/mainstay-infra/mainstay/service/lb/datapath"
)

// connections compares new connections per second with haproxy's in TCP mode: one HTTP request
// each, sent by wrk, to two backends on a flat network.
func connections(ctx context.Context, o options) error {
	folder, err := os.MkdirTemp("", "mainstay-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	lab := netlab.New()
	defer lab.Close()
	sw, err := lab.Switch("switch")
	if err != nil {
		return err
	}
	hosts := map[string]*netlab.Host{}
	for i, name := range []string{"client", "node", "b1", "b2"} {
		h, err := lab.Host(name)
		if err != nil {
			return err
		}
		hosts[name] = h
		if err := errors.Join(
			netlab.Plug(sw, h, inDevice, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 7, 0, byte(1 + i)}), 24)),
			h.TX(inDevice, false),
		); err != nil {
			return err
		}
	}
	client, node := hosts["client"], hosts["node"]
	if err := client.Route(netip.PrefixFrom(vipAddress, 32), nodeAddress); err != nil {
		return err
	}
	var backends []netip.Addr
	for i, name := range []string{"b1", "b2"} {
		b := hosts[name]
		backends = append(backends, netip.AddrFrom4([4]byte{10, 7, 0, byte(3 + i)}))
		if err := b.Route(netip.PrefixFrom(sourceAddress, 32), nodeAddress); err != nil {
			return err
		}
		var l net.Listener
		if err := b.Do(func() (err error) { l, err = net.Listen("tcp", ":80"); return err }); err != nil {
			return err
		}
		defer l.Close()
		server := &http.Server{
			Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) }),
			ReadHeaderTimeout: time.Minute,
		}
		go func() { _ = server.Serve(l) }()
	}
	ways := []struct {
		name, url string
		start     func() (func() error, error)
	}{
		{
			"haproxy, TCP mode",
			"http://" + nodeAddress.String() + ":8080/",
			func() (func() error, error) { return haproxy(ctx, node, folder, backends) },
		},
		{
			"lb nat, generic",
			"http://" + vipAddress.String() + "/",
			func() (func() error, error) { return flat(node, hosts, backends) },
		},
	}
	rates := map[string][]float64{}
	for range o.rounds {
		for _, i := range rand.Perm(len(ways)) {
			stop, err := ways[i].start()
			if err != nil {
				return fmt.Errorf("%s: %w", ways[i].name, err)
			}
			rate, err := wrk(ctx, client, ways[i].url, o.seconds)
			if err := errors.Join(err, stop()); err != nil {
				return fmt.Errorf("%s: %w", ways[i].name, err)
			}
			rates[ways[i].name] = append(rates[ways[i].name], rate)
		}
	}
	peer, _, _ := spread(rates["haproxy, TCP mode"])
	fmt.Printf(
		"\nNew connections with one request each, 64 at once, median of %d rounds of %d s; client, balancer and backends share the cores\n\n",
		o.rounds, o.seconds,
	)
	fmt.Printf("| way | connections/s | least to greatest | of haproxy |\n|---|---|---|---|\n")
	for _, w := range ways {
		middle, low, high := spread(rates[w.name])
		fmt.Printf("| %s | %.0f | %.0f to %.0f | %.2f |\n", w.name, middle, low, high, middle/peer)
	}
	return nil
}

var requestsPerSecond = regexp.MustCompile(`Requests/sec:\s+([0-9.]+)`)

func wrk(ctx context.Context, client *netlab.Host, url string, seconds int) (float64, error) {
	cmd := exec.CommandContext(ctx, "wrk", "-t1", "-c64", fmt.Sprintf("-d%ds", seconds), "-H", "Connection: close", url)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := client.Start(cmd); err != nil {
		return 0, err
	}
	if err := cmd.Wait(); err != nil {
		return 0, fmt.Errorf("wrk: %w: %s", err, said.String())
	}
	found := requestsPerSecond.FindSubmatch(said.Bytes())
	if found == nil {
		return 0, fmt.Errorf("wrk said: %s", said.String())
	}
	return strconv.ParseFloat(string(found[1]), 64)
}

func haproxy(ctx context.Context, node *netlab.Host, folder string, backends []netip.Addr) (func() error, error) {
	file := filepath.Join(folder, "haproxy.cfg")
	text := "global\n maxconn 5000\n nbthread 2\ndefaults\n mode tcp\n timeout connect 5s\n timeout client 30s\n timeout server 30s\nfrontend f\n bind :8080\n default_backend b\nbackend b\n balance roundrobin\n"
	for i, b := range backends {
		text += fmt.Sprintf(" server s%d %s:80\n", i, b)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "haproxy", "-db", "-f", file)
	if err := node.Start(cmd); err != nil {
		return nil, err
	}
	for range 100 { // until it listens
		var c net.Conn
		if err := node.Do(func() (err error) { c, err = net.Dial("tcp", "127.0.0.1:8080"); return err }); err == nil {
			_ = c.Close()
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	return func() error {
		err := cmd.Process.Kill()
		_ = cmd.Wait()
		return err
	}, nil
}

func flat(node *netlab.Host, hosts map[string]*netlab.Host, backends []netip.Addr) (func() error, error) {
	var d *datapath.Datapath
	err := node.Do(func() (err error) {
		d, err = datapath.Open(
			context.Background(),
			datapath.Options{Interface: inDevice, Mode: datapath.Generic, Log: slog.New(slog.DiscardHandler)},
		)
		return err
	})
	if err != nil {
		return nil, err
	}
	device, err := node.Netlink().LinkByName(inDevice)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	v := datapath.VIP{
		VIPKey: datapath.VIPKey{Address: vipAddress, Port: 80, LastPort: 80, Protocol: datapath.TCP},
		Mode:   datapath.NAT,
	}
	for i, b := range backends {
		mac, err := hosts[fmt.Sprintf("b%d", i+1)].MAC(inDevice)
		if err != nil {
			return nil, errors.Join(err, d.Close())
		}
		hop := datapath.NextHop{
			Interface:   device.Attrs().Index,
			MTU:         1500,
			Source:      datapath.MAC(device.Attrs().HardwareAddr),
			Destination: mac,
			Local:       nodeAddress,
		}
		v.Backends = append(v.Backends, datapath.Backend{
			BackendKey: datapath.BackendKey{Address: b, Port: 80},
			Weight:     1,
			State:      datapath.Healthy,
			Hop:        hop,
		})
	}
	if err := d.Apply([]datapath.VIP{v}); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d.Close, nil
}
