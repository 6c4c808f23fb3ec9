package probe_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/service/lb/probe"
)

// backendVariable makes the test program a backend, so that what accepting costs is not
// counted as what probing costs.
const backendVariable = "MAINSTAY_PROBE_BENCHMARK_BACKEND"

func TestMain(m *testing.M) {
	if os.Getenv(backendVariable) != "" {
		os.Exit(beBackend())
	}
	os.Exit(m.Run())
}

// beBackend answers TCP and HTTP until its input ends.
func beBackend() int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if _, err := bufio.NewReader(conn).ReadString('\n'); err == nil {
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
				}
			}()
		}
	}()
	fmt.Fprintln(os.Stdout, l.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

func startBackend(b *testing.B) netip.AddrPort {
	b.Helper()
	self := exec.CommandContext(b.Context(), os.Args[0])
	self.Env = append(os.Environ(), backendVariable+"=1")
	self.Stderr = os.Stderr
	in, err := self.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := self.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := self.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		_ = self.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return netip.MustParseAddrPort(strings.TrimSpace(line))
}

// cpuTime is what this process has used so far, in the kernel too: on loopback that
// includes most of what the kernel does for the other end.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkThousandBackends probes 1,000 backends every 2 s, as a daemon would, so one
// operation takes 2 ms; what it costs is cpu-us/probe. "plain" is the floor: the same
// number of connections at the same pace with nothing around them.
func BenchmarkThousandBackends(b *testing.B) {
	b.Run("plain", func(b *testing.B) {
		address := net.TCPAddrFromAddrPort(startBackend(b))
		pace := time.NewTicker(2 * time.Second / backends)
		defer pace.Stop()
		before := cpuTime(b)
		for b.Loop() {
			<-pace.C
			conn, err := net.DialTCP("tcp", nil, address)
			if err != nil {
				b.Fatal(err)
			}
			_ = conn.SetLinger(0)
			conn.Close()
		}
		reportCPU(b, cpuTime(b)-before)
	})
	for _, typ := range []probe.Type{probe.TCP, probe.HTTP} {
		b.Run(typ.String(), func(b *testing.B) {
			address := startBackend(b)
			var left atomic.Int64
			left.Store(int64(b.N))
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			failed := 0
			p := probe.New(probe.Options{
				Log: slog.New(slog.DiscardHandler),
				OnProbe: func(_ time.Duration, ok bool) {
					if !ok {
						failed++
					}
					if left.Add(-1) == 0 {
						cancel()
					}
				},
			})
			var checks []probe.Check
			for n := range backends {
				c := check(address)
				c.Type = typ
				c.Backend.Address = netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)})
				checks = append(checks, c)
			}
			if err := p.Set(checks); err != nil {
				b.Fatal(err)
			}
			before := cpuTime(b)
			start := time.Now()
			b.ResetTimer()
			if err := p.Run(ctx); err != nil {
				b.Fatal(err)
			}
			used, took := cpuTime(b)-before, time.Since(start)
			if failed > 0 {
				b.Errorf("%d of %d probes failed", failed, b.N)
			}
			reportCPU(b, used)
			b.ReportMetric(float64(b.N)/took.Seconds(), "probes/s")
		})
	}
}

const backends = 1000

func reportCPU(b *testing.B, used time.Duration) {
	perProbe := float64(used.Microseconds()) / float64(b.N)
	b.ReportMetric(perProbe, "cpu-us/probe")
	b.ReportMetric(perProbe*backends/2/1e6*100, "%core/1000-every-2s")
}
