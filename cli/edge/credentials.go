package edge

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
)

// credentials are what of `mainstay dev`'s edge control plane is used here.
type credentials struct {
	AdminToken      string `json:"admin_token"`
	EnrollmentToken string `json:"enrollment_token"`
}

// credentials reads .mainstay/credentials.json; without the file they are empty.
// They are meant for the server on this machine and go nowhere else.
func (s *session) credentials(server *url.URL) (credentials, error) {
	if !isLoopback(server.Hostname()) {
		return credentials{}, nil
	}
	path := filepath.Join(s.env.Dir, ".mainstay", "credentials.json")
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return credentials{}, nil
	}
	if err != nil {
		return credentials{}, fmt.Errorf("read credentials: %w", err)
	}
	var file struct {
		Edge credentials `json:"edge"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		return credentials{}, fmt.Errorf("read credentials: %s: %w", path, err)
	}
	return file.Edge, nil
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
