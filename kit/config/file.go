package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"
)

// fileValue is the text of a setting in the file.
type fileValue struct {
	text string
	line int
}

// maxFile is the maximum size of a file with settings or a secret, in bytes.
const maxFile = 1 << 20

// readBounded reads a file, which may be a pipe, unless it is larger than maxFile.
func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path) //nolint:gosec // the operator chooses the path
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	raw, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(raw) > maxFile {
		err = fmt.Errorf("larger than %d bytes", maxFile)
	}
	return raw, err
}

// readFile returns the readable values by key, and adds problems to p. An empty path is treated as
// an empty file.
func readFile(path string, fields []field, p *problems) map[string]fileValue {
	if path == "" {
		return nil
	}
	raw, err := readBounded(path)
	if err != nil {
		p.add("", "file %s: %s", path, reason(err))
		return nil
	}
	var document yaml.Node
	if err := yaml.Unmarshal(raw, &document); err != nil {
		text := strings.TrimPrefix(err.Error(), "yaml: ")
		if strings.Contains(text, "anchor") {
			text = "a value begins with * and is not a reference; put it in quotes" // yaml's text repeats it
		}
		p.add("", "file %s: not valid YAML: %s", path, text)
		return nil
	}
	if len(document.Content) == 0 {
		return nil
	}
	root := document.Content[0]
	if root.Kind != yaml.MappingNode {
		p.add("", "%s:%d: expected lines of the form key: value", path, root.Line)
		return nil
	}
	return values(path, root, fields, p)
}

func values(path string, root *yaml.Node, fields []field, p *problems) map[string]fileValue {
	keys := make([]string, len(fields))
	byKey := map[string]*field{}
	for i := range fields {
		keys[i], byKey[fields[i].Key] = fields[i].Key, &fields[i]
	}
	found := map[string]fileValue{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		f, known := byKey[key.Value]
		if !known {
			p.add(key.Value, "%s:%d: %s: unknown key%s", path, key.Line, key.Value, suggestion(key.Value, keys))
			continue
		}
		if first, twice := found[key.Value]; twice {
			p.add(key.Value, "%s:%d: %s: given twice, first in line %d", path, key.Line, key.Value, first.line)
			continue
		}
		text, err := scalar(value, f.Type == "list")
		if err != nil {
			p.add(key.Value, "%s:%d: %s: the value %v", path, value.Line, key.Value, err)
			continue
		}
		found[key.Value] = fileValue{text, value.Line}
	}
	return found
}

// scalar returns the text of a value; a sequence becomes a list with commas.
func scalar(n *yaml.Node, list bool) (string, error) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		return "", errors.New("is missing")
	case n.Kind == yaml.ScalarNode:
		return n.Value, nil
	case n.Kind == yaml.SequenceNode && list:
		items := make([]string, len(n.Content))
		for i, item := range n.Content {
			text, err := scalar(item, false)
			if err != nil {
				return "", fmt.Errorf("has an item that %w", err)
			}
			if strings.Contains(text, ",") {
				return "", errors.New("has an item with a comma in it")
			}
			items[i] = text
		}
		return strings.Join(items, ","), nil
	case list:
		return "", errors.New("is not a list")
	}
	return "", errors.New("is not a single value")
}

// reason returns why a file could not be read, without its path.
func reason(err error) string {
	if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
		return pathErr.Err.Error()
	}
	return err.Error()
}
