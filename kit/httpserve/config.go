package httpserve

import (
	"net"
	"strconv"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Config holds the listening address and limits of a Server. With Listen set, Defaults makes a zero
// Config usable. Faults from Validate use the names in the yaml tags.
type Config struct {
	// Listen is host:port; an empty host means every interface, port 0 a free one.
	Listen string `yaml:"listen"`
	// TLSCert and TLSKey are PEM files, reloaded when they change on disk. If both are empty, the
	// server uses cleartext unless SelfSigned is set.
	TLSCert string `yaml:"tls-cert"`
	TLSKey  string `yaml:"tls-key"`
	// ClientCA is a PEM file of the authorities whose client certificates are accepted. A
	// certificate is verified if the client sends one; unless ClientRequired is set, each route
	// checks r.TLS if it requires one.
	ClientCA string `yaml:"client-ca"`
	// ClientRequired rejects clients without a verified certificate at the handshake.
	ClientRequired bool `yaml:"client-required"`
	// SelfSigned serves TLS with a throw-away certificate, for development only.
	SelfSigned bool `yaml:"tls-self-signed"`
	// MaxInFlight is the value for LimitInFlight. Listen does not apply it itself, because the
	// refusal is written by the service's own ErrorRenderer.
	MaxInFlight int `yaml:"max-in-flight"`
	// MaxConnections and MaxConnectionsPerAddress limit the open connections. Further ones are
	// closed immediately. Connections from trusted proxies are not counted. By default, connections
	// may use at most half of the files that the process may open, and those of one address a
	// quarter of that, so that no client can exhaust the files for other clients and the service
	// itself.
	MaxConnections           int `yaml:"max-connections"`
	MaxConnectionsPerAddress int `yaml:"max-connections-per-address"`
	// TrustedProxies are addresses and networks (CIDR) whose Forwarded and X-Forwarded-For headers
	// are trusted.
	TrustedProxies []string `yaml:"trusted-proxies"`
	// DrainTimeout is how long requests in flight may take after Run's context ended.
	DrainTimeout time.Duration `yaml:"drain-timeout"`
	// ReadHeaderTimeout and ReadTimeout limit how long a client may take to send a request's
	// headers, and its body. A body must also keep a minimum rate of 1 KiB/s after the first 10 s.
	ReadHeaderTimeout time.Duration `yaml:"read-header-timeout"`
	ReadTimeout       time.Duration `yaml:"read-timeout"`
	// WriteTimeout limits a response, from the end of the request's headers. EventStream replaces
	// it with a deadline per write; a handler that sends a large response does the same with
	// http.ResponseController.
	WriteTimeout time.Duration `yaml:"write-timeout"`
	// IdleTimeout closes a keep-alive connection without requests.
	IdleTimeout time.Duration `yaml:"idle-timeout"`
	// MaxHeaderBytes limits the request line and headers together, in bytes.
	MaxHeaderBytes int `yaml:"max-header-bytes"`
}

// Defaults sets every limit that is zero to its default.
func (c *Config) Defaults() {
	setDefault(&c.MaxInFlight, 4096)
	setDefault(&c.MaxConnections, defaultConnections(maxFiles()))
	setDefault(&c.MaxConnectionsPerAddress, max(c.MaxConnections/4, 1))
	setDefault(&c.DrainTimeout, 20*time.Second)
	setDefault(&c.ReadHeaderTimeout, 10*time.Second)
	setDefault(&c.ReadTimeout, 60*time.Second)
	setDefault(&c.WriteTimeout, 60*time.Second)
	setDefault(&c.IdleTimeout, 120*time.Second)
	setDefault(&c.MaxHeaderBytes, 64<<10)
}

// defaultConnections returns the default of MaxConnections for a process that may open this many
// files; 0 means unlimited.
func defaultConnections(files int) int {
	const most = 32768
	if files == 0 {
		return most
	}
	return max(min(most, files/2), 1)
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// Validate returns the first wrong value as a fault of kind Invalid whose Field is the value's key.
// It does not open the files.
func (c Config) Validate() error {
	if _, _, err := splitListen(c.Listen); err != nil {
		return err
	}
	switch {
	case c.TLSCert == "" && c.TLSKey != "":
		return fault.InvalidField("tls-cert", "must be set together with tls-key")
	case c.TLSCert != "" && c.TLSKey == "":
		return fault.InvalidField("tls-key", "must be set together with tls-cert")
	case c.SelfSigned && c.TLSCert != "":
		return fault.InvalidField("tls-self-signed", "cannot be combined with tls-cert")
	case c.ClientCA != "" && !c.tls():
		return fault.InvalidField("client-ca", "needs TLS: set tls-cert and tls-key, or tls-self-signed")
	case c.ClientRequired && c.ClientCA == "":
		return fault.InvalidField("client-required", "needs client-ca")
	}
	if _, err := ParsePrefixes("trusted-proxies", c.TrustedProxies); err != nil {
		return err
	}
	if c.MaxInFlight < 1 {
		return fault.InvalidField("max-in-flight", "must be at least 1, not %d", c.MaxInFlight)
	}
	if c.MaxHeaderBytes < 4<<10 || c.MaxHeaderBytes > 16<<20 {
		return fault.InvalidField("max-header-bytes", "must be between 4096 and 16777216, not %d", c.MaxHeaderBytes)
	}
	for _, t := range []struct {
		key string
		d   time.Duration
	}{
		{"drain-timeout", c.DrainTimeout},
		{"read-header-timeout", c.ReadHeaderTimeout},
		{"read-timeout", c.ReadTimeout},
		{"write-timeout", c.WriteTimeout},
		{"idle-timeout", c.IdleTimeout},
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
		return "", "", fault.InvalidField(
			"listen", "must be host:port, for example \"127.0.0.1:8080\" or \":8080\"; it is %q", listen,
		)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", "", fault.InvalidField("listen", "the port must be a number from 0 to 65535, not %q", port)
	}
	return host, port, nil
}
