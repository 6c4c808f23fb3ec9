package configfile

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/text"
)

// maxTold is the maximum number of problems that a fault lists.
const maxTold = 50

// problems collects the problems of a document.
type problems struct {
	root *yaml.Node // to find lines; nil when there is no document
	all  []problem
	more int // number of problems beyond maxTold
}

type problem struct {
	path, text string
	line       int
}

// add records a problem at a path.
func (p *problems) add(path, format string, args ...any) {
	line := 0
	if len(p.all) < maxTold {
		line = lineOf(p.root, path)
	}
	p.addAt(line, path, format, args...)
}

func (p *problems) addAt(line int, path, format string, args ...any) {
	if len(p.all) == maxTold {
		p.more++
		return
	}
	p.all = append(p.all, problem{path, fmt.Sprintf(format, args...), line})
}

// fault returns all problems as one fault, or nil if there are none.
func (p *problems) fault() error {
	if len(p.all) == 0 {
		return nil
	}
	// Problems of decoding come before those of validation; people read files from top to bottom.
	slices.SortStableFunc(p.all, func(a, b problem) int { return cmp.Compare(a.line, b.line) })
	lines := make([]string, len(p.all))
	for i, one := range p.all {
		lines[i] = one.String()
	}
	if len(lines) == 1 {
		f := fault.New(fault.Invalid, "%s", lines[0])
		f.Field = p.all[0].path
		return f
	}
	if p.more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", p.more))
	}
	return fault.New(fault.Invalid, "%d problems:\n  %s", len(p.all)+p.more, strings.Join(lines, "\n  "))
}

func (p problem) String() string {
	told := p.text
	if p.path != "" {
		told = p.path + ": " + told
	}
	if p.line > 0 {
		told += " (line " + strconv.Itoa(p.line) + ")"
	}
	return told
}

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
