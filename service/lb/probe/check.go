package probe

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/lb/datapath"
)

// ID identifies a check: a backend is checked once for each VIP that it serves.
type ID struct {
	VIP     datapath.VIPKey
	Backend datapath.BackendKey
}

// Type is the type of a check.
type Type uint8

const (
	// TCP opens a connection and sends nothing.
	TCP Type = iota
	// HTTP sends a GET request and checks the status.
	HTTP
	// HTTPS does the same over TLS. The certificate is not verified, since backends are known by
	// their addresses, which certificates rarely contain.
	HTTPS
)

var typeNames = [...]string{TCP: "tcp", HTTP: "http", HTTPS: "https"}

// ParseType parses tcp, http or https.
func ParseType(s string) (Type, error) {
	for t, name := range typeNames {
		if s == name {
			return Type(t), nil
		}
	}
	return 0, fault.New(fault.Invalid, "must be one of %s, not %q", strings.Join(typeNames[:], ", "), s)
}

func (t Type) String() string { return typeNames[t] }

// StatusRange is a range of HTTP statuses that count as healthy, First to Last inclusive. The zero
// StatusRange means 200 to 399.
type StatusRange struct{ First, Last int }

// ParseStatusRange parses one status, as in 204, or a range, as in 200-299.
func ParseStatusRange(s string) (StatusRange, error) {
	first, last, isRange := strings.Cut(s, "-")
	if !isRange {
		last = first
	}
	a, errA := strconv.Atoi(first)
	b, errB := strconv.Atoi(last)
	r := StatusRange{a, b}
	if errA != nil || errB != nil || !r.valid() {
		return StatusRange{}, fault.New(
			fault.Invalid, "must be a status or a range of them from 200 to 599, as in 200-399, not %q", s,
		)
	}
	return r, nil
}

func (r StatusRange) valid() bool { return 200 <= r.First && r.First <= r.Last && r.Last <= 599 }

func (r StatusRange) orDefault() StatusRange {
	if r == (StatusRange{}) {
		return StatusRange{200, 399}
	}
	return r
}

func (r StatusRange) contains(status int) bool {
	r = r.orDefault()
	return r.First <= status && status <= r.Last
}

func (r StatusRange) String() string {
	r = r.orDefault()
	if r.First == r.Last {
		return strconv.Itoa(r.First)
	}
	return strconv.Itoa(r.First) + "-" + strconv.Itoa(r.Last)
}

// Check holds the settings for probing one backend.
type Check struct {
	ID
	Type    Type
	Address netip.AddrPort
	// Path and Host are for HTTP and HTTPS. Path starts with a slash and may have a query; empty
	// means "/". Host is sent as the Host header and, if it is a name, as the TLS server name;
	// empty means the address.
	Path, Host string
	Status     StatusRange
	// Interval is the time from one probe to the next, MinInterval to MaxInterval. Timeout limits
	// the duration of a probe, MinTimeout to MaxInterval.
	Interval, Timeout time.Duration
	// Rise and Fall are the numbers of consecutive results that change the state, 1 to MaxResults.
	Rise, Fall int
	// Initial is the state before the first probe. nil means unknown; then the first result
	// decides. It is used only when the check is new.
	Initial *bool
	// Direct means to connect to Address like any program. Otherwise Options.Dial connects, for
	// example to backends that are reached through a tunnel.
	Direct bool
}

// The limits of a check.
const (
	MinInterval = 100 * time.Millisecond
	MaxInterval = time.Hour
	MinTimeout  = 10 * time.Millisecond
	MaxResults  = 100
	maxText     = 1024 // characters of Path and Host
)

// Validate returns an error for the first invalid setting, with its name in the configuration.
func (c Check) Validate() error {
	switch {
	case int(c.Type) >= len(typeNames):
		return fault.InvalidField("type", "must be one of %s", strings.Join(typeNames[:], ", "))
	case !c.Address.IsValid() || c.Address.Port() == 0:
		return fault.InvalidField("port", "must be 1 to 65535, of a valid address")
	case c.Interval < MinInterval || c.Interval > MaxInterval:
		return fault.InvalidField("interval", "must be %s to %s", MinInterval, MaxInterval)
	case c.Timeout < MinTimeout || c.Timeout > MaxInterval:
		return fault.InvalidField("timeout", "must be %s to %s", MinTimeout, MaxInterval)
	case c.Rise < 1 || c.Rise > MaxResults:
		return fault.InvalidField("rise", "must be 1 to %d", MaxResults)
	case c.Fall < 1 || c.Fall > MaxResults:
		return fault.InvalidField("fall", "must be 1 to %d", MaxResults)
	case c.Type == TCP && (c.Path != "" || c.Host != "" || c.Status != StatusRange{}):
		return fault.InvalidField("type", "is tcp, which has no path, host and status; they are for http and https")
	case c.Status != StatusRange{} && !c.Status.valid():
		return fault.InvalidField("status", "must be a status or a range of them from 200 to 599")
	case len(c.Host) > maxText || !httpguts.ValidHostHeader(c.Host) || strings.ContainsAny(c.Host, "/@"):
		return fault.InvalidField("host", "must be a host name, with or without a port")
	case !validPort(c.Host):
		return fault.InvalidField("host", "must end with a port from 1 to 65535, or have none")
	case c.Path == "":
		return nil
	}
	if !validPath(c.Path) {
		return fault.InvalidField(
			"path",
			"must begin with one slash and be a path of a URL, with or without a query, of at most %d ASCII characters",
			maxText,
		)
	}
	return nil
}

// validPort reports whether the port of a Host header is valid or absent. An IPv6 address without
// brackets has no port.
func validPort(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	colon := strings.LastIndexByte(host, ':')
	if colon < 0 || colon < strings.LastIndexByte(host, ']') {
		return true
	}
	port, err := strconv.ParseUint(host[colon+1:], 10, 16)
	return err == nil && port > 0 && colon > 0
}

// validPath reports whether a path can be used in a request without escaping.
func validPath(path string) bool {
	if len(path) > maxText || path[0] != '/' || strings.HasPrefix(path, "//") {
		return false
	}
	for _, r := range path {
		if r <= ' ' || r > '~' || r == '#' {
			return false
		}
	}
	_, err := url.ParseRequestURI(path) // rejects %zz
	return err == nil
}

// sameProbe reports whether two checks are the same, apart from their initial states.
func sameProbe(a, b Check) bool {
	a.Initial, b.Initial = nil, nil
	return a == b
}
