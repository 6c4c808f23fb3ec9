// Package seed creates the small read-only disk from which a guest learns its identity: the NoCloud
// data source of cloud-init, and the guest agent's secret.
//
//	meta-data, user-data, vendor-data   what cloud-init looks for on a disk labelled cidata
//	mainstay-secret                     the agent's secret, mode 0600
//	mainstay-guest                      the agent itself, where the guest has none of its own
//
// Guests with cloud-init get the agent by vendor-data, which leaves user-data to the user. Other
// guests copy secret and agent from the disk themselves.
package seed

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"
)

// Label is the disk's volume label, as NoCloud requires.
const Label = "cidata"

// SecretFile is the path of the secret on the disk.
const SecretFile = "mainstay-secret"

// Content is what the disk contains.
type Content struct {
	InstanceID        string // cloud-init does its work once for each
	Hostname          string
	UserData          string // as the user gave it; empty: none
	SSHAuthorizedKeys []string
	Secret            string // the agent's; empty: no agent
	Agent             string // path of the agent's program, which is put on the disk; empty: the guest has its own
}

// Write creates the disk at path and replaces an existing one. Only its owner can read it.
func Write(path string, c Content) (err error) {
	work, err := os.MkdirTemp(filepath.Dir(path), ".seed-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	root, made := filepath.Join(work, "root"), filepath.Join(work, "iso")
	if err := fill(root, c); err != nil {
		return err
	}
	if err := pack(root, made); err != nil {
		return fmt.Errorf("make the seed disk: %w", err)
	}
	return os.Rename(made, path)
}

func fill(root string, c Content) error {
	if err := os.Mkdir(root, 0o700); err != nil {
		return err
	}
	meta := map[string]any{"instance-id": c.InstanceID, "local-hostname": c.Hostname}
	if len(c.SSHAuthorizedKeys) > 0 {
		meta["public-keys"] = c.SSHAuthorizedKeys
	}
	text, err := json.Marshal(meta) // JSON is YAML
	if err != nil {
		return err
	}
	user := c.UserData
	if user == "" {
		user = "#cloud-config\n{}\n"
	}
	files := map[string]string{"meta-data": string(text) + "\n", "user-data": user}
	if c.Secret != "" {
		files["vendor-data"], files[SecretFile] = vendorData, c.Secret+"\n"
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	if c.Secret == "" || c.Agent == "" {
		return nil
	}
	return copyFile(c.Agent, filepath.Join(root, "mainstay-guest"), 0o700)
}

// vendorData makes cloud-init start the agent at every boot, unless the guest already has it as a
// service.
const vendorData = `#cloud-config
bootcmd:
- |
  mkdir -p /run/mainstay-guest /run/mainstay-seed
  mount -o ro,nosuid LABEL=` + Label + ` /run/mainstay-seed || exit 0
  install -m 0600 /run/mainstay-seed/` + SecretFile + ` /run/mainstay-guest/secret
  if [ -e /run/mainstay-seed/mainstay-guest ]; then install -m 0755 /run/mainstay-seed/mainstay-guest /run/mainstay-guest/mainstay-guest; fi
  umount /run/mainstay-seed
  if command -v mainstay-guest >/dev/null; then exit 0; fi
  if [ -x /run/mainstay-guest/mainstay-guest ]; then setsid /run/mainstay-guest/mainstay-guest --kmsg </dev/null >/dev/null 2>&1 & fi
`

// sectorSize is a CD's.
const sectorSize = 2048

func pack(root, path string) (err error) {
	size := int64(1 << 20)
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return err
		}
		size += info.Size() + sectorSize
	}
	out, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // a file of our own
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Sync(), out.Close()) }()
	disk := file.New(out, false)
	iso, err := iso9660.Create(disk, size, 0, sectorSize, root)
	if err != nil {
		return err
	}
	// The standard pads with spaces (ECMA-119, 7.4.3.2), the library with zeros.
	return iso.Finalize(iso9660.FinalizeOptions{RockRidge: true, VolumeIdentifier: fmt.Sprintf("%-32s", Label)})
}

func copyFile(from, to string, mode os.FileMode) error {
	in, err := os.Open(from) //nolint:gosec // the operator's choice
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()                                    // it was only read
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode) //nolint:gosec // a file of our own
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// ValidHostname reports whether a text is a valid host name (RFC 1123).
func ValidHostname(name string) bool {
	if name == "" || len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-") ||
			strings.ContainsFunc(label, func(r rune) bool {
				return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-'
			}) {
			return false
		}
	}
	return true
}
