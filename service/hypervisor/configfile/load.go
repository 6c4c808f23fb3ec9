package configfile

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"aead.dev/minisign"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
)

// MaxFileSize is the maximum size of a document, in bytes.
const MaxFileSize = 1 << 20

// Load reads, completes and validates the document in a file. Tokens are stored only as hashes. An
// empty path is an empty document.
func Load(path string) (*Config, error) {
	if path == "" {
		return Parse(nil)
	}
	f, err := os.Open(path) //nolint:gosec // the operator chooses the path
	if err != nil {
		return nil, unreadable(path, err)
	}
	defer func() { _ = f.Close() }() // it was only read
	raw, err := io.ReadAll(io.LimitReader(f, MaxFileSize+1))
	if err != nil {
		return nil, unreadable(path, err)
	}
	if len(raw) > MaxFileSize {
		return nil, fault.New(fault.Invalid, "%s is larger than %d bytes", path, MaxFileSize)
	}
	c, err := parse(raw, filepath.Dir(path))
	if err != nil {
		return nil, fault.New(fault.Invalid, "%s: %s", path, fault.From(err).Message)
	}
	return c, nil
}

func unreadable(path string, err error) error {
	if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	return fault.New(fault.Invalid, "cannot read %s: %v", path, err)
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
	p := &problems{}
	c.readTokens(folder, p)
	c.complete()
	c.check(p)
	return c, p.fault()
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

// problems collects errors.
type problems struct{ lines []string }

func (p *problems) add(path, format string, args ...any) {
	p.lines = append(p.lines, path+": "+fmt.Sprintf(format, args...))
}

func (p *problems) fault() error {
	switch len(p.lines) {
	case 0:
		return nil
	case 1:
		return fault.New(fault.Invalid, "%s", p.lines[0])
	}
	return fault.New(fault.Invalid, "%d problems:\n%s", len(p.lines), strings.Join(p.lines, "\n"))
}

// readTokens replaces tokens with their hashes.
func (c *Config) readTokens(folder string, p *problems) {
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
			p.add(path, "give exactly one of token, sha256 and file")
			continue
		}
		if t.File != "" {
			file := t.File
			if !filepath.IsAbs(file) {
				file = filepath.Join(folder, file)
			}
			raw, err := os.ReadFile(file) //nolint:gosec // the operator names it
			if err != nil {
				p.add(path+".file", "%s", fault.From(unreadable(file, err)).Message)
				continue
			}
			from = path + ".file"
			t.Token, t.File = strings.TrimSuffix(strings.TrimSuffix(string(raw), "\n"), "\r"), ""
		}
		if t.SHA256 != "" {
			t.SHA256 = strings.ToLower(t.SHA256)
			if sum, err := hex.DecodeString(t.SHA256); err != nil || len(sum) != 32 {
				p.add(path+".sha256", "must be 64 hexadecimal digits, as sha256sum prints them")
			}
			continue
		}
		warning, err := auth.CheckToken(from, t.Token)
		if err != nil {
			p.lines = append(p.lines, fault.From(err).Message)
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
	orDefault(&c.Network.Bridge, "mainstay0")
	orDefault(&c.Network.Subnet, "10.87.0.0/16")
	orDefault(&c.Images.MaxGiB, 1024)
}

// MaxTenant is the maximum length of a tenant's name, in bytes.
const MaxTenant = 63

func (c *Config) check(p *problems) {
	c.Policy.check(p)
	c.Auth.check(p)
	if c.Jailer.UID < 1000 || c.Jailer.UID > 1<<30 {
		p.add("jailer.uid", "must be from 1000 to %d", 1<<30)
	}
	if c.Jailer.GID < 1 {
		p.add("jailer.gid", "must be at least 1")
	}
	if c.Jailer.Enforce && !c.Jailer.Enabled {
		p.add("jailer.enforce", "needs jailer.enabled")
	}
	c.Network.check(p)
	if (c.Storage.LVMVolumeGroup == "") != (c.Storage.LVMThinPool == "") {
		p.add("storage.lvm_thin_pool", "must be given together with lvm_volume_group")
	}
	if s := c.Storage.NBDServer; s != "" && strings.Count(s, "%s") != 1 {
		p.add("storage.nbd_server", "must hold %%s once, for the VM's id")
	}
	for i, key := range c.Images.PublicKeys {
		var k minisign.PublicKey
		if err := k.UnmarshalText([]byte(key)); err != nil {
			p.add(fmt.Sprintf("images.public_keys[%d]", i), "is not a minisign public key")
		}
	}
	if c.Images.RequireSigned && len(c.Images.PublicKeys) == 0 {
		p.add("images.require_signed", "needs images.public_keys")
	}
	if c.Images.MaxGiB < 1 || c.Images.MaxGiB > 1<<20 {
		p.add("images.max_gib", "must be from 1 to %d", 1<<20)
	}
}

func (pol *Policy) check(p *problems) {
	for path, n := range map[string]int64{
		"max_vcpus": int64(pol.MaxVCPUs), "max_memory_mib": int64(pol.MaxMemoryMiB),
		"max_disk_gib": int64(pol.MaxDiskGiB), "max_ttl_seconds": pol.MaxTTLSeconds,
	} {
		if n < 0 || n > 1<<40 {
			p.add("policy."+path, "must be 0, which is no limit, or more")
		}
	}
	known := []string{backend.QEMU, backend.Firecracker, backend.CloudHypervisor, backend.Sandbox}
	for i, name := range pol.AllowedBackends {
		if !slices.Contains(known, name) {
			p.add(
				fmt.Sprintf("policy.allowed_backends[%d]", i), "there is no backend %q; there are: %s", name,
				strings.Join(known, ", "),
			)
		}
	}
	for i, dir := range pol.AllowedImageDirs {
		if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir {
			p.add(fmt.Sprintf("policy.allowed_image_dirs[%d]", i), "must be an absolute path without . and ..")
		}
	}
	seen := map[string]bool{}
	for i := range pol.Tenants {
		t := &pol.Tenants[i]
		path := fmt.Sprintf("policy.tenants[%d]", i)
		checkTenant(path+".tenant", t.Tenant, p)
		if t.Tenant == "" {
			p.add(path+".tenant", "is required")
		}
		if seen[t.Tenant] {
			p.add(path+".tenant", "%q has limits already", t.Tenant)
		}
		seen[t.Tenant] = true
		if t.MaxVCPUsTotal < 0 || t.MaxMemoryMiBTotal < 0 || t.MaxVMsTotal < 0 {
			p.add(path, "limits must be 0, which is none, or more")
		}
	}
}

func checkTenant(path, tenant string, p *problems) {
	if len(tenant) > MaxTenant || strings.ContainsFunc(tenant, func(r rune) bool { return r <= ' ' || r > '~' }) {
		p.add(path, "must be at most %d printable characters without spaces", MaxTenant)
	}
}

func (a *Auth) check(p *problems) {
	if (a.RateLimitRPS != 0) != (a.RateLimitBurst != 0) {
		p.add("auth.rate_limit_burst", "must be given together with rate_limit_rps")
	}
	if !(a.RateLimitRPS >= 0 && a.RateLimitRPS <= 1e6) {
		p.add("auth.rate_limit_rps", "must be from 0 to a million")
	}
	if a.RateLimitBurst < 0 || a.RateLimitBurst > 1e6 {
		p.add("auth.rate_limit_burst", "must be from 0 to a million")
	}
	names, hashes := map[string]bool{}, map[string]bool{}
	for i := range a.Tokens {
		t := &a.Tokens[i]
		path := fmt.Sprintf("auth.tokens[%d]", i)
		if t.Name == "" || len(t.Name) > 128 {
			p.add(path+".name", "must be 1 to 128 bytes")
		}
		if names[t.Name] {
			p.add(path+".name", "%q is given twice", t.Name)
		}
		if hashes[t.SHA256] && t.SHA256 != "" {
			p.add(path, "another entry has the same token")
		}
		names[t.Name], hashes[t.SHA256] = true, true
		checkTenant(path+".tenant", t.Tenant, p)
	}
	for i := range a.ClientCertificates {
		cc := &a.ClientCertificates[i]
		path := fmt.Sprintf("auth.client_certificates[%d]", i)
		if cc.CommonName == "" {
			p.add(path+".common_name", "is required")
		}
		checkTenant(path+".tenant", cc.Tenant, p)
	}
	if a.OIDC.Issuer == "" {
		return
	}
	if u, err := url.Parse(a.OIDC.Issuer); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		p.add("auth.oidc.issuer", "must be a URL such as https://id.example.com")
	}
	if a.OIDC.Audience == "" {
		p.add("auth.oidc.audience", "is required: without it, tokens for other services would be accepted")
	}
}

func (n *Network) check(p *problems) {
	for path, name := range map[string]string{"network.bridge": n.Bridge} {
		if !ValidDevice(name) {
			p.add(path, "must be 1 to 15 letters, digits, dots, dashes and underscores")
		}
	}
	for i, name := range n.Bridges {
		if !ValidDevice(name) {
			p.add(
				fmt.Sprintf("network.allowed_bridges[%d]", i),
				"must be 1 to 15 letters, digits, dots, dashes and underscores",
			)
		}
	}
	subnet, err := netip.ParsePrefix(n.Subnet)
	if err != nil || !subnet.Addr().Is4() || subnet.Masked() != subnet || subnet.Bits() < 8 || subnet.Bits() > 29 {
		p.add("network.subnet", "must be an IPv4 network of 8 to 29 bits, such as 10.87.0.0/16")
	}
	for i, server := range n.DNS {
		if addr, err := netip.ParseAddr(server); err != nil || !addr.Is4() {
			p.add(fmt.Sprintf("network.dns[%d]", i), "must be an IPv4 address")
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
