package configfile

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Load reads and validates the document in a file, including the password files that it names. Its
// errors are faults of kind Invalid.
func Load(path string) (*Config, error) {
	raw, err := Read(path)
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
	if err := p.fault(); err != nil {
		return nil, err
	}
	return c, nil
}

// Parse reads and validates a document. It opens no other files: the password of a peer with a
// password file stays empty. Its error is a fault of kind Invalid with one line per problem.
func Parse(raw []byte) (*Config, error) {
	c, p := parseDocument(raw)
	if err := p.fault(); err != nil {
		return nil, err
	}
	return c, nil
}

// parseDocument returns a Config, which is valid only if there are no problems.
func parseDocument(raw []byte) (*Config, *problems) {
	p := &problems{}
	if len(raw) > MaxFileSize {
		p.add("", "the document is larger than %d bytes", MaxFileSize)
		return nil, p
	}
	var document yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	switch err := dec.Decode(&document); {
	case errors.Is(err, io.EOF):
		p.add("", "the document is empty; it needs at least the key interface")
		return nil, p
	case err != nil:
		text := strings.TrimPrefix(err.Error(), "yaml: ")
		if strings.Contains(text, "anchor") {
			// YAML's error repeats the value, which may be a password.
			text = "a value begins with * and does not name an anchor; put it in quotes"
		}
		p.add("", "the document is not valid YAML: %s", text)
		return nil, p
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		p.add("", "the file has a second document, or what follows the first is not valid YAML")
		return nil, p
	}
	p.root = document.Content[0]
	c := &Config{}
	d := &decoder{p: p}
	d.object(p.root, reflect.ValueOf(c).Elem(), "")
	if len(p.all) == 0 { // a value that could not be read looks like one that is not set
		c.validate(p)
	}
	return c, p
}
