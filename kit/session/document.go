package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/mainstay-infra/mainstay/kit/document"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

const (
	maxDocument = 64 << 10 // bytes
	maxServices = 100
	maxTitle    = 64
)

// Document is the Workspace that an operator writes down, as YAML:
//
//	services:
//	  - {title: Edge control plane, url: "https://edge.example.com"}
//	  - {title: Host 3, url: "https://host3.example.com:7070"}
//
// It has no tickets: each service has its own sign-in or a common identity provider.
type Document struct{ services []Service }

// ReadDocument reads a document. Mistakes are faults of kind Invalid that name the path in the
// document.
func ReadDocument(path string) (*Document, error) {
	raw, err := document.Read(path, maxDocument)
	if err != nil {
		return nil, err
	}
	var parsed struct {
		Services []struct {
			Title string `yaml:"title"`
			URL   string `yaml:"url"`
		} `yaml:"services"`
	}
	d := yaml.NewDecoder(bytes.NewReader(raw))
	d.KnownFields(true)
	if err := d.Decode(&parsed); err != nil && !errors.Is(err, io.EOF) {
		return nil, fault.Wrap(fault.Invalid, err, "%s: %v", path, err)
	}
	var problems document.Problems
	if n := len(parsed.Services); n > maxServices {
		problems.Add("services", "has %d entries; at most %d are shown", n, maxServices)
	}
	out := &Document{}
	seen := map[string]bool{}
	for i, s := range parsed.Services {
		at := fmt.Sprintf("services[%d]", i)
		if s.Title == "" || len(s.Title) > maxTitle {
			problems.Add(at+".title", "must have 1 to %d characters", maxTitle)
		}
		u, err := url.Parse(s.URL)
		switch {
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
			u.RawQuery != "" || u.Fragment != "":
			problems.Add(at+".url", "must be the address of a console, such as https://edge.example.com")
		case seen[s.URL]:
			problems.Add(at+".url", "is listed twice")
		}
		seen[s.URL] = true
		out.services = append(out.services, Service{Title: s.Title, URL: s.URL, asked: s.URL})
	}
	return out, problems.Fault()
}

// Services implements Workspace.
func (d *Document) Services(string) []Service { return append([]Service{}, d.services...) }

// Ticket implements Workspace. There is none.
func (d *Document) Ticket(Who, string, string, time.Time) (string, error) { return "", errNoTicket }

// Redeem implements Workspace. There is nothing to redeem.
func (d *Document) Redeem(context.Context, string, string) (string, time.Time, error) {
	return "", time.Time{}, fault.New(fault.Unauthenticated, "this service has no tickets")
}
