package storage

import (
	"path/filepath"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/service/storage/monitor"
)

// EnvPrefix precedes the names of the service's environment variables.
const EnvPrefix = "STORE"

// Config holds the service's settings. The table in the documentation is generated from the tags.
type Config struct {
	Listen   string `key:"listen" default:"127.0.0.1:5110" help:"Address to serve HTTP on."`
	GRPCAddr string `key:"grpc-addr" default:"127.0.0.1:5111" help:"Address to serve gRPC on, with the certificate of HTTP. Empty or off: none."`
	Data     string `key:"data" default:".mainstay/storage" help:"Folder for the database, the secret keys and the volumes of the backend local."`
	Database string `key:"database" env:"MAINSTAY_DATABASE_URL" secret:"true" help:"PostgreSQL URL. Without one, SQLite in the data folder."`

	Directories []string `key:"directories" help:"Folders of this host that backends of the type nfs keep volumes in, as NAME=PATH. Default: local, the folder volumes in the data folder."`

	ZFSDatasets []string `key:"zfs-datasets" help:"ZFS datasets of this host that backends of the type zfs keep volumes in, as NAME=POOL/DATASET. They exist."`

	KubernetesClusters []string `key:"kubernetes-clusters" help:"Clusters that backends of the type kubernetes keep volumes in, as NAME=[NAMESPACE@]PATH: the path of a kubeconfig, and the namespace of the claims, which exists; that of the kubeconfig without one."`

	Inventories []string `key:"inventories" help:"Files that tell what backends of the types san and cloud_block have, as NAME=PATH. They are YAML or JSON, and read at each discovery."`

	CephClusters []string `key:"ceph-clusters" help:"Clusters that backends of the type ceph use, as NAME=[USER@]PATH: the path of a ceph.conf that names the keyring, and the client, admin without one."`
	CephProgram  string   `key:"ceph-program" help:"Program mainstay-ceph, which speaks to Ceph. Default: the one beside this program, or in PATH."`

	ObjectGateways []string `key:"object-gateways" help:"Object gateways of these clusters (RGW), as NAME=PATH, with the same names: the path of a JSON file with endpoint, access_key and secret_key, and if needed region and ca_file."`
	S3Buckets      []string `key:"s3-buckets" help:"Buckets of any S3 service that can be taken in, as NAME=PATH: a file like those of object-gateways that names the bucket, too."`
	BackupKeys     []string `key:"backup-keys" help:"Keys that backups can be encrypted with, as NAME=PATH: the path of a file with a key of age, which mainstay storage backup keygen makes."`

	MirrorPeers []string `key:"mirror-peers" help:"Clusters that volumes can be mirrored to, as NAME=PATH: the path of a file with the token that rbd mirror pool peer bootstrap create prints there."`

	MonitorInterval    int    `key:"monitor-interval-secs" default:"60" min:"1" max:"3600" help:"How often the conditions of alerts are checked, in seconds."`
	AlertWebhookURL    string `key:"alert-webhook-url" help:"URL that is told about alerts that open and resolve, as Standard Webhooks."`
	AlertWebhookSecret string `key:"alert-webhook-secret" secret:"true" help:"Secret (whsec_...) that signs what is sent to alert-webhook-url."`

	AuthRequired bool   `key:"auth-required" default:"false" help:"Require tokens. Without it everybody is the admin anonymous, and the service listens on loopback only."`
	JWTSecret    string `key:"jwt-secret" secret:"true" help:"Secret that tokens are signed with, at least 32 bytes; replicas must share it. Without one it is derived from the secret key."`

	SecretKey         string `key:"secret-key" secret:"true" help:"Key that protects stored secrets and signs the audit log. Replicas must share it; without one it is made and kept in the data folder."`
	AcceptedSecretKey string `key:"accepted-secret-key" secret:"true" help:"A second secret key that is accepted while keys are rotated: the one before, or the next one."`
	ReplaceLostKeys   bool   `key:"replace-lost-keys" default:"false" help:"Start although the secret key is not the one that the database was made with."`

	AuditCheckpoints      string `key:"audit-checkpoints" help:"File for signed checkpoints of the audit log, best on other storage than the database's. Each replica has its own. Default: audit-checkpoints.jsonl in the data folder."`
	AuditCheckpointURL    string `key:"audit-checkpoint-url" help:"URL that checkpoints of the audit log are sent to, at most one a minute, as Standard Webhooks."`
	AuditCheckpointSecret string `key:"audit-checkpoint-secret" secret:"true" help:"Secret (whsec_...) that signs what is sent to audit-checkpoint-url."`

	Workspace string `key:"workspace" help:"YAML document that lists the consoles of this installation, for the switcher: services, each with title and url."`

	TLSCert       string `key:"tls-cert" help:"Certificate file to serve HTTPS with."`
	TLSKey        string `key:"tls-key" help:"Key file of the certificate."`
	TLSSelfSigned bool   `key:"tls-self-signed" default:"false" help:"Serve HTTPS with a certificate made at start."`

	TrustedProxies           []string `key:"trusted-proxies" help:"Addresses and networks of proxies whose Forwarded and X-Forwarded-For headers are believed."`
	MaxConnectionsPerAddress int      `key:"max-connections-per-address" default:"2048" min:"1" help:"Connections that one address may keep open; trusted proxies may keep more."`
	MaxInFlight              int      `key:"max-in-flight" default:"1024" min:"1" help:"Requests served at once; more get 503."`
	AccessLog                string   `key:"access-log" default:"errors" help:"Requests to log: all, errors or off."`
}

// LocalBackend is the name of the backend that a new installation has: a folder in its data folder.
const LocalBackend = "local"

// Validate returns an error for invalid settings and for settings that contradict each other.
func (c *Config) Validate() error {
	if _, err := c.folders(); err != nil {
		return err
	}
	if _, err := parseDatasets(c.ZFSDatasets); err != nil {
		return err
	}
	if _, err := parseKubernetes(c.KubernetesClusters); err != nil {
		return err
	}
	if _, err := parsePaths("inventories", c.Inventories); err != nil {
		return err
	}
	if _, err := parseClusters(c.CephClusters); err != nil {
		return err
	}
	if _, err := parsePaths("object-gateways", c.ObjectGateways); err != nil {
		return err
	}
	if _, err := parsePaths("s3-buckets", c.S3Buckets); err != nil {
		return err
	}
	if _, err := parsePaths("backup-keys", c.BackupKeys); err != nil {
		return err
	}
	if _, err := parsePaths("mirror-peers", c.MirrorPeers); err != nil {
		return err
	}
	if err := monitor.CheckWebhook(c.AlertWebhookURL, c.AlertWebhookSecret); err != nil {
		return err
	}
	if _, err := httpserve.ParseLogMode(c.AccessLog); err != nil {
		return err
	}
	if server := c.server(); !c.AuthRequired && !server.Local() {
		return fault.InvalidField("listen", "%s is not on loopback only, and nobody would be asked for credentials: "+
			"set auth-required", c.Listen)
	}
	if server := c.grpcServer(); c.servesGRPC() {
		if !c.AuthRequired && !server.Local() {
			return fault.InvalidField("grpc-addr", "%s is not on loopback only, and nobody would be asked for credentials: "+
				"set auth-required", c.GRPCAddr)
		}
		if err := server.Validate(); err != nil {
			return asGRPCAddr(err)
		}
	}
	server := c.server()
	return server.Validate()
}

// servesGRPC reports whether the service listens for gRPC.
func (c *Config) servesGRPC() bool { return c.GRPCAddr != "" && c.GRPCAddr != "off" }

// grpcServer returns the settings of the gRPC server.
func (c *Config) grpcServer() httpserve.Config {
	server := c.server()
	server.Listen = c.GRPCAddr
	return server
}

// asGRPCAddr has an error about the address name the setting that the gRPC server's is in.
func asGRPCAddr(err error) error {
	f := fault.From(err)
	if f.Field != "listen" {
		return err
	}
	return fault.InvalidField("grpc-addr", "%s", strings.TrimPrefix(f.Message, "listen: "))
}

// folders returns the folders of the backends of type nfs, by the name of their entry.
func (c *Config) folders() (map[string]string, error) {
	if len(c.Directories) == 0 {
		return map[string]string{LocalBackend: filepath.Join(c.Data, "volumes")}, nil
	}
	return parsePaths("directories", c.Directories)
}

func (c *Config) server() httpserve.Config {
	server := httpserve.Config{
		Listen: c.Listen, TLSCert: c.TLSCert, TLSKey: c.TLSKey, SelfSigned: c.TLSSelfSigned, MaxInFlight: c.MaxInFlight,
		TrustedProxies: c.TrustedProxies, MaxConnectionsPerAddress: c.MaxConnectionsPerAddress,
	}
	server.Defaults()
	return server
}
