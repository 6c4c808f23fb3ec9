package image

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

//go:embed sources.json
var sourcesText []byte

// Source is an image of a distribution that can be downloaded.
type Source struct {
	Distribution string `json:"distribution"`
	Version      string `json:"version"`
	Format       string `json:"format"` // qcow2 or iso
	Title        string `json:"title"`
	Base         string `json:"base"`      // URL that mirrors replace
	Folder       string `json:"folder"`    // below the base
	File         string `json:"file"`      // in the folder; a pattern (path.Match) of the names in the list of checksums
	Checksums    string `json:"checksums"` // the list of checksums in the folder
}

// Sources returns all that can be downloaded.
var sources = func() (all []Source) {
	if err := json.Unmarshal(sourcesText, &all); err != nil {
		panic(fmt.Sprintf("sources.json: %v", err)) // it is a part of the program
	}
	return all
}()

// Sources returns what can be downloaded.
func (m *Manager) Sources() []Source {
	all := make([]Source, len(sources))
	for i := range sources {
		all[i] = m.mirrored(sources[i])
	}
	return all
}

// URL returns where a file of the source's folder is.
func (s *Source) URL(file string) string {
	return strings.TrimSuffix(s.Base, "/") + "/" + s.Folder + "/" + file
}

func (m *Manager) mirrored(s Source) Source {
	key := s.Distribution
	if s.Format != "qcow2" {
		key += "-" + s.Format
	}
	if mirror := m.cfg.DownloadMirrors[key]; mirror != "" {
		s.Base = mirror
	}
	return s
}

// source returns the source of an image.
func (m *Manager) source(distribution, version, format string) (Source, error) {
	var versions []string
	for i := range sources {
		s := sources[i]
		if s.Distribution != distribution || s.Format != format {
			continue
		}
		if s.Version == version {
			return m.mirrored(s), nil
		}
		versions = append(versions, s.Version)
	}
	if len(versions) == 0 {
		return Source{}, fault.InvalidField("distribution", "there is no %s of %s to download", format, distribution)
	}
	return Source{}, fault.InvalidField("version", "must be one of %s", strings.Join(versions, ", "))
}

// ParseMirrors parses a setting with entries NAME=URL.
func ParseMirrors(setting string, entries []string) (map[string]string, error) {
	mirrors := map[string]string{}
	for _, e := range entries {
		name, text, ok := strings.Cut(e, "=")
		u, err := url.Parse(text)
		if !ok || err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
			u.RawQuery != "" || u.Fragment != "" || strings.ContainsAny(text, " []") {
			return nil, fault.InvalidField(setting, "%q is not valid: it is like debian=https://mirror.example.com/debian", e)
		}
		base, _, _ := strings.Cut(name, "-")
		if _, known := distributions[base]; !known {
			return nil, fault.InvalidField(setting, "%q is not the name of a distribution", name)
		}
		mirrors[name] = text
	}
	return mirrors, nil
}
