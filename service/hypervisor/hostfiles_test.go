//go:build linux

package hypervisor_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

// firmwareAt writes what looks like firmware to a folder, and says its path.
func firmwareAt(t *testing.T, folder string) string {
	t.Helper()
	for _, name := range []string{"OVMF_CODE.fd", "OVMF_VARS.fd"} {
		if err := errors.Join(
			os.MkdirAll(folder, 0o700), os.WriteFile(filepath.Join(folder, name), make([]byte, 1<<20), 0o600),
		); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(folder, "OVMF_CODE.fd")
}

func TestATenantNamesNoFileOfTheHostUnlessItsFolderIsAllowed(t *testing.T) {
	t.Parallel()
	need(t, "qemu-img")
	dir := t.TempDir()
	file, code := rawImage(t, "the host's", 1<<20), firmwareAt(t, dir)
	fields := map[string]object{
		"image": {
			"image": file,
		},
		"kernel":   {"kernel": file},
		"initrd":   {"kernel": file, "initrd": file},
		"firmware": {"firmware": code},
	}
	ask := func(field, tenant string) object {
		spec := object{"name": "vm-" + field, "memory_mib": 64, "tenant": tenant}
		for k, v := range fields[field] {
			spec[k] = v
		}
		return spec
	}
	d := start(t, usualDocument)
	for field := range fields {
		named := field
		if field == "initrd" {
			named = "kernel" // it is looked at first
		}
		d.call("POST", "/v1/vms", acmeToken, ask(field, "acme")).Limited(
			400, "policy_limit", named, "policy.allowed_image_dirs",
		)
		// A registry asks with the fleet's token for whoever asked it.
		d.call("POST", "/v1/vms", fleetToken, ask(field, "acme")).Limited(
			400, "policy_limit", named, "policy.allowed_image_dirs",
		)
		d.call("POST", "/v1/vms", adminToken, ask(field, "acme")).Want(201)
	}
	// A folder, one that is not there and one that is cannot be told from each other.
	for _, path := range []string{dir, filepath.Join(dir, "none"), "/etc/shadow"} {
		d.call("POST", "/v1/vms", acmeToken, object{"name": "vm", "image": path}).Limited(
			400, "policy_limit", "image", "policy.allowed_image_dirs",
		)
	}
	if n := len(d.vms()); n != len(fields) {
		t.Errorf("%d VMs", n)
	}
	// What admins had opened is in the audit log.
	var log strings.Builder
	for _, e := range contracttest.As[[]hypervisorapi.AuditEntry](d.call("GET", "/v1/audit", adminToken, nil).Want(200)) {
		log.WriteString(e.Action + " " + e.Message + "\n")
	}
	for field, with := range fields {
		if entry := "vm.create vm-" + field; !strings.Contains(log.String(), entry) ||
			!strings.Contains(log.String(), field+" "+with[field].(string)) {
			t.Errorf("%s is not in the log: %s", field, log.String())
		}
	}
	// Where an operator allows a folder, tenants may use it.
	e := start(t, usualDocument+"[policy]\nallowed_image_dirs = [\""+filepath.Dir(file)+"\"]\n")
	e.call("POST", "/v1/vms", acmeToken, ask("image", "acme")).Want(201)
}

// The daemon's folder holds every tenant's disks and secrets. Whoever asks and whatever is
// allowed, it is not an image.
func TestNothingOfTheDataFolderBecomesAnImageForAnybody(t *testing.T) {
	t.Parallel()
	need(t, "qemu-img")
	const small = usualDocument + "[images]\nmax_gib = 1\n" // should a folder be copied into itself all the same
	for name, document := range map[string]string{"everywhere": small, "allowed": small + "[policy]\nallowed_image_dirs = [\"/\"]\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := start(t, document)
			other := contracttest.As[hypervisorapi.VM](
				d.call(
					"POST", "/v1/vms", otherToken, object{"name": "other", "memory_mib": 64, "disk_gib": 1},
				).Want(201),
			)
			data, outside := d.cfg.Data, t.TempDir()
			link := filepath.Join(outside, "link")
			if err := os.Symlink(data, link); err != nil {
				t.Fatal(err)
			}
			code := firmwareAt(t, filepath.Join(data, "state"))
			tokens := []string{adminToken}
			if name == "allowed" {
				tokens = append(tokens, acmeToken)
			}
			disk := filepath.Join("vms", other.Id, "disk.qcow2")
			for _, token := range tokens {
				for _, top := range []string{data, link, "/proc/self/root" + data, filepath.Join(outside, "..", filepath.Base(outside), "link")} {
					for _, below := range []string{"", "vms", filepath.Join("vms", other.Id), disk, "secret.key", "state/hypervisor.db"} {
						path := filepath.Join(top, below)
						d.call("POST", "/v1/vms", token, object{"name": "vm", "image": path}).Refused(
							400, "invalid", "image",
						)
					}
					d.call(
						"POST", "/v1/vms", token, object{"name": "vm", "kernel": filepath.Join(top, "secret.key")},
					).Refused(400, "invalid", "kernel")
					d.call(
						"POST", "/v1/vms", token,
						object{"name": "vm", "firmware": filepath.Join(top, "state", filepath.Base(code))},
					).Refused(400, "invalid", "firmware")
				}
				// Folders that hold the data, which a sandbox would be given with the rest.
				for _, path := range []string{filepath.Dir(data), "/"} {
					d.call("POST", "/v1/vms", token, object{"name": "vm", "image": path, "backend": "sandbox"}).Refused(
						400, "invalid", "image",
					)
				}
			}
			for field, path := range map[string]string{"path": filepath.Join(link, disk), "kernel": filepath.Join(data, "secret.key")} {
				d.call("POST", "/v1/images/catalog", adminToken, object{"name": "own", field: path}).Refused(
					400, "invalid", field,
				)
			}
			d.call("POST", "/v1/images/catalog", adminToken, object{"name": "own", "path": link}).Refused(
				400, "invalid", "path",
			)
			if left, err := filepath.Glob(filepath.Join(data, "images", "*", "*")); err != nil || len(left) > 0 {
				t.Errorf("taken in: %v, %v", left, err)
			}
		})
	}
}
