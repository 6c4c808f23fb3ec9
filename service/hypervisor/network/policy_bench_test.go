//go:build linux

package network

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/mainstay-infra/mainstay/service/hypervisor/netpolicy"
)

// unicast makes a UDP packet between two guests, with sums.
func unicast(from, to Port, a, b Attached, source, destination uint16) []byte {
	f := frame(mac(from.MAC), mac(to.MAC), a.IP, b.IP, make([]byte, 64))
	binary.BigEndian.PutUint16(f[34:], source)
	binary.BigEndian.PutUint16(f[36:], destination)
	f[40], f[41] = 0, 0 // no checksum
	return f
}

// BenchmarkPacket sends packets of one flow between two guests of a bridge: the time of one is what the
// kernel takes from the sender's tap to the receiver's.
func BenchmarkPacket(b *testing.B) {
	rules := func(n int) *np {
		p := policy("deny", "deny")
		for i := range n - 1 {
			p.Egress.Rules = append(p.Egress.Rules, npr(fmt.Sprint("r", i), "allow",
				fmt.Sprintf("10.%d.%d.0/24", i/200, i%200), tcp(1000+i)))
		}
		p.Egress.Rules = append(p.Egress.Rules, npr("all", "allow", "", netpolicy.Port{Protocol: "udp", Port: 9000}))
		return p
	}
	for _, c := range []struct {
		name          string
		first, second *np // of the sender, and of a third guest
	}{
		{"without policies", nil, nil}, {"another guest has a policy", nil, rules(1)},
		{"1 rule", rules(1), nil}, {"10 rules", rules(10), nil}, {"1000 rules", rules(1000), nil},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := newSite(b, Options{})
			for _, name := range []string{"iptables", "ip6tables", "arptables"} {
				s.must(s.host.Sysctl("net/bridge/bridge-nf-call-"+name, "0"))
			}
			one, two := Port{VM: "a", MAC: hw(1)}, Port{VM: "b", MAC: hw(2)}
			from, to := s.attach(one), s.attach(two)
			s.attach(Port{VM: "c", MAC: hw(3)})
			x, y := open(b, s.host, from.Tap), open(b, s.host, to.Tap)
			join(b, x, y, arp(hw(1), hw(1), from.IP.String(), "10.87.201.1"))
			join(b, y, x, arp(hw(2), hw(2), to.IP.String(), "10.87.201.1"))
			for vm, p := range map[string]*np{"a": c.first, "c": c.second} {
				if p != nil {
					s.set(vm, p)
				}
			}
			packet, answer := unicast(one, two, from, to, 4000, 9000), unicast(two, one, to, from, 9000, 4000)
			join(b, x, y, packet)
			join(b, y, x, answer)
			b.ResetTimer()
			for range b.N {
				x.send(b, packet)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "packets/s")
		})
	}
}

// BenchmarkSwap replaces one policy with another.
func BenchmarkSwap(b *testing.B) {
	for _, n := range []int{10, netpolicy.MaxRules} {
		b.Run(fmt.Sprint(n, " rules"), func(b *testing.B) {
			s := newSite(b, Options{})
			s.attach(Port{VM: "a", MAC: hw(1)})
			p := policy("deny", "deny")
			for i := range n {
				p.Egress.Rules = append(p.Egress.Rules, npr(fmt.Sprint("r", i), "allow",
					fmt.Sprintf("10.%d.%d.0/24", i/200, i%200), tcp(1000+i)))
			}
			for range b.N {
				s.set("a", p)
			}
		})
	}
}
