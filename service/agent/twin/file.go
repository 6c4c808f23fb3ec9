package twin

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/durable"
)

const (
	fileSuffix  = ".json"
	maxFileName = 200 // bytes, well below the limits of file systems
)

// FileName returns the name of a device's file: its ID, with %XX for all bytes that are not safe in
// a file name. Names that would be too long are cut and made unique.
func FileName(device string) string {
	var b strings.Builder
	for i, c := range []byte(device) {
		safe := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' ||
			c == '.' && i > 0
		if safe {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	name := b.String()
	if len(name) > maxFileName {
		sum := sha256.Sum256([]byte(device))
		name = name[:maxFileName-17] + "~" + hex.EncodeToString(sum[:8]) // ~ occurs in no other name
	}
	return name + fileSuffix
}

// file is the content of a device's file.
type file struct {
	DeviceID       string          `json:"device_id"`
	DesiredVersion int64           `json:"desired_version"`
	Desired        json.RawMessage `json:"desired"`
}

// writeFile writes a device's desired state to its file, unless the file already has this content.
func (s *Store) writeFile(device string, version int64, desired json.RawMessage) error {
	content, err := json.MarshalIndent(file{device, version, desired}, "", "  ")
	if err != nil {
		return err
	}
	content = append(content, '\n')
	path := filepath.Join(s.folder, FileName(device))
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, content) {
		return nil
	}
	return durable.Replace(path, content, 0o640)
}

func (s *Store) removeFile(device string) error {
	return durable.Remove(filepath.Join(s.folder, FileName(device)))
}

// tidyFiles removes files of unknown devices and temporary files.
func (s *Store) tidyFiles(known map[string]bool) error {
	entries, err := os.ReadDir(s.folder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		stale := strings.HasSuffix(e.Name(), fileSuffix) && !known[e.Name()]
		if stale || strings.HasPrefix(e.Name(), durable.TempPrefix) {
			if err := durable.Remove(filepath.Join(s.folder, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
