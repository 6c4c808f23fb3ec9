package configfile

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/mainstay-infra/mainstay/kit/text"
)

// lineOf returns the line of a path such as vips[2].backends[0].port, or of its nearest parent that
// exists. It returns 0 if there is no document.
func lineOf(root *yaml.Node, path string) int {
	if root == nil {
		return 0
	}
	n, line := root, root.Line
	for _, step := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		var at int
		if n, at = child(resolve(n), step); n == nil {
			return line
		}
		line = at
	}
	return line
}

// child returns the value at a key or index with its line, or nil if there is none.
func child(n *yaml.Node, step string) (*yaml.Node, int) {
	switch n.Kind {
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i], n.Content[i].Line
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == step {
				return n.Content[i+1], n.Content[i].Line
			}
		}
	}
	return nil, 0
}

// resolve returns the node to which an alias refers, or n itself.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// nearest returns the end of a sentence that suggests the known word closest to word, or lists all
// of them.
func nearest(word string, known []string) string {
	if best := text.Nearest(word, known); best != "" {
		return "; did you mean " + best + "?"
	}
	return "; known are " + strings.Join(known, ", ")
}

// quoted returns a value of the document in quotes, escaped and shortened to 64 bytes.
func quoted(s string) string {
	const most = 64
	if len(s) > most {
		return strconv.Quote(s[:most]) + "..."
	}
	return strconv.Quote(s)
}
