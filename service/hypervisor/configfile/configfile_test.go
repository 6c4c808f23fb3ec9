package configfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/configfile"
)

const whole = `
[policy]
max_vcpus = 8
max_ttl_seconds = 3600
allowed_backends = ["qemu", "sandbox"]
allowed_image_dirs = ["/srv/images"]
[[policy.tenants]]
tenant = "acme"
max_vms_total = 3

[auth]
require = true
rate_limit_rps = 2.5
rate_limit_burst = 10
[[auth.tokens]]
name = "ci"
tenant = "acme"
token = "0123456789abcdef"
[auth.oidc]
issuer = "https://id.example.com"
audience = "mainstay"
[[auth.client_certificates]]
common_name = "ops"

[jailer]
enabled = true
uid = 300000

[storage]
ceph_user = "vms"
`

func TestADocumentIsReadAndCompletedAndItsTokensAreHashed(t *testing.T) {
	t.Parallel()
	c, err := configfile.Parse([]byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	token := c.Auth.Tokens[0]
	if token.Token != "" || token.SHA256 != auth.HashToken("0123456789abcdef") || token.Tenant != "acme" {
		t.Errorf("%+v", token)
	}
	if len(c.Warnings) != 1 || !strings.HasPrefix(c.Warnings[0], "auth.tokens[0].token: ") ||
		strings.Contains(c.Warnings[0], "0123456789abcdef") {
		t.Errorf("warnings: %q", c.Warnings)
	}
	if c.Policy.Tenants[0].MaxVMsTotal != 3 || c.Jailer.GID != 300000 || c.Storage.CephConf == "" ||
		c.Network.Bridge != "mainstay0" ||
		c.Auth.OIDC.TenantClaim != "tenant" {
		t.Errorf("%+v", c)
	}
	if empty, err := configfile.Load(""); err != nil || empty.Network.Subnet != "10.87.0.0/16" {
		t.Errorf("no document: %+v, %v", empty, err)
	}
}

func TestATokenIsReadFromAFileBesideTheDocument(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	document := filepath.Join(dir, "hypervisor.toml")
	for path, text := range map[string]string{document: "[[auth.tokens]]\nname = \"ci\"\nfile = \"ci.token\"\n", filepath.Join(dir, "ci.token"): "fedcba9876543210\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := configfile.Load(document)
	if err != nil || c.Auth.Tokens[0].SHA256 != auth.HashToken("fedcba9876543210") {
		t.Errorf("%+v, %v", c, err)
	}
	if err := os.Remove(filepath.Join(dir, "ci.token")); err != nil {
		t.Fatal(err)
	}
	if _, err := configfile.Load(document); err == nil || !strings.Contains(err.Error(), "ci.token: no such file") ||
		!strings.Contains(err.Error(), document) {
		t.Errorf("%v", err)
	}
}

func TestWhatIsWrongIsNamedByItsPathAndSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"[policy]\nmax_cpus = 1\nmax_vcpus = 2\n[jail]\n": {"line 2: policy.max_cpus: there is no such key", "line 4: jail"},
		"[policy]\nmax_vcpus = \"s3cret\"":                {"line 2", "policy.max_vcpus"},
		"[policy\ns3cret":                                 {"line 1", "not valid TOML"},
		"[policy]\nmax_vcpus = -1\nallowed_backends = [\"xen\"]\nallowed_image_dirs = [\"../x\"]":      {"3 problems", "policy.max_vcpus", `policy.allowed_backends[0]: there is no backend "xen"`, "policy.allowed_image_dirs[0]"},
		"[[policy.tenants]]\ntenant = \"a\"\n[[policy.tenants]]\ntenant = \"a\"\n[[policy.tenants]]\n": {`policy.tenants[1].tenant: "a" has limits already`, "policy.tenants[2].tenant: is required"},
		"[auth]\nrate_limit_rps = 1":                                      {"auth.rate_limit_burst"},
		"[auth]\nrate_limit_rps = nan\nrate_limit_burst = 1":              {"auth.rate_limit_rps"},
		"[[auth.tokens]]\nname = \"a\"\ntoken = \"s3cret\"":               {"auth.tokens[0].token: must have at least 16"},
		"[[auth.tokens]]\nname = \"a\"\ntoken = \"s3cret s3cret s3cret\"": {"auth.tokens[0].token: must be at most 4096 printable"},
		"Warnings = [\"s3cret\"]":                                         {"line 1: Warnings: there is no such key"},
		"[[auth.tokens]]\nname = \"a\"":                                   {"auth.tokens[0]: give exactly one of"},
		"[[auth.tokens]]\nname = \"a\"\nsha256 = \"abc\"":                 {"auth.tokens[0].sha256"},
		"[[auth.tokens]]\nname=\"a\"\ntoken=\"s3crets3crets3cret\"\n[[auth.tokens]]\nname=\"a\"\ntoken=\"s3crets3crets3cret\"": {`auth.tokens[1].name: "a" is given twice`, "auth.tokens[1]: another entry has the same token"},
		"[auth.oidc]\nissuer = \"id\"":                                         {"auth.oidc.issuer", "auth.oidc.audience"},
		"[[auth.client_certificates]]\ntenant = \"a b\"":                       {"auth.client_certificates[0].common_name", "auth.client_certificates[0].tenant"},
		"[jailer]\nenforce = true\nuid = 5\ngid = -1":                          {"jailer.enforce: needs jailer.enabled", "jailer.uid", "jailer.gid"},
		"[network]\nbridge = \"a/b\"\nsubnet = \"10.0.0.1/16\"\ndns = [\"x\"]": {"network.bridge", "network.subnet", "network.dns[0]"},
		"[storage]\nlvm_thin_pool = \"p\"\nnbd_server = \"unix:/run/nbd\"":     {"storage.lvm_thin_pool", "storage.nbd_server"},
		"[images]\npublic_keys = [\"x\"]\nmax_gib = -1":                        {"images.public_keys[0]", "images.max_gib"},
		"[images]\nrequire_signed = true":                                      {"images.require_signed"},
	} {
		c, err := configfile.Parse([]byte(text))
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: taken as %+v, %v", text, c, err)
			continue
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q is not in %v", text, w, err)
			}
		}
		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: a value is shown: %v", text, err)
		}
	}
}

func TestTheReferenceHasEveryKey(t *testing.T) {
	t.Parallel()
	text := configfile.Markdown()
	for _, key := range []string{"`policy.max_vcpus`", "`policy.tenants[].max_vms_total`", "`auth.tokens[].tenant`", "`auth.oidc.issuer`", "`storage.ceph_conf`", "`images.public_keys`"} {
		if !strings.Contains(text, key) {
			t.Errorf("%s is missing in\n%s", key, text)
		}
	}
	for line := range strings.Lines(text) {
		if strings.HasSuffix(line, "|  |\n") {
			t.Errorf("not described: %s", line)
		}
	}
}

func FuzzADocumentIsTakenWholeOrRefused(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte("[policy]\nmax_vcpus = 99999999999999999999"))
	f.Add([]byte("[[auth.tokens]]\nname = \"\\u0000\""))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := configfile.Parse(raw)
		if err != nil {
			if !fault.Is(err, fault.Invalid) {
				t.Errorf("%v", err)
			}
			return
		}
		if c.Policy.MaxVCPUs < 0 || c.Network.Subnet == "" {
			t.Errorf("%+v", c)
		}
		for _, token := range c.Auth.Tokens {
			if token.Token != "" || len(token.SHA256) != 64 {
				t.Errorf("%+v", token)
			}
		}
	})
}
