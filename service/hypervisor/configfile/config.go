// Package configfile reads the daemon's document: a TOML file with the host's policy, who may call,
// how VMs are confined, and where their disks and networks are.
//
// Invariants:
//
//   - A document is loaded completely or not at all. All errors are reported together, each with
//     its path, and with its line if the text itself is malformed.
//   - Errors never contain secrets.
package configfile

// Config is the document.
type Config struct {
	Policy  Policy  `toml:"policy"`
	Auth    Auth    `toml:"auth"`
	Jailer  Jailer  `toml:"jailer"`
	Storage Storage `toml:"storage"`
	Network Network `toml:"network"`
	Images  Images  `toml:"images"`

	// Warnings describe what is accepted but should be improved.
	Warnings []string `toml:"-"`
}

// Policy holds the limits of VMs on this host. Zero means no limit.
type Policy struct {
	MaxVCPUs         int            `toml:"max_vcpus" help:"Processors of one VM."`
	MaxMemoryMiB     int            `toml:"max_memory_mib" help:"Memory of one VM, in MiB."`
	MaxDiskGiB       int            `toml:"max_disk_gib" help:"All disks of one VM together, in GiB."`
	MaxTTLSeconds    int64          `toml:"max_ttl_seconds" help:"Longest life of a VM. With it, every VM must have a ttl_seconds."`
	AllowedBackends  []string       `toml:"allowed_backends" help:"Backends that may be used; empty: all."`
	AllowedImageDirs []string       `toml:"allowed_image_dirs" help:"Folders of the host that image, kernel, initrd and firmware may lie in; empty: tenants take images of the catalog only, and admins name any file. The catalog is always allowed, and the folders of the daemon never."`
	AllowedForwards  []string       `toml:"allowed_forwards" help:"Ports of the host that tenants may lead into their guests, as ADDRESS:FIRST-LAST; admins may take any. Default: 127.0.0.1:30000-32767."`
	AllowedShareDirs []string       `toml:"allowed_share_dirs" help:"Folders of the host that an admin may share with a guest, with all that is below them; empty: none. The folders of the daemon never."`
	Tenants          []TenantPolicy `toml:"tenants" help:"Limits of what a tenant has in all, a table for each."`
}

// TenantPolicy holds the total limits of one tenant.
type TenantPolicy struct {
	Tenant            string `toml:"tenant" help:"Name of the tenant."`
	MaxVCPUsTotal     int    `toml:"max_vcpus_total" help:"Processors of all its VMs."`
	MaxMemoryMiBTotal int    `toml:"max_memory_mib_total" help:"Memory of all its VMs, in MiB."`
	MaxVMsTotal       int    `toml:"max_vms_total" help:"Number of its VMs."`
}

// Auth configures who may call.
type Auth struct {
	Require            bool         `toml:"require" help:"Refuse to start without credentials, and to listen beyond loopback without the jailer."`
	OpenMetrics        bool         `toml:"open_metrics" help:"With require, answer /metrics without credentials all the same; else it takes an admin's."`
	RateLimitRPS       float64      `toml:"rate_limit_rps" help:"Requests a second of one caller in the long run; set together with rate_limit_burst."`
	RateLimitBurst     int          `toml:"rate_limit_burst" help:"Requests of one caller at once."`
	Tokens             []Token      `toml:"tokens" help:"Bearer tokens, a table for each."`
	OIDC               OIDC         `toml:"oidc" help:"Bearer tokens of an OpenID Connect provider."`
	ClientCertificates []ClientCert `toml:"client_certificates" help:"Client certificates, a table for each; the authority is the setting tls-client-ca."`
}

// Token is a bearer token. Exactly one of its three forms is given.
type Token struct {
	Name   string `toml:"name" help:"Who holds it, for the logs."`
	Tenant string `toml:"tenant" help:"Tenant of all that it may see; without one it is an admin's."`
	Token  string `toml:"token" help:"The token itself."`
	SHA256 string `toml:"sha256" help:"Instead, its SHA-256 in hex."`
	File   string `toml:"file" help:"Instead, a file that holds it."`
}

// OIDC accepts tokens of an OIDC provider.
type OIDC struct {
	Issuer      string `toml:"issuer" help:"URL of the provider; turns this on."`
	Audience    string `toml:"audience" help:"What a token's aud must hold."`
	TenantClaim string `toml:"tenant_claim" help:"Claim with the tenant. Default: tenant."`
	AdminClaim  string `toml:"admin_claim" help:"Claim that, if true, makes the caller an admin. Without it nobody is one."`
}

// ClientCert identifies the holder of a client certificate.
type ClientCert struct {
	CommonName string `toml:"common_name" help:"The certificate's common name."`
	Tenant     string `toml:"tenant" help:"Tenant of all that it may see; without one it is an admin's."`
}

// Jailer configures the confinement of VMs.
type Jailer struct {
	Enabled       bool   `toml:"enabled" help:"Run each VM under an own uid, in an own folder, within limits."`
	Enforce       bool   `toml:"enforce" help:"Refuse to start a VM that cannot be confined whole; else what is missing is told in its events."`
	JailerBinary  string `toml:"jailer_binary" help:"Firecracker's jailer. Default: jailer on PATH."`
	UID           int    `toml:"uid" help:"First uid; each VM gets its own from here on. Default: 200000."`
	GID           int    `toml:"gid" help:"Group of VMs' processes. Default: the uid's number."`
	ChrootBaseDir string `toml:"chroot_base_dir" help:"Folder of Firecracker's jails. Default: jails in the data folder."`
}

// Storage configures where disks are stored.
type Storage struct {
	LVMVolumeGroup string `toml:"lvm_volume_group" help:"Volume group of storage lvm-thin."`
	LVMThinPool    string `toml:"lvm_thin_pool" help:"Thin pool in it."`
	NBDServer      string `toml:"nbd_server" help:"Server of storage nbd: unix:/path/%s.sock or host:port/%s, where %s is the VM's id."`
	CephPool       string `toml:"ceph_pool" help:"Pool of storages ceph-rbd and ceph-rbd-in-place."`
	CephUser       string `toml:"ceph_user" help:"Name of the Ceph user, without client. Default: admin."`
	CephConf       string `toml:"ceph_conf" help:"Ceph's configuration file. Default: /etc/ceph/ceph.conf."`
}

// Network configures the managed bridge.
type Network struct {
	Bridge      string   `toml:"bridge" help:"Name of the bridge that the daemon makes. Default: mainstay0."`
	Subnet      string   `toml:"subnet" help:"Its addresses; the first is the host's. Default: 10.87.0.0/16."`
	ShareBridge bool     `toml:"share_bridge" help:"Let VMs of different tenants reach each other on the bridge. Without it, a VM reaches those of its own tenant only."`
	DisableNAT  bool     `toml:"disable_nat" help:"Do not let guests reach out through the host."`
	DNS         []string `toml:"dns" help:"Name servers that guests are told. Default: the host's."`
	Bridges     []string `toml:"allowed_bridges" help:"Bridges of the host's own that VMs may join."`
}

// Images configures the rules of the catalog.
type Images struct {
	PublicKeys    []string `toml:"public_keys" help:"Minisign keys whose signatures of images are good."`
	RequireSigned bool     `toml:"require_signed" help:"Make VMs only of images with a good signature."`
	MaxGiB        int      `toml:"max_gib" help:"Largest image, as its guest sees it. Default: 1024."`
	MaxTemplates  int      `toml:"max_templates" help:"Most templates of VMs. Each takes disk space, and once it is used as much memory as its guest had in use. Default: 16."`
}
