package configfile

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"aead.dev/minisign"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/document"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
)

// MaxFileSize is the maximum size of a document, in bytes.
const MaxFileSize = 1 << 20

// maxTokenFile is the maximum size of a file with a token, in bytes.
const maxTokenFile = 64 << 10

// Load reads, completes and validates the document in a file. Tokens are stored only as hashes. An
// empty path is an empty document.
func Load(path string) (*Config, error) {
	if path == "" {
		return Parse(nil)
	}
	raw, err := document.Read(path, MaxFileSize)
	if err != nil {
		return nil, err
	}
	c, err := parse(raw, filepath.Dir(path))
	if err != nil {
		return nil, fault.New(fault.Invalid, "%s: %s", path, fault.From(err).Message)
	}
	return c, nil
}

// Parse is like Load for a text. Relative paths in it are relative to the working folder.
func Parse(raw []byte) (*Config, error) { return parse(raw, ".") }

func parse(raw []byte, folder string) (*Config, error) {
	c := &Config{}
	decoder := toml.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(c); err != nil {
		return nil, malformed(err)
	}
	p := &document.Problems{}
	c.readTokens(folder, p)
	c.complete()
	c.check(p)
	return c, p.Fault()
}

// malformed returns where a text is malformed. The library's own message would show the surrounding
// lines, which may contain secrets.
func malformed(err error) error {
	if unknown := (*toml.StrictMissingError)(nil); errors.As(err, &unknown) {
		var lines []string
		for i := range unknown.Errors {
			e := &unknown.Errors[i]
			row, _ := e.Position()
			lines = append(lines, fmt.Sprintf("line %d: %s: there is no such key", row, strings.Join(e.Key(), ".")))
		}
		return fault.New(fault.Invalid, "%s", strings.Join(lines, "\n"))
	}
	if wrong := (*toml.DecodeError)(nil); errors.As(err, &wrong) {
		row, column := wrong.Position()
		if key := strings.Join(wrong.Key(), "."); key != "" {
			return fault.New(
				fault.Invalid, "line %d, column %d: %s: the value is not of the right type, or out of range", row,
				column, key,
			)
		}
		return fault.New(fault.Invalid, "line %d, column %d: this is not valid TOML", row, column)
	}
	return fault.Wrap(fault.Invalid, err, "this is not valid TOML")
}

// readTokens replaces tokens with their hashes.
func (c *Config) readTokens(folder string, p *document.Problems) {
	for i := range c.Auth.Tokens {
		t := &c.Auth.Tokens[i]
		path := fmt.Sprintf("auth.tokens[%d]", i)
		from := path + ".token"
		given := 0
		for _, form := range []string{t.Token, t.SHA256, t.File} {
			if form != "" {
				given++
			}
		}
		if given != 1 {
			p.Add(path, "give exactly one of token, sha256 and file")
			continue
		}
		if t.File != "" {
			file := t.File
			if !filepath.IsAbs(file) {
				file = filepath.Join(folder, file)
			}
			raw, err := document.Read(file, maxTokenFile)
			if err != nil {
				p.Add(path+".file", "%s", fault.From(err).Message)
				continue
			}
			from = path + ".file"
			t.Token, t.File = strings.TrimSuffix(strings.TrimSuffix(string(raw), "\n"), "\r"), ""
		}
		if t.SHA256 != "" {
			t.SHA256 = strings.ToLower(t.SHA256)
			if sum, err := hex.DecodeString(t.SHA256); err != nil || len(sum) != 32 {
				p.Add(path+".sha256", "must be 64 hexadecimal digits, as sha256sum prints them")
			}
			continue
		}
		warning, err := auth.CheckToken(from, t.Token)
		if err != nil {
			f := fault.From(err)
			p.Add(from, "%s", strings.TrimPrefix(f.Message, from+": "))
		}
		if warning != "" {
			c.Warnings = append(c.Warnings, warning)
		}
		t.SHA256, t.Token = auth.HashToken(t.Token), ""
	}
}

func orDefault[T comparable](value *T, usual T) {
	var zero T
	if *value == zero {
		*value = usual
	}
}

func (c *Config) complete() {
	orDefault(&c.Auth.OIDC.TenantClaim, "tenant")
	orDefault(&c.Jailer.UID, 200000)
	orDefault(&c.Jailer.GID, c.Jailer.UID)
	orDefault(&c.Jailer.JailerBinary, "jailer")
	orDefault(&c.Storage.CephUser, "admin")
	orDefault(&c.Storage.CephConf, "/etc/ceph/ceph.conf")
	if c.Policy.AllowedForwards == nil {
		c.Policy.AllowedForwards = []string{"127.0.0.1:30000-32767"}
	}
	orDefault(&c.Network.Bridge, "mainstay0")
	orDefault(&c.Network.Subnet, "10.87.0.0/16")
	orDefault(&c.Images.MaxGiB, 1024)
	orDefault(&c.Images.MaxTemplates, 16)
}

// MaxTenant is the maximum length of a tenant's name, in bytes.
const MaxTenant = 63

func (c *Config) check(p *document.Problems) {
	c.Policy.check(p)
	c.Auth.check(p)
	if c.Jailer.UID < 1000 || c.Jailer.UID > 1<<30 {
		p.Add("jailer.uid", "must be from 1000 to %d", 1<<30)
	}
	if c.Jailer.GID < 1 {
		p.Add("jailer.gid", "must be at least 1")
	}
	if c.Jailer.Enforce && !c.Jailer.Enabled {
		p.Add("jailer.enforce", "needs jailer.enabled")
	}
	c.Network.check(p)
	if (c.Storage.LVMVolumeGroup == "") != (c.Storage.LVMThinPool == "") {
		p.Add("storage.lvm_thin_pool", "must be given together with lvm_volume_group")
	}
	if s := c.Storage.NBDServer; s != "" && strings.Count(s, "%s") != 1 {
		p.Add("storage.nbd_server", "must hold %%s once, for the VM's id")
	}
	for i, key := range c.Images.PublicKeys {
		var k minisign.PublicKey
		if err := k.UnmarshalText([]byte(key)); err != nil {
			p.Add(fmt.Sprintf("images.public_keys[%d]", i), "is not a minisign public key")
		}
	}
	if c.Images.RequireSigned && len(c.Images.PublicKeys) == 0 {
		p.Add("images.require_signed", "needs images.public_keys")
	}
	if c.Images.MaxGiB < 1 || c.Images.MaxGiB > 1<<20 {
		p.Add("images.max_gib", "must be from 1 to %d", 1<<20)
	}
	if c.Images.MaxTemplates < 1 || c.Images.MaxTemplates > 1000 {
		p.Add("images.max_templates", "must be from 1 to %d", 1000)
	}
}

func (pol *Policy) check(p *document.Problems) {
	for path, n := range map[string]int64{
		"max_vcpus": int64(pol.MaxVCPUs), "max_memory_mib": int64(pol.MaxMemoryMiB),
		"max_disk_gib": int64(pol.MaxDiskGiB), "max_ttl_seconds": pol.MaxTTLSeconds,
	} {
		if n < 0 || n > 1<<40 {
			p.Add("policy."+path, "must be 0, which is no limit, or more")
		}
	}
	known := []string{backend.QEMU, backend.Firecracker, backend.CloudHypervisor, backend.Sandbox}
	for i, name := range pol.AllowedBackends {
		if !slices.Contains(known, name) {
			p.Add(
				fmt.Sprintf("policy.allowed_backends[%d]", i), "there is no backend %q; there are: %s", name,
				strings.Join(known, ", "),
			)
		}
	}
	for i, text := range pol.AllowedForwards {
		if _, err := ParsePortRange(text); err != nil {
			p.Add(fmt.Sprintf("policy.allowed_forwards[%d]", i), "%s", fault.From(err).Message)
		}
	}
	for field, dirs := range map[string][]string{
		"allowed_image_dirs": pol.AllowedImageDirs, "allowed_share_dirs": pol.AllowedShareDirs,
	} {
		for i, dir := range dirs {
			if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir {
				p.Add(fmt.Sprintf("policy.%s[%d]", field, i), "must be an absolute path without . and ..")
			}
		}
	}
	seen := map[string]bool{}
	for i := range pol.Tenants {
		t := &pol.Tenants[i]
		path := fmt.Sprintf("policy.tenants[%d]", i)
		checkTenant(path+".tenant", t.Tenant, p)
		if t.Tenant == "" {
			p.Add(path+".tenant", "is required")
		}
		if seen[t.Tenant] {
			p.Add(path+".tenant", "%q has limits already", t.Tenant)
		}
		seen[t.Tenant] = true
		if t.MaxVCPUsTotal < 0 || t.MaxMemoryMiBTotal < 0 || t.MaxVMsTotal < 0 {
			p.Add(path, "limits must be 0 (no limit) or more")
		}
	}
}

func checkTenant(path, tenant string, p *document.Problems) {
	if len(tenant) > MaxTenant || strings.ContainsFunc(tenant, func(r rune) bool { return r <= ' ' || r > '~' }) {
		p.Add(path, "must be at most %d printable characters without spaces", MaxTenant)
	}
}

func (a *Auth) check(p *document.Problems) {
	if (a.RateLimitRPS != 0) != (a.RateLimitBurst != 0) {
		p.Add("auth.rate_limit_burst", "must be given together with rate_limit_rps")
	}
	if !(a.RateLimitRPS >= 0 && a.RateLimitRPS <= 1e6) {
		p.Add("auth.rate_limit_rps", "must be from 0 to a million")
	}
	if a.RateLimitBurst < 0 || a.RateLimitBurst > 1e6 {
		p.Add("auth.rate_limit_burst", "must be from 0 to a million")
	}
	names, hashes := map[string]bool{}, map[string]bool{}
	for i := range a.Tokens {
		t := &a.Tokens[i]
		path := fmt.Sprintf("auth.tokens[%d]", i)
		if t.Name == "" || len(t.Name) > 128 {
			p.Add(path+".name", "must be 1 to 128 bytes")
		}
		if names[t.Name] {
			p.Add(path+".name", "%q is given twice", t.Name)
		}
		if hashes[t.SHA256] && t.SHA256 != "" {
			p.Add(path, "another entry has the same token")
		}
		names[t.Name], hashes[t.SHA256] = true, true
		checkTenant(path+".tenant", t.Tenant, p)
	}
	for i := range a.ClientCertificates {
		cc := &a.ClientCertificates[i]
		path := fmt.Sprintf("auth.client_certificates[%d]", i)
		if cc.CommonName == "" {
			p.Add(path+".common_name", "is required")
		}
		checkTenant(path+".tenant", cc.Tenant, p)
	}
	if a.OIDC.Issuer == "" {
		return
	}
	if u, err := url.Parse(a.OIDC.Issuer); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		p.Add("auth.oidc.issuer", "must be a URL such as https://id.example.com")
	}
	if a.OIDC.Audience == "" {
		p.Add("auth.oidc.audience", "is required: without it, tokens for other services would be accepted")
	}
}

func (n *Network) check(p *document.Problems) {
	for path, name := range map[string]string{"network.bridge": n.Bridge} {
		if !ValidDevice(name) {
			p.Add(path, "must be 1 to 15 letters, digits, dots, dashes and underscores")
		}
	}
	for i, name := range n.Bridges {
		if !ValidDevice(name) {
			p.Add(
				fmt.Sprintf("network.allowed_bridges[%d]", i),
				"must be 1 to 15 letters, digits, dots, dashes and underscores",
			)
		}
	}
	subnet, err := netip.ParsePrefix(n.Subnet)
	if err != nil || !subnet.Addr().Is4() || subnet.Masked() != subnet || subnet.Bits() < 8 || subnet.Bits() > 29 {
		p.Add("network.subnet", "must be an IPv4 network of 8 to 29 bits, such as 10.87.0.0/16")
	}
	for i, server := range n.DNS {
		if addr, err := netip.ParseAddr(server); err != nil || !addr.Is4() {
			p.Add(fmt.Sprintf("network.dns[%d]", i), "must be an IPv4 address")
		}
	}
}

// ValidDevice reports whether a text is a valid name of a network device.
func ValidDevice(name string) bool {
	return len(name) > 0 && len(name) <= 15 && name != "." && name != ".." &&
		!strings.ContainsFunc(name, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') &&
				!strings.ContainsRune("._-", r)
		})
}
