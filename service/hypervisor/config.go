package hypervisor

import (
	"cmp"
	"net"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/service/hypervisor/configfile"
	"github.com/mainstay-infra/mainstay/service/hypervisor/httpapi"
)

// EnvPrefix precedes the names of the service's environment variables.
const EnvPrefix = "HYPERVISOR"

// Config holds the settings of the process. Policy, callers, confinement and networks are in the
// document that ConfigFile names (package configfile).
type Config struct {
	ConfigFile string `key:"config" help:"TOML document with policy, callers, confinement, storage and networks."`
	Listen     string `key:"listen" default:"127.0.0.1:7070" help:"Address of the API."`
	Data       string `key:"data" default:".mainstay/hypervisor" help:"Folder for VMs, images, backups and the database."`

	Token             string `key:"token" secret:"true" help:"Bearer token of an admin. Further ones stand in the document. Without any credentials everybody is an admin, and the daemon listens on loopback addresses only."`
	Insecure          bool   `key:"insecure" help:"Start without any credentials on an address that others reach: everybody there is an admin."`
	SecretKey         string `key:"secret-key" secret:"true" help:"Key that protects the secrets of guests and signs the audit log; without one it is made and kept in the data folder."`
	AcceptedSecretKey string `key:"accepted-secret-key" secret:"true" help:"A second secret key that is accepted while keys are rotated: the one before, or the next one."`

	AuditCheckpoints      string `key:"audit-checkpoints" help:"File for signed checkpoints of the audit log, best on other storage than the database's. Default: audit-checkpoints.jsonl in the data folder."`
	AuditCheckpointURL    string `key:"audit-checkpoint-url" help:"URL that checkpoints of the audit log are sent to, at most one a minute, as Standard Webhooks."`
	AuditCheckpointSecret string `key:"audit-checkpoint-secret" secret:"true" help:"Secret (whsec_...) that signs what is sent to audit-checkpoint-url."`

	ReplaceLostKeys bool `key:"replace-lost-keys" default:"false" help:"Start although the secret key is not the one that the database was made with. Agents of VMs made before cannot be reached any more."`

	TLSCert       string `key:"tls-cert" help:"Certificate file to serve HTTPS with."`
	TLSKey        string `key:"tls-key" help:"Key file of the certificate."`
	TLSSelfSigned bool   `key:"tls-self-signed" help:"Serve HTTPS with a certificate made at start."`
	TLSClientCA   string `key:"tls-client-ca" help:"Certificate file of the authority whose client certificates are accepted."`

	QEMU                    string `key:"qemu" default:"qemu-system-x86_64" help:"QEMU's program."`
	Accel                   string `key:"accel" default:"auto" help:"auto, kvm or tcg. auto boots a small guest once to find out whether KVM works."`
	Runsc                   string `key:"runsc" default:"runsc" help:"gVisor's program, for sandboxes."`
	Firecracker             string `key:"firecracker" default:"firecracker" help:"Firecracker's program."`
	CloudHypervisor         string `key:"cloud-hypervisor" default:"cloud-hypervisor" help:"Cloud Hypervisor's program."`
	CloudHypervisorFirmware string `key:"cloud-hypervisor-firmware" help:"Firmware with which Cloud Hypervisor boots disks (CLOUDHV.fd)."`

	GuestAgent string        `key:"guest-agent" help:"The guest agent's program, for guests that get it from the daemon. Default: mainstay-guest beside this program."`
	StopGrace  time.Duration `key:"stop-grace" default:"30s" min:"0s" max:"1h" help:"How long a guest has to shut down unless the request says otherwise."`

	NodeName          string        `key:"node-name" help:"This host's name in the fleet. Default: the host name."`
	Registry          string        `key:"registry" help:"URL of the daemon that is the fleet's registry; without it this host is in no fleet."`
	Advertise         string        `key:"advertise" help:"URL at which the registry reaches this daemon. Required if the registry is on another host and this daemon listens on a loopback address or on all. Default: the address it listens on."`
	FleetToken        string        `key:"fleet-token" secret:"true" help:"Token that the daemons of a fleet show each other; the same on all of them."`
	FleetCA           string        `key:"fleet-ca" help:"Certificate file of an authority that the daemons of the fleet are verified with, beside the host's."`
	NodeLabels        []string      `key:"node-labels" help:"Labels of this host, KEY=VALUE."`
	NodeVCPUs         int           `key:"node-vcpus" default:"0" min:"0" max:"1000000" help:"Processors that the fleet may give to VMs of this host; 0: as many as it has. More lets VMs share them."`
	NodeMemoryMiB     int           `key:"node-memory-mib" default:"0" min:"0" help:"Memory that the fleet may give to VMs of this host, in MiB; 0: as much as it has."`
	HeartbeatInterval time.Duration `key:"heartbeat-interval" default:"10s" min:"100ms" max:"10m" help:"How often hosts report; after three missed reports a host is unhealthy. The same on all of them."`

	TrustedProxies []string `key:"trusted-proxies" help:"Addresses and networks of proxies whose Forwarded and X-Forwarded-For headers are believed."`

	SignOn SignOn `prefix:"oidc"`

	MaxInFlight  int    `key:"max-in-flight" default:"1024" min:"1" help:"Requests served at once; more get 503."`
	OTLPEndpoint string `key:"otlp-endpoint" env:"OTEL_EXPORTER_OTLP_ENDPOINT" help:"URL of an OpenTelemetry collector (OTLP over HTTP) to send traces to; none are made without it."`
	AccessLog    string `key:"access-log" default:"errors" help:"Requests to log: all, errors or off."`
	Workspace    string `key:"workspace" help:"YAML document that lists the consoles of this installation, for the switcher: services, each with title and url."`
}

// SignOn holds the settings of the console's single sign-on, at the OIDC provider that the document
// names. It is enabled if ClientID is set.
type SignOn struct {
	ClientID     string `key:"client-id" help:"Client id of the console at the OIDC provider of the document; turns single sign-on on."`
	ClientSecret string `key:"client-secret" secret:"true" help:"Client secret at the provider."`
	RedirectURL  string `key:"redirect-url" help:"The daemon's callback as the browser sees it, ending in /console/oidc/callback."`
}

var validNodeName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

// Validate reports settings that contradict each other and fills in settings derived from others.
func (c *Config) Validate(doc *configfile.Config) error {
	switch c.Accel {
	case "auto", "kvm", "tcg":
	default:
		return fault.InvalidField("accel", "must be auto, kvm or tcg")
	}
	if c.NodeName == "" {
		name, err := os.Hostname()
		if err != nil {
			return fault.Wrap(fault.Invalid, err, "node-name: the host has no name; give one")
		}
		c.NodeName = name
	}
	if !validNodeName.MatchString(c.NodeName) {
		return fault.InvalidField("node-name", "must be 1 to 63 letters, digits, dots, dashes and underscores")
	}
	for key, u := range map[string]string{"registry": c.Registry, "advertise": c.Advertise} {
		if u == "" {
			continue
		}
		if parsed, err := url.Parse(u); err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" ||
			parsed.Host == "" {
			return fault.InvalidField(key, "must be a URL such as https://registry.example.com:7070")
		}
	}
	if err := c.checkAdvertised(); err != nil {
		return err
	}
	if _, err := c.labels(); err != nil {
		return err
	}
	if _, err := httpserve.ParseLogMode(c.AccessLog); err != nil {
		return err
	}
	if len(doc.Auth.ClientCertificates) > 0 && c.TLSClientCA == "" {
		return fault.InvalidField("tls-client-ca", "is needed by auth.client_certificates of the document")
	}
	for key, token := range map[string]string{"token": c.Token, "fleet-token": c.FleetToken} {
		if token == "" {
			continue
		}
		if _, err := auth.CheckToken(key, token); err != nil {
			return err
		}
	}
	if c.SignOn.ClientID != "" && doc.Auth.OIDC.Issuer == "" {
		return fault.InvalidField("oidc-client-id", "needs auth.oidc in the document, which names the provider")
	}
	if err := c.checkRequired(doc); err != nil {
		return err
	}
	server := c.server()
	if err := server.Validate(); err != nil {
		return err
	}
	if c.exposed(doc) && !c.Insecure {
		return fault.New(
			fault.Invalid,
			"listen: others reach %s, and without credentials each of them would be an admin: set HYPERVISOR_TOKEN or HYPERVISOR_TOKEN_FILE, or give auth.tokens, auth.oidc or auth.client_certificates in the document; or listen on 127.0.0.1; --insecure starts all the same",
			c.Listen,
		)
	}
	return nil
}

// checkAdvertised refuses to tell a registry on another host a URL that leads back to the registry's
// own host. Requests for this host would reach whatever listens there.
func (c *Config) checkAdvertised() error {
	if !c.registryIsRemote() {
		return nil
	}
	host, _, _ := net.SplitHostPort(c.Listen) // it is checked elsewhere
	if u, err := url.Parse(c.Advertise); err == nil && c.Advertise != "" {
		host = u.Hostname()
	}
	if addr, err := netip.ParseAddr(host); host == "" || isLoopback(host) || err == nil && addr.IsUnspecified() {
		return fault.InvalidField(
			"advertise",
			"must be a URL at which the registry at %s reaches this daemon, such as http://192.0.2.10:7070; %s leads to its own host",
			c.Registry, cmp.Or(c.Advertise, "the address that this daemon listens on, "+c.Listen+","),
		)
	}
	return nil
}

// registryIsRemote reports whether the registry is on another host.
func (c *Config) registryIsRemote() bool {
	u, err := url.Parse(c.Registry)
	return err == nil && c.Registry != "" && !isLoopback(u.Hostname())
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// exposed reports whether anyone who reaches the daemon from another host is an admin.
func (c *Config) exposed(doc *configfile.Config) bool {
	return !c.server().Local() && httpapi.NewGate(c.credentials(doc), time.Now).Open()
}

// warnings returns warnings about credentials that are accepted but weak.
func (c *Config) warnings(doc *configfile.Config) []string {
	all := slices.Clone(doc.Warnings)
	for key, token := range map[string]string{"token": c.Token, "fleet-token": c.FleetToken} {
		if warning, err := auth.CheckToken(key, token); err == nil && warning != "" {
			all = append(all, warning)
		}
	}
	if c.registryIsRemote() && c.FleetToken != "" && strings.HasPrefix(c.Registry, "http://") {
		all = append(all, "fleet-token: it gives an admin's rights on every host, and crosses the network unencrypted; "+
			"use https for the registry and the hosts (--tls-cert, --fleet-ca)")
	}
	return all
}

// checkRequired enforces auth.require: credentials must be configured, and VMs must be confined
// unless the daemon listens on loopback.
func (c *Config) checkRequired(doc *configfile.Config) error {
	if !doc.Auth.Require {
		return nil
	}
	if httpapi.NewGate(c.credentials(doc), time.Now).Open() {
		return fault.New(
			fault.Invalid,
			"auth.require: there are no credentials: give HYPERVISOR_TOKEN, or auth.tokens, auth.oidc or auth.client_certificates in the document",
		)
	}
	if !c.server().Local() && !doc.Jailer.Enabled {
		return fault.New(
			fault.Invalid,
			"auth.require: listening on %s, which others reach, demands that VMs are confined: set jailer.enabled = true in the document, or listen on loopback",
			c.Listen,
		)
	}
	return nil
}

// credentials returns the credentials that callers can present.
func (c *Config) credentials(doc *configfile.Config) httpapi.Credentials {
	return httpapi.Credentials{Token: c.Token, FleetToken: c.FleetToken, Document: &doc.Auth, Names: c.names()}
}

// names returns the host names by which clients address this host.
func (c *Config) names() []string {
	names := []string{c.NodeName}
	if name, err := os.Hostname(); err == nil {
		names = append(names, name)
	}
	if host, _, err := net.SplitHostPort(c.Listen); err == nil {
		names = append(names, host)
	}
	if u, err := url.Parse(c.Advertise); err == nil {
		names = append(names, u.Hostname())
	}
	return names
}

func (c *Config) labels() (map[string]string, error) {
	labels := map[string]string{}
	for _, l := range c.NodeLabels {
		key, value, ok := strings.Cut(l, "=")
		if !ok || key == "" || len(value) > 63 {
			return nil, fault.InvalidField("node-labels", "%q is not of the form KEY=VALUE", l)
		}
		labels[key] = value
	}
	return labels, nil
}

func (c *Config) server() httpserve.Config {
	server := httpserve.Config{
		Listen:         c.Listen,
		TLSCert:        c.TLSCert,
		TLSKey:         c.TLSKey,
		SelfSigned:     c.TLSSelfSigned,
		ClientCA:       c.TLSClientCA,
		MaxInFlight:    c.MaxInFlight,
		TrustedProxies: c.TrustedProxies,
	}
	server.Defaults()
	return server
}
