package probe_test

import (
	"bufio"
	"bytes"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/lb/datapath"
	"github.com/mainstay-infra/mainstay/service/lb/probe"
)

// check is a valid check of a backend at address.
func check(address netip.AddrPort) probe.Check {
	return probe.Check{
		ID: probe.ID{
			VIP: datapath.VIPKey{
				Address:  netip.MustParseAddr("192.0.2.1"),
				Port:     80,
				LastPort: 80,
				Protocol: datapath.TCP,
			},
			Backend: datapath.BackendKey{Address: address.Addr(), Port: address.Port()},
		},
		Address:  address,
		Interval: 2 * time.Second, Timeout: time.Second,
		Rise: 2, Fall: 3, Direct: true,
	}
}

var anAddress = netip.MustParseAddrPort("198.51.100.7:8080")

func TestWrongChecksAreRefusedByTheNameOfTheSetting(t *testing.T) {
	t.Parallel()
	web := func(change func(*probe.Check)) func(*probe.Check) {
		return func(c *probe.Check) { c.Type = probe.HTTP; change(c) }
	}
	for name, c := range map[string]struct {
		field  string
		change func(*probe.Check)
	}{
		"unknown type":          {"type", func(c *probe.Check) { c.Type = 9 }},
		"no port":               {"port", func(c *probe.Check) { c.Address = netip.AddrPortFrom(anAddress.Addr(), 0) }},
		"no address":            {"port", func(c *probe.Check) { c.Address = netip.AddrPort{} }},
		"interval zero":         {"interval", func(c *probe.Check) { c.Interval = 0 }},
		"interval too long":     {"interval", func(c *probe.Check) { c.Interval = 2 * time.Hour }},
		"timeout negative":      {"timeout", func(c *probe.Check) { c.Timeout = -1 }},
		"rise zero":             {"rise", func(c *probe.Check) { c.Rise = 0 }},
		"fall too great":        {"fall", func(c *probe.Check) { c.Fall = 101 }},
		"path with tcp":         {"type", func(c *probe.Check) { c.Path = "/" }},
		"status out of range":   {"status", web(func(c *probe.Check) { c.Status = probe.StatusRange{First: 100, Last: 200} })},
		"status backwards":      {"status", web(func(c *probe.Check) { c.Status = probe.StatusRange{First: 300, Last: 200} })},
		"host with a line":      {"host", web(func(c *probe.Check) { c.Host = "a\r\nX-Evil: 1" })},
		"host with a path":      {"host", web(func(c *probe.Check) { c.Host = "example.com/admin" })},
		"host too long":         {"host", web(func(c *probe.Check) { c.Host = strings.Repeat("a", 2000) })},
		"relative path":         {"path", web(func(c *probe.Check) { c.Path = "health" })},
		"another server's path": {"path", web(func(c *probe.Check) { c.Path = "//example.com/health" })},
		"path with a line":      {"path", web(func(c *probe.Check) { c.Path = "/a\r\nX-Evil: 1" })},
		"path with a fragment":  {"path", web(func(c *probe.Check) { c.Path = "/a#b" })},
		"path too long":         {"path", web(func(c *probe.Check) { c.Path = "/" + strings.Repeat("a", 2000) })},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bad := check(anAddress)
			c.change(&bad)
			err := bad.Validate()
			if !fault.Is(err, fault.Invalid) || fault.From(err).Field != c.field {
				t.Errorf("error %v, want one of the field %s", err, c.field)
			}
			if err := probe.New(probe.Options{}).Set([]probe.Check{check(anAddress), bad}); err == nil {
				t.Error("Set accepted it")
			}
		})
	}
}

func TestOneBackendOfOneVIPHasOneCheck(t *testing.T) {
	t.Parallel()
	err := probe.New(probe.Options{}).Set([]probe.Check{check(anAddress), check(anAddress)})
	if err == nil || !strings.Contains(err.Error(), "two checks of backend 198.51.100.7:8080 of 192.0.2.1:80:tcp") {
		t.Errorf("error %v", err)
	}
}

func TestStatusRangesAreReadAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"200", "200-399", "204-204", "404-599"} {
		r, err := probe.ParseStatusRange(s)
		if err != nil {
			t.Errorf("%s: %v", s, err)
		}
		if again, err := probe.ParseStatusRange(r.String()); err != nil || again != r {
			t.Errorf("%s was written as %s", s, r)
		}
	}
	for _, s := range []string{"", "-", "200-", "-200", "300-200", "0", "199", "600", "2xx", "200,301", "200-300-400"} {
		if r, err := probe.ParseStatusRange(s); err == nil {
			t.Errorf("%q was read as %s", s, r)
		}
	}
	if got := (probe.StatusRange{}).String(); got != "200-399" {
		t.Errorf("the default is %s", got)
	}
}

func TestTypesAreReadAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	for _, want := range []probe.Type{probe.TCP, probe.HTTP, probe.HTTPS} {
		if got, err := probe.ParseType(want.String()); err != nil || got != want {
			t.Errorf("%s: got %v, %v", want, got, err)
		}
	}
	if _, err := probe.ParseType("icmp"); err == nil {
		t.Error("icmp was accepted")
	}
}

// FuzzAcceptedPathsAndHostsStayInsideOfTheRequest holds whatever Validate accepts
// against a server's reading of the request that is made of it.
func FuzzAcceptedPathsAndHostsStayInsideOfTheRequest(f *testing.F) {
	f.Add("/health?full=1", "example.com")
	f.Add("/a b", "[::1]:80")
	f.Add("/%0d%0aX: 1", "a\tb")
	f.Add("//h/", "h@x")
	f.Add("/\u00e4", "\u00e4.example")
	f.Fuzz(func(t *testing.T, path, host string) {
		c := check(anAddress)
		c.Type, c.Path, c.Host = probe.HTTP, path, host
		if c.Validate() != nil {
			return
		}
		request, err := probe.Request(t.Context(), c)
		if err != nil {
			t.Fatalf("accepted %q, %q, which make no request: %v", path, host, err)
		}
		var wire bytes.Buffer
		if err := request.Write(&wire); err != nil {
			t.Fatalf("accepted %q, %q, which cannot be sent: %v", path, host, err)
		}
		sent := wire.String()
		got, err := http.ReadRequest(bufio.NewReader(&wire))
		if err != nil {
			t.Fatalf("a server does not understand %q: %v", sent, err)
		}
		if got.Method != http.MethodGet || len(got.Header) != 2 || !got.Close || wire.Len() > 0 {
			t.Errorf("a server reads %q as %v with %v", sent, got.Method, got.Header)
		}
	})
}
