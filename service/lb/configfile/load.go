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

// Load reads, checks and completes the document in a file: passwords that it names
// files for are read too. Its errors are faults of kind Invalid.
func Load(path string) (*Config, error) {
	raw, err := document.Read(path, MaxFileSize)
	if err != nil {
		return nil, err
	}
	return ParseIn(filepath.Dir(path), raw)
}

// ParseIn is Parse, and reads the files that the document names for passwords.
// Relative ones begin at folder.
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

// Parse reads and checks a document. It opens no other file: a peer's password
// that is in one stays empty. Its error is a fault of kind Invalid with a line for
// each problem.
func Parse(raw []byte) (*Config, error) {
	c, p := parseDocument(raw)
	if err := p.Fault(); err != nil {
		return nil, err
	}
	return c, nil
}

// parseDocument returns a Config that may be used if there are no problems.
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
			// YAML's own text repeats the value, which may be a password.
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
	if p.None() { // what was not read cannot be told from what was not given
		c.validate(p)
	}
	return c, p
}
