package webhook_test

import (
	"errors"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/webhook"
)

var (
	strict  = webhook.Guard{}
	private = webhook.Guard{AllowPrivate: true}
)

func TestOnlyPublicAddressesPassTheStrictGuard(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255",
		"128.0.0.0", "172.15.255.255", "172.32.0.0", "192.167.255.255", "192.169.0.0", "198.17.255.255",
		"198.20.0.0", "223.255.255.255", "2606:4700::1111", "2001:4860:4860::8888", "::ffff:8.8.8.8",
		"64:ff9b::8.8.8.8", "2002:808:808::1",
	} {
		if err := strict.CheckAddr(netip.MustParseAddr(s)); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
	for _, s := range []string{
		"0.0.0.0", "0.255.255.255", "10.0.0.0", "10.255.255.255", "100.64.0.0", "100.127.255.255", "127.0.0.1",
		"127.255.255.255", "169.254.0.1", "169.254.169.254", "172.16.0.0", "172.31.255.255", "192.0.0.8",
		"192.0.2.1", "192.88.99.1", "192.168.0.1", "198.18.0.0", "198.19.255.255", "198.51.100.7", "203.0.113.7",
		"224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
		"::", "::1", "fe80::1", "fe80::1%eth0", "fec0::1", "fc00::1", "fdff::1", "fd00:ec2::254", "ff02::1",
		"::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "::8.8.8.8", "::ffff:0:10.0.0.1",
		"64:ff9b::10.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1", "2002:7f00:1::1", "2002:c0a8:101::", "2001::1",
		"2001:2::1", "2001:10::1", "2001:20::1", "2001:db8::1", "3fff::1", "100::1", "5f00::1", "4000::1",
	} {
		err := strict.CheckAddr(netip.MustParseAddr(s))
		if !errors.Is(err, webhook.ErrBlockedTarget) || !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", s, err)
		}
	}
	if strict.CheckAddr(netip.Addr{}) == nil {
		t.Error("the invalid address passes")
	}
}

func TestMetadataServicesStayRefusedWhenPrivateTargetsAreAllowed(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"169.254.169.254", "169.254.170.2", "100.100.100.200", "192.0.0.192", "168.63.129.16", "fd00:ec2::254",
		"fd20:ce::254", "::ffff:169.254.169.254", "::169.254.169.254", "64:ff9b::169.254.169.254",
		"2002:a9fe:a9fe::1", "::ffff:0:169.254.169.254", "fd00:ec2::254%eth0", "2001:0:a9fe:a9fe::1",
	} {
		err := private.CheckAddr(netip.MustParseAddr(s))
		if !errors.Is(err, webhook.ErrBlockedTarget) {
			t.Errorf("%s: %v", s, err)
		}
		if err != nil && strings.Contains(fault.From(err).Message, "ALLOW_PRIVATE") {
			t.Errorf("%s: the message offers a remedy that does not help", s)
		}
	}
	for _, s := range []string{"127.0.0.1", "10.0.0.1", "169.254.1.1", "::1", "fd12::1", "::ffff:127.0.0.1"} {
		if err := private.CheckAddr(netip.MustParseAddr(s)); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
	for _, h := range []string{"metadata.google.internal", "Metadata.Google.Internal.", "a.metadata.google.internal", "metadata.goog"} {
		if _, err := private.CheckURL("http://" + h + "/"); !errors.Is(err, webhook.ErrBlockedTarget) {
			t.Errorf("%s: %v", h, err)
		}
	}
}

func TestCheckURLAdmitsPublicTargets(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"https://example.com", "http://example.com:8080/hook?a=b", "HTTPS://EXAMPLE.COM./x", "https://1.1.1.1/",
		"https://[2606:4700::1111]:8443/", "https://xn--bcher-kva.example/", "https://my_service.example.com/",
		"https://internal.example.com", "https://localhost.example.com", "https://0x7f.example.com", "https://hooks",
		"https://example.com:65535/", "https://example.com/%23",
	} {
		u, err := strict.CheckURL(s)
		if err != nil || u == nil {
			t.Errorf("%s: %v", s, err)
		}
	}
}

func TestCheckURLRefusesMalformedAndOddTargets(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"", "example.com", "//example.com", "ftp://example.com", "file:///etc/passwd", "http:example.com", "http://",
		"http:///path", "http://:80/", "http://user@example.com", "http://user:hunter2@example.com", "http://@example.com",
		"http://example.com/#", "http://example.com/#x", "http://example.com:", "http://example.com:0",
		"http://example.com:65536", "http://example.com:99999999999999999999", "http://example.com:http",
		"http://exa mple.com", "http://example..com", "http://.example.com", "http://example.com..",
		"http://a\x00b", "http://\uff11\uff12\uff17.0.0.1", "http://b\u00fccher.example", "http://%31%32%37.0.0.1",
		"http://example.com\\@127.0.0.1", "http://2130706433", "http://0177.0.0.1", "http://0x7f.1", "http://127.1",
		"http://0x7f000001", "http://0X7F.0.0.0X1", "http://017700000001", "http://127.0.0.1.", "http://1.1.1.1.",
		"http://127.0.0.01", "http://0", "http://0x", "http://1.2.3.4.5", "http://256.1.1.1", "http://foo.1",
		"http://[::1%25eth0]", "http://[fe80::1%25lo]/", "http://[127.0.0.1]", "http://[::1", "http://[v1.x]", "http://[]",
		"http://" + strings.Repeat("a", 64) + ".example", "http://" + strings.Repeat("a.", 127) + "example",
		"https://example.com/" + strings.Repeat("a", 2048),
	} {
		for _, g := range []webhook.Guard{strict, private} {
			_, err := g.CheckURL(s)
			if !fault.Is(err, fault.Invalid) || fault.From(err).Field != "target_url" {
				t.Errorf("%q: %v", s, err)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%q: the fault repeats the password", s)
			}
		}
	}
}

func TestCheckURLRefusesTargetsInsideTheNetworkUnlessAllowed(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"http://localhost", "http://LOCALHOST:80", "http://localhost.", "http://a.localhost/", "http://db.internal",
		"http://db.internal.:5432/", "http://127.0.0.1", "http://10.1.2.3:8080/x", "http://[::1]/",
		"http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/", "http://[fd00::1]", "http://0.0.0.0",
	} {
		_, err := strict.CheckURL(s)
		f := fault.From(err)
		if !errors.Is(err, webhook.ErrBlockedTarget) || f.Field != "target_url" || f.PublicCode() != "target_blocked" {
			t.Errorf("%s: %v", s, err)
			continue
		}
		if !strings.Contains(f.Message, "set allow-private-targets") {
			t.Errorf("%s: the message names no remedy: %s", s, f.Message)
		}
		if _, err := private.CheckURL(s); err != nil {
			t.Errorf("%s: refused though allowed: %v", s, err)
		}
	}
}

func TestControlChecksTheAddressAboutToBeDialled(t *testing.T) {
	t.Parallel()
	if err := strict.Control("tcp4", "1.1.1.1:443", nil); err != nil {
		t.Error(err)
	}
	for _, c := range [][2]string{
		{"tcp4", "127.0.0.1:80"}, {"tcp6", "[fe80::1%eth0]:80"}, {"tcp6", "[::ffff:10.0.0.1]:80"}, {"udp4", "1.1.1.1:53"}, {"unix", "/run/x"},
	} {
		if err := strict.Control(c[0], c[1], nil); !errors.Is(err, webhook.ErrBlockedTarget) {
			t.Errorf("%v: %v", c, err)
		}
	}
	if strict.Control("tcp4", "no port", nil) == nil || strict.Control("tcp4", "name:80", nil) == nil {
		t.Error("an address that cannot be read passes")
	}
}

func TestTheMessageDoesNotTellWhatANameResolvedTo(t *testing.T) {
	t.Parallel()
	err := strict.Control("tcp4", "10.9.8.7:80", nil)
	if f := fault.From(err); strings.Contains(f.Message, "10.9.8.7") || !strings.Contains(f.Error(), "10.9.8.7") {
		t.Errorf("message %q, text %q", f.Message, f.Error())
	}
}

// inetAton parses every IPv4 spelling that the C library's inet_aton accepts. It is the reference
// for the fuzz test and shares no code with the implementation.
func inetAton(host string) (netip.Addr, bool) {
	parts := strings.Split(strings.TrimRight(host, "."), ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var v uint64
	for i, p := range parts {
		p = strings.ToLower(p)
		base := 10
		switch {
		case strings.HasPrefix(p, "0x"):
			p, base = p[2:], 16
			if p == "" {
				p = "0"
			}
		case len(p) > 1 && p[0] == '0':
			base = 8
		}
		n, err := strconv.ParseUint(p, base, 32)
		if err != nil {
			return netip.Addr{}, false
		}
		if i == len(parts)-1 {
			if n >= 1<<(8*(5-len(parts))) {
				return netip.Addr{}, false
			}
			v |= n
			break
		}
		if n > 255 {
			return netip.Addr{}, false
		}
		v |= n << (24 - 8*i)
	}
	return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}), true
}

func FuzzCheckURLNeverAdmitsABlockedAddress(f *testing.F) {
	for _, s := range []string{
		"https://example.com/", "http://127.0.0.1/", "http://2130706433", "http://0x7f.1", "http://0177.0.0.1",
		"http://127.1", "http://[::1]", "http://[::ffff:10.0.0.1]", "http://[64:ff9b::7f00:1]:80/", "http://[fe80::1%25lo]",
		"http://169.254.169.254", "http://localhost.", "http://x.internal", "http://a@b", "http://a#b", "http://1.1.1.1",
		"http://%31", "http://\uff11", "http://a:0",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := strict.CheckURL(raw)
		if err != nil {
			if !fault.Is(err, fault.Invalid) {
				t.Fatalf("not a fault: %v", err)
			}
			return
		}
		// The client parses the URL's text again, and dials that host.
		again, err := url.Parse(u.String())
		if err != nil || again.Host != u.Host {
			t.Fatalf("%q reads as %q once written out: %v", u.Host, again, err)
		}
		if again.Scheme != "http" && again.Scheme != "https" || again.User != nil || again.Fragment != "" {
			t.Fatalf("admitted %q", u)
		}
		host := again.Hostname()
		addr, err := netip.ParseAddr(host)
		ok := err == nil
		if !ok {
			addr, ok = inetAton(host)
		}
		if ok && strict.CheckAddr(addr) != nil {
			t.Fatalf("admitted %q, which is %s", raw, addr)
		}
		name := strings.TrimRight(strings.ToLower(host), ".")
		if name == "" || name == "localhost" || strings.HasSuffix(name, ".localhost") ||
			strings.HasSuffix(name, ".internal") {
			t.Fatalf("admitted %q", raw)
		}
	})
}
