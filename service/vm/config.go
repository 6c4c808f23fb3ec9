package vm

import (
	"cmp"
	"path/filepath"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/service/vm/backup"
	"github.com/mainstay-infra/mainstay/service/vm/dataplane"
)

// EnvPrefix precedes the names of the service's environment variables.
const EnvPrefix = "VM"

// Config holds the service's settings. The table in the documentation is generated from the tags.
type Config struct {
	Listen   string `key:"listen" default:"127.0.0.1:3000" help:"Address to serve HTTP on."`
	Data     string `key:"data" default:".mainstay/vm" help:"Folder for the database and the secret keys."`
	Database string `key:"database" env:"MAINSTAY_DATABASE_URL" secret:"true" help:"PostgreSQL URL. Without one, SQLite in the data folder."`

	HypervisorURL   string        `key:"hypervisor-url" default:"http://127.0.0.1:7070" help:"URL of the hypervisor daemon, or of the registry of a fleet."`
	HypervisorToken string        `key:"hypervisor-token" secret:"true" help:"Token of an admin at the hypervisor daemon."`
	HypervisorCA    string        `key:"hypervisor-ca" help:"Certificate file of an authority that the hypervisor daemon is verified with, beside the host's."`
	CompareInterval time.Duration `key:"compare-interval" default:"1m" min:"100ms" max:"1h" help:"How often all VMs are compared with what the hypervisor daemon tells, beside following its events."`
	Fleet           bool          `key:"fleet" default:"false" help:"hypervisor-url is the registry of a fleet, which places VMs on its hosts."`
	HostAddresses   []string      `key:"host-addresses" default:"10.87.0.1" help:"Addresses and networks by which VMs see their hosts: the entity host of network policies."`

	Auth            string `key:"auth" default:"local" help:"Who checks passwords: local (users of this service), pam (accounts of the host), or both, separated by a comma."`
	PAMSocket       string `key:"pam-socket" default:"/run/mainstay/pam.sock" help:"Socket of mainstay-pam, which asks the host about accounts."`
	PAMProgram      string `key:"pam-program" help:"Program mainstay-pam, which a service that runs as root starts for each login, instead of asking the socket."`
	PAMService      string `key:"pam-service" default:"mainstay" help:"PAM service, a file in /etc/pam.d."`
	AdminUsername   string `key:"admin-username" help:"Name of a local admin that is added at the start if there is no such user."`
	AdminPassword   string `key:"admin-password" secret:"true" help:"The password of admin-username when it is added."`
	JWTSecret       string `key:"jwt-secret" secret:"true" help:"Secret that signs tokens, at least 32 bytes; replicas must share it. Without one it is derived from the secret key."`
	ExpirationHours int    `key:"expiration-hours" default:"24" min:"0" max:"8760" help:"How long tokens are valid, in hours; at least one."`

	BackupRepository   string        `key:"backup-repository" help:"Where backups are kept: a folder, or a bucket as s3+https://HOST/BUCKET/PREFIX. Default: backups in the data folder."`
	BackupKeyFile      string        `key:"backup-key-file" help:"File with the age identity that opens the backup repository. It is made with the repository; keep a copy elsewhere. Default: backup.key in the data folder."`
	BackupPassphrase   string        `key:"backup-passphrase" secret:"true" help:"A passphrase that opens the backup repository, too. It is set when the repository is made."`
	BackupAccessKey    string        `key:"backup-access-key" help:"Access key of the bucket."`
	BackupSecretKey    string        `key:"backup-secret-key" secret:"true" help:"Secret key of the bucket."`
	BackupRegion       string        `key:"backup-region" default:"us-east-1" help:"Region of the bucket."`
	BackupCA           string        `key:"backup-ca" help:"Certificate file of authorities that the bucket's service is verified with, instead of the host's."`
	BackupBootInterval time.Duration `key:"backup-boot-interval" default:"168h" min:"0s" max:"8760h" help:"How often one backup is booted, without a network, to see that its guest's agent answers; 0s is never."`
	HelperImage        string        `key:"helper-image" default:"demo" help:"Image in the hypervisor daemon's catalog whose VMs read the files in backups; 'mainstay image build-demo' makes it."`

	ImageFolder          string        `key:"image-folder" help:"Folder in which images are made, which all accounts can reach. Default: a folder of this service in /var/tmp."`
	ImageBuilds          int           `key:"image-builds" default:"1" min:"1" max:"16" help:"How many images are built at once. Four others are downloaded or imported beside them."`
	ImageMaxGiB          int           `key:"image-max-gib" default:"20" min:"2" max:"2000" help:"The largest image, in GiB, by its disk and by its file."`
	ImageMaxTime         time.Duration `key:"image-max-time" default:"2h" min:"1s" max:"48h" help:"How long it may take to make an image."`
	ImagePackageMirrors  []string      `key:"image-package-mirrors" help:"Mirrors for packages of built images, as debian=URL; debian-security=URL is that of its corrections."`
	ImageDownloadMirrors []string      `key:"image-download-mirrors" help:"Mirrors for downloaded images, as debian=URL; debian-iso=URL is that of its installers."`
	ImageDownloadPrivate bool          `key:"image-download-private" default:"false" help:"Let downloads of images reach loopback, link-local and private addresses, for mirrors inside the network."`
	ImageImportFolders   []string      `key:"image-import-folders" help:"Folders of this host from which admins may import images. Without one, nobody may."`
	GuestAgent           string        `key:"guest-agent" help:"The guest agent's program, for built images. Default: mainstay-guest beside this program."`

	AllowPrivateTargets bool `key:"allow-private-targets" default:"false" help:"Let webhooks reach loopback, link-local and private addresses."`

	SecretKey         string `key:"secret-key" secret:"true" help:"Key that protects stored secrets and signs the audit log. Replicas must share it; without one it is made and kept in the data folder."`
	AcceptedSecretKey string `key:"accepted-secret-key" secret:"true" help:"A second secret key that is accepted while keys are rotated: the one before, or the next one."`
	ReplaceLostKeys   bool   `key:"replace-lost-keys" default:"false" help:"Start although the secret key is not the one that the database was made with. Second factors have to be set up again."`

	AuditCheckpoints      string `key:"audit-checkpoints" help:"File for signed checkpoints of the audit log, best on other storage than the database's. Each replica has its own. Default: audit-checkpoints.jsonl in the data folder."`
	AuditCheckpointURL    string `key:"audit-checkpoint-url" help:"URL that checkpoints of the audit log are sent to, at most one a minute, as Standard Webhooks."`
	AuditCheckpointSecret string `key:"audit-checkpoint-secret" secret:"true" help:"Secret (whsec_...) that signs what is sent to audit-checkpoint-url."`

	TLSCert       string `key:"tls-cert" help:"Certificate file to serve HTTPS with."`
	TLSKey        string `key:"tls-key" help:"Key file of the certificate."`
	TLSSelfSigned bool   `key:"tls-self-signed" default:"false" help:"Serve HTTPS with a certificate made at start."`

	TrustedProxies           []string `key:"trusted-proxies" help:"Addresses and networks of proxies whose Forwarded and X-Forwarded-For headers are believed."`
	MaxConnectionsPerAddress int      `key:"max-connections-per-address" default:"2048" min:"1" help:"Connections that one address may keep open; trusted proxies may keep more."`
	MaxInFlight              int      `key:"max-in-flight" default:"1024" min:"1" help:"Requests served at once; more get 503."`
	OTLPEndpoint             string   `key:"otlp-endpoint" env:"OTEL_EXPORTER_OTLP_ENDPOINT" help:"URL of an OpenTelemetry collector (OTLP over HTTP) to send traces to; none are made without it."`
	AccessLog                string   `key:"access-log" default:"errors" help:"Requests to log: all, errors or off."`
	Workspace                string   `key:"workspace" help:"YAML document that lists the consoles of this installation, for the switcher: services, each with title and url."`
}

// minLife is the shortest life of a token. A lower setting is raised to it.
const minLife = time.Hour

func (c *Config) tokenLife() time.Duration {
	return max(minLife, time.Duration(c.ExpirationHours)*time.Hour)
}

// Validate returns an error for invalid settings and for settings that contradict each other.
func (c *Config) Validate() error {
	if (c.AdminUsername == "") != (c.AdminPassword == "") {
		return fault.InvalidField("admin-password", "must be given together with admin-username")
	}
	if _, err := dataplane.ParseHosts(c.HostAddresses); err != nil {
		return err
	}
	if err := c.validateImages(); err != nil {
		return err
	}
	if _, err := httpserve.ParseLogMode(c.AccessLog); err != nil {
		return err
	}
	return c.server().Validate()
}

// repository returns where the backup repository is.
// absolute makes the folders in the settings absolute: people who do not see everything are shown messages
// without paths, which only absolute ones are known to be.
func (c *Config) absolute() (err error) {
	folders := []*string{&c.Data, &c.ImageFolder}
	if !strings.Contains(c.BackupRepository, "://") {
		folders = append(folders, &c.BackupRepository)
	}
	for _, folder := range folders {
		if *folder == "" {
			continue
		}
		if *folder, err = filepath.Abs(*folder); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) repository() backup.Location {
	return backup.Location{
		URL:       cmp.Or(c.BackupRepository, filepath.Join(c.Data, "backups")),
		KeyFile:   cmp.Or(c.BackupKeyFile, filepath.Join(c.Data, "backup.key")),
		AccessKey: c.BackupAccessKey, SecretKey: c.BackupSecretKey, Region: c.BackupRegion, CAFile: c.BackupCA,
		Passphrase: c.BackupPassphrase, Data: c.Data,
	}
}

func (c *Config) server() httpserve.Config {
	server := httpserve.Config{
		Listen: c.Listen, TLSCert: c.TLSCert, TLSKey: c.TLSKey, SelfSigned: c.TLSSelfSigned, MaxInFlight: c.MaxInFlight,
		TrustedProxies: c.TrustedProxies, MaxConnectionsPerAddress: c.MaxConnectionsPerAddress,
	}
	server.Defaults()
	return server
}
