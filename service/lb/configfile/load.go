package configfile

import (
	"path/filepath"

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
	c := &Config{}
	p, _ := syntax.Decode(raw, c)
	if p.None() { // a value that could not be read looks like one that is not set
		c.validate(p)
	}
	return c, p
}
