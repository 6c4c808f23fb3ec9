package httpserve

import (
	"net"
	"strconv"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Config is how a service listens. The zero value becomes usable through
// Defaults once Listen is set. The names in the yaml tags are those that faults
// from Validate carry.
type Config struct {
	// Listen is host:port; an empty host means every interface, port 0 a free one.
	Listen string `yaml:"listen"`
	// TLSCert and TLSKey are PEM files, read again when they change on disk.
	// Both empty means cleartext unless SelfSigned is set.
	TLSCert string `yaml:"tls_cert"`
	TLSKey  string `yaml:"tls_key"`
	// ClientCA is a PEM file of the authorities whose client certificates are
	// accepted. A certificate is verified if one is given; whether one is needed
	// is decided per route from r.TLS.
	ClientCA string `yaml:"client_ca"`
	// SelfSigned serves TLS with a throw-away certificate, for development only.
	SelfSigned bool `yaml:"self_signed"`
	// MaxInFlight is the value for LimitInFlight. Listen does not apply it
	// itself, because the refusal is written by the service's own ErrorRenderer.
	MaxInFlight int `yaml:"max_in_flight"`
	// DrainTimeout is how long requests in flight may take once Run was told to
	// stop.
	DrainTimeout time.Duration `yaml:"drain_timeout"`
	// ReadHeaderTimeout and ReadTimeout limit how long a client may take to send
	// a request's headers, and the whole request.
	ReadHeaderTimeout time.Duration `yaml:"read_header_timeout"`
	ReadTimeout       time.Duration `yaml:"read_timeout"`
	// WriteTimeout limits a response, counted from the end of the request's
	// headers. EventStream replaces it by a deadline per write; a handler that
	// sends something large does the same with http.ResponseController.
	WriteTimeout time.Duration `yaml:"write_timeout"`
	// IdleTimeout closes a kept-alive connection without requests.
	IdleTimeout time.Duration `yaml:"idle_timeout"`
	// MaxHeaderBytes limits the request line and headers together.
	MaxHeaderBytes int `yaml:"max_header_bytes"`
}

// Defaults fills every limit that is zero.
func (c *Config) Defaults() {
	setDefault(&c.MaxInFlight, 4096)
	setDefault(&c.DrainTimeout, 20*time.Second)
	setDefault(&c.ReadHeaderTimeout, 10*time.Second)
	setDefault(&c.ReadTimeout, 60*time.Second)
	setDefault(&c.WriteTimeout, 60*time.Second)
	setDefault(&c.IdleTimeout, 120*time.Second)
	setDefault(&c.MaxHeaderBytes, 64<<10)
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// Validate reports the first wrong value as a fault of kind Invalid whose Field
// is the value's key. It does not open the files.
func (c Config) Validate() error {
	if _, _, err := splitListen(c.Listen); err != nil {
		return err
	}
	switch {
	case c.TLSCert == "" && c.TLSKey != "":
		return fault.InvalidField("tls_cert", "must be set together with tls_key")
	case c.TLSCert != "" && c.TLSKey == "":
		return fault.InvalidField("tls_key", "must be set together with tls_cert")
	case c.SelfSigned && c.TLSCert != "":
		return fault.InvalidField("self_signed", "cannot be combined with tls_cert")
	case c.ClientCA != "" && !c.tls():
		return fault.InvalidField("client_ca", "needs TLS: set tls_cert and tls_key, or self_signed")
	}
	if c.MaxInFlight < 1 {
		return fault.InvalidField("max_in_flight", "must be at least 1, not %d", c.MaxInFlight)
	}
	if c.MaxHeaderBytes < 4<<10 || c.MaxHeaderBytes > 16<<20 {
		return fault.InvalidField("max_header_bytes", "must be between 4096 and 16777216, not %d", c.MaxHeaderBytes)
	}
	for _, t := range []struct {
		key string
		d   time.Duration
	}{
		{"drain_timeout", c.DrainTimeout},
		{"read_header_timeout", c.ReadHeaderTimeout},
		{"read_timeout", c.ReadTimeout},
		{"write_timeout", c.WriteTimeout},
		{"idle_timeout", c.IdleTimeout},
	} {
		if t.d <= 0 {
			return fault.InvalidField(t.key, "must be positive, not %s", t.d)
		}
	}
	return nil
}

func (c Config) tls() bool { return c.SelfSigned || c.TLSCert != "" }

func splitListen(listen string) (host, port string, err error) {
	host, port, err = net.SplitHostPort(listen)
	if err != nil {
		return "", "", fault.InvalidField("listen", "must be host:port, for example \"127.0.0.1:8080\" or \":8080\"; it is %q", listen)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", "", fault.InvalidField("listen", "the port must be a number from 0 to 65535, not %q", port)
	}
	return host, port, nil
}
