package lb

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/session"
	"github.com/mainstay-infra/mainstay/service/lb/configfile"
)

// EnvPrefix is the prefix of the service's environment variables.
const EnvPrefix = "LB"

// Config holds the settings of the process. What to balance is in the document that ConfigFile
// names (package configfile).
type Config struct {
	ConfigFile    string `key:"config" help:"YAML document with interface, VIPs and BGP; it is loaded again when it changes and on SIGHUP."`
	Listen        string `key:"listen" help:"Address of the API, instead of the document's apiListen."`
	MetricsListen string `key:"metrics-listen" default:":9871" help:"Second address for /healthz, /readyz and /metrics, without TLS; empty: none."`

	APIKey         string   `key:"api-key" secret:"true" help:"Admin key, or several separated by commas, each KEY or id:NAME=KEY. Without keys and client certificates everybody may do everything."`
	APIReadonlyKey string   `key:"api-readonly-key" secret:"true" help:"Keys that may read but change nothing, in the same form. They need an admin key beside them."`
	TLSCert        string   `key:"tls-cert" help:"Certificate file to serve HTTPS with."`
	TLSKey         string   `key:"tls-key" help:"Key file of the certificate."`
	TLSSelfSigned  bool     `key:"tls-self-signed" help:"Serve HTTPS with a certificate made at start."`
	TLSClientCA    string   `key:"tls-client-ca" help:"Certificate file of the authority whose client certificates are accepted. Revocation is not checked."`
	ClientRequired bool     `key:"tls-client-required" help:"Turn away, at the handshake, callers without a verified client certificate."`
	CertAdminCNs   []string `key:"api-cert-admin-cns" help:"Common names of the client certificates that are admins; all others are read-only."`

	TrustedProxies []string `key:"trusted-proxies" help:"Addresses and networks of proxies whose Forwarded and X-Forwarded-For headers are believed."`

	Detach bool   `key:"detach" help:"Remove the program and everything it keeps in the kernel, and exit. Connections through this node end."`
	BPFDir string `key:"bpf-dir" default:"/sys/fs/bpf" help:"BPF file system, in which program and maps outlive the process."`

	OTLPEndpoint string               `key:"otlp-endpoint" env:"OTEL_EXPORTER_OTLP_ENDPOINT" help:"URL of an OpenTelemetry collector (OTLP over HTTP) to send traces to; none are made without it."`
	OIDC         session.SingleSignOn `prefix:"oidc"`

	AccessLog string `key:"access-log" default:"errors" help:"Requests to log: all, errors or off."`
	Workspace string `key:"workspace" help:"YAML document that lists the consoles of this installation, for the switcher: services, each with title and url."`
}

// maxInFlight is the maximum number of requests in flight.
const maxInFlight = 256

var errNoDocument = fault.InvalidField(
	"config",
	"is required: the document with interface and VIPs, for example --config /etc/mainstay/lb.yaml",
)

// Validate returns an error for invalid settings and for settings that contradict each other.
func (c *Config) Validate() error {
	if c.ConfigFile == "" {
		return errNoDocument
	}
	for key, listen := range map[string]string{"listen": c.Listen, "metrics-listen": c.MetricsListen} {
		if listen == "" {
			continue
		}
		if err := configfile.CheckListen(listen); err != nil {
			return fault.InvalidField(key, "%v", err)
		}
	}
	switch {
	case (c.TLSCert == "") != (c.TLSKey == ""):
		return fault.InvalidField("tls-key", "must be given together with tls-cert")
	case c.TLSSelfSigned && c.TLSCert != "":
		return fault.InvalidField("tls-self-signed", "cannot be combined with tls-cert")
	case c.TLSClientCA != "" && c.TLSCert == "" && !c.TLSSelfSigned:
		return fault.InvalidField("tls-client-ca", "needs TLS: set tls-cert and tls-key, or tls-self-signed")
	case c.ClientRequired && c.TLSClientCA == "":
		return fault.InvalidField(
			"tls-client-required", "needs tls-client-ca, the authority that signs client certificates",
		)
	case len(c.CertAdminCNs) > 0 && c.TLSClientCA == "":
		return fault.InvalidField(
			"api-cert-admin-cns", "needs tls-client-ca, the authority that signs client certificates",
		)
	}
	if _, err := httpserve.ParseLogMode(c.AccessLog); err != nil {
		return err
	}
	_, err := newGate(c, slog.New(slog.DiscardHandler))
	return err
}

// server returns the configuration of the API's HTTP server. apiListen is the address in the
// document, which Listen overrides.
func (c *Config) server(apiListen string) httpserve.Config {
	listen := c.Listen
	if listen == "" {
		listen = apiListen
	}
	return httpserve.Config{
		Listen:         listen,
		TLSCert:        c.TLSCert,
		TLSKey:         c.TLSKey,
		SelfSigned:     c.TLSSelfSigned,
		ClientCA:       c.TLSClientCA,
		ClientRequired: c.ClientRequired,
		MaxInFlight:    maxInFlight,
		TrustedProxies: c.TrustedProxies,
	}
}

// names returns the names by which clients may address this node.
func (c *Config) names() []string {
	var names []string
	if name, err := os.Hostname(); err == nil {
		names = append(names, name)
	}
	if host, _, err := net.SplitHostPort(c.Listen); err == nil {
		names = append(names, host)
	}
	return names
}

// settingOf replaces the HTTP server's setting names in faults by those of this service.
func settingOf(err error) error {
	f := (*fault.Error)(nil)
	if errors.As(err, &f) && f.Field == "client-ca" {
		return fault.InvalidField("tls-client-ca", "%s", strings.TrimPrefix(f.Message, "client-ca: "))
	}
	return err
}

// readDocument reads the document that ConfigFile names.
func readDocument(c Config) (*configfile.Config, error) {
	if c.ConfigFile == "" {
		return nil, errNoDocument
	}
	return configfile.Load(c.ConfigFile)
}
