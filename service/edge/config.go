package edge

import (
	"time"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/config"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/session"
)

// EnvPrefix is the prefix of the service's environment variables.
const EnvPrefix = "EDGE"

// Config holds the service's settings. Each can be set by flag, environment variable or file, as
// the tags say. The table in the documentation is generated from the tags.
type Config struct {
	Listen     string `key:"listen" default:"127.0.0.1:8080" help:"Address to serve HTTP on."`
	Data       string `key:"data" default:".mainstay/edge" help:"Folder for the database, the certificate authority and the secret key."`
	Database   string `key:"database" env:"MAINSTAY_DATABASE_URL" secret:"true" help:"PostgreSQL URL. Without one, SQLite in the data folder."`
	TLSCert    string `key:"tls-cert" help:"Certificate file to serve HTTPS with."`
	TLSKey     string `key:"tls-key" help:"Key file of the certificate."`
	ClientCA   string `key:"client-ca" help:"Certificate file of the authority whose client certificates are accepted."`
	SelfSigned bool   `key:"tls-self-signed" default:"false" help:"Serve HTTPS with a certificate made at start."`

	AdminUsername     string `key:"admin-username" help:"Name of the operator who may log in with a password."`
	AdminPassword     string `key:"admin-password" secret:"true" help:"The operator's password."`
	AdminToken        string `key:"admin-token" secret:"true" help:"Global admin token."`
	ViewerToken       string `key:"viewer-token" secret:"true" help:"Global viewer token."`
	EnrollmentToken   string `key:"enrollment-token" secret:"true" help:"Token that enrolls sites without an org."`
	SecretKey         string `key:"secret-key" secret:"true" help:"Key that protects stored secrets and signs the audit log. Replicas must share it; without one it is made and kept in the data folder."`
	AcceptedSecretKey string `key:"accepted-secret-key" secret:"true" help:"A second secret key that is accepted while keys are rotated: the one before, or the next one."`

	AuditCheckpoints      string `key:"audit-checkpoints" help:"File for signed checkpoints of the audit log, best on other storage than the database's. Each replica has its own. Default: audit-checkpoints.jsonl in the data folder."`
	AuditCheckpointURL    string `key:"audit-checkpoint-url" help:"URL that checkpoints of the audit log are sent to, at most one a minute, as Standard Webhooks."`
	AuditCheckpointSecret string `key:"audit-checkpoint-secret" secret:"true" help:"Secret (whsec_...) that signs what is sent to audit-checkpoint-url."`

	ReplaceLostKeys bool `key:"replace-lost-keys" default:"false" help:"Start although the secret key or the certificate authority is not the one that the database was made with. Routes whose secrets cannot be read any more are disabled."`

	HeartbeatInterval time.Duration `key:"heartbeat-interval" default:"30s" min:"1s" max:"1h" help:"How often agents report; after three missed reports a site is offline."`
	PKI               bool          `key:"pki" default:"true" help:"Run the embedded certificate authority."`
	PKIDir            string        `key:"pki-dir" help:"Folder of the certificate authority; replicas must share it. Default: pki in the data folder."`

	RetentionAge        time.Duration `key:"retention-age" default:"168h" min:"1m" help:"How long events are kept."`
	RetentionSize       config.Bytes  `key:"retention-size" default:"10GiB" min:"1MiB" help:"How much room events may take; beyond it the oldest go."`
	MaxBacklog          int64         `key:"max-backlog" default:"1000000" min:"1" help:"Pending deliveries beyond which events are refused with 503."`
	DeliveryConcurrency int           `key:"delivery-concurrency" default:"16" min:"1" max:"1024" help:"Requests under way to one route's target."`
	AllowPrivateTargets bool          `key:"allow-private-targets" env:"MAINSTAY_ALLOW_PRIVATE_TARGETS" default:"false" help:"Let routes reach loopback, link-local and private addresses."`
	AlertDeadLetters    int64         `key:"alert-deadletters" default:"100" min:"1" help:"Dead letters of one route that raise an alert."`

	TrustedProxies           []string `key:"trusted-proxies" help:"Addresses and networks of proxies whose Forwarded and X-Forwarded-For headers are believed."`
	MaxConnectionsPerAddress int      `key:"max-connections-per-address" default:"8192" min:"1" help:"Connections that one address may keep open; trusted proxies may keep more."`

	MaxInFlight  int    `key:"max-in-flight" default:"2048" min:"1" help:"Requests served at once; more get 503."`
	OTLPEndpoint string `key:"otlp-endpoint" env:"OTEL_EXPORTER_OTLP_ENDPOINT" help:"URL of an OpenTelemetry collector (OTLP over HTTP) to send traces to; none are made without it."`
	AccessLog    string `key:"access-log" default:"errors" help:"Requests to log: all, errors or off."`
	Workspace    string `key:"workspace" help:"YAML document that lists the consoles of this installation, for the switcher: services, each with title and url."`

	OIDC session.SingleSignOn `prefix:"oidc"`
}

// Validate returns an error for invalid settings and for settings that contradict each other.
func (c *Config) Validate() error {
	if (c.AdminUsername == "") != (c.AdminPassword == "") {
		return fault.InvalidField("admin-password", "must be given together with admin-username")
	}
	if c.AdminPassword != "" && len(c.AdminPassword) < minAdminPassword {
		return fault.InvalidField(
			"admin-password", "must have at least %d characters, since shorter ones can be guessed", minAdminPassword,
		)
	}
	if _, err := c.checkTokens(); err != nil {
		return err
	}
	if _, err := httpserve.ParseLogMode(c.AccessLog); err != nil {
		return err
	}
	return c.server().Validate()
}

// minAdminPassword is the minimum length of the admin password in bytes.
const minAdminPassword = 8

// checkTokens returns an error for an invalid configured token, and warnings for short ones.
func (c *Config) checkTokens() (warnings []string, err error) {
	for _, t := range []struct{ field, token string }{
		{"admin-token", c.AdminToken}, {"viewer-token", c.ViewerToken}, {"enrollment-token", c.EnrollmentToken},
	} {
		if t.token == "" {
			continue
		}
		warning, err := auth.CheckToken(t.field, t.token)
		if err != nil {
			return nil, err
		}
		if warning != "" {
			warnings = append(warnings, warning)
		}
	}
	return warnings, nil
}

func (c *Config) server() httpserve.Config {
	server := httpserve.Config{
		Listen:                   c.Listen,
		TLSCert:                  c.TLSCert,
		TLSKey:                   c.TLSKey,
		ClientCA:                 c.ClientCA,
		SelfSigned:               c.SelfSigned,
		MaxInFlight:              c.MaxInFlight,
		TrustedProxies:           c.TrustedProxies,
		MaxConnectionsPerAddress: c.MaxConnectionsPerAddress,
	}
	server.Defaults()
	return server
}
