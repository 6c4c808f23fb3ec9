package configfile

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/mainstay-infra/mainstay/kit/document"
)

// Load reads and validates the document in a file, including the password files that it names. Its
// errors are faults of kind Invalid.
func Load(path string) (*Config, error) {
	raw, err := document.Read(path, MaxFileSize)
	if err != nil {
		return nil, err
	}
	return ParseIn(filepath.Dir(path), raw)
}

// ParseIn is like Parse, but also reads the password files that the document names. Relative paths
// start at folder.
func ParseIn(folder string, raw []byte) (*Config, error) {
	c, p := parseDocument(raw)
	if c != nil && c.BGP != nil {
		readPasswords(folder, c.BGP, p)
	}
	if err := p.Fault(); err != nil {
		return nil, err
	}
	return c, nil
}

// Parse reads and validates a document. It opens no other files: the password of a peer with a
// password file stays empty. Its error is a fault of kind Invalid with one line per problem.
func Parse(raw []byte) (*Config, error) {
	c, p := parseDocument(raw)
	if err := p.Fault(); err != nil {
		return nil, err
	}
	return c, nil
}

// parseDocument returns a Config, which is valid only if there are no problems.
func parseDocument(raw []byte) (*Config, *document.Problems) {
	p := &document.Problems{}
	if len(raw) > MaxFileSize {
		p.Add("", "the document is larger than %d bytes", MaxFileSize)
		return nil, p
	}
	var parsed yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	switch err := dec.Decode(&parsed); {
	case errors.Is(err, io.EOF):
		p.Add("", "the document is empty; it needs at least the key interface")
		return nil, p
	case err != nil:
		text := strings.TrimPrefix(err.Error(), "yaml: ")
		if strings.Contains(text, "anchor") {
			// YAML's error repeats the value, which may be a password.
			text = "a value begins with * and does not name an anchor; put it in quotes"
		}
		p.Add("", "the document is not valid YAML: %s", text)
		return nil, p
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		p.Add("", "the file has a second document, or what follows the first is not valid YAML")
		return nil, p
	}
	root := parsed.Content[0]
	p.Line = func(path string) int { return lineOf(root, path) }
	c := &Config{}
	d := &decoder{p: p}
	d.object(root, reflect.ValueOf(c).Elem(), "")
	if p.None() { // a value that could not be read looks like one that is not set
		c.validate(p)
	}
	return c, p
}
