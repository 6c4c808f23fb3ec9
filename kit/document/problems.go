package document

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// maxListed is how many problems a fault lists.
const maxListed = 50

// Problems collects what is wrong with a document. The zero value is ready to use.
type Problems struct {
	// Line returns the line of what is at a path, 0 if it is unknown; nil: no line is known.
	Line func(path string) int

	all  []problem
	more int // beyond maxListed
}

type problem struct {
	path, text string
	line       int
}

// Add adds a problem with the value at a path, such as vips[2].port. The text ends a sentence that
// begins with the path. An empty path stands for the whole document.
func (p *Problems) Add(path, format string, args ...any) {
	line := 0
	if p.Line != nil && len(p.all) < maxListed {
		line = p.Line(path)
	}
	p.AddAt(line, path, format, args...)
}

// AddAt is like Add for a known line; 0 means none.
func (p *Problems) AddAt(line int, path, format string, args ...any) {
	if len(p.all) == maxListed {
		p.more++
		return
	}
	p.all = append(p.all, problem{path, fmt.Sprintf(format, args...), line})
}

// None reports whether there are no problems.
func (p *Problems) None() bool { return len(p.all) == 0 }

// Fault returns a fault of kind Invalid with a line for each problem, in the order of the document,
// or nil if there are none. If there is only one, the fault's Field is its path.
func (p *Problems) Fault() error {
	if p.None() {
		return nil
	}
	lines := p.Lines()
	if len(p.all) == 1 && p.more == 0 {
		f := fault.New(fault.Invalid, "%s", lines[0])
		f.Field = p.all[0].path
		return f
	}
	return fault.New(fault.Invalid, "%d problems:\n  %s", len(p.all)+p.more, strings.Join(lines, "\n  "))
}

// Lines returns the problems, each in a line, in the order of the document.
func (p *Problems) Lines() []string {
	p.sort()
	lines := make([]string, len(p.all))
	for i, one := range p.all {
		lines[i] = one.String()
	}
	if p.more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", p.more))
	}
	return lines
}

// sort brings the problems into the order of the document. Decoding finds its own before validation does, but people
// read files from top to bottom.
func (p *Problems) sort() {
	slices.SortStableFunc(p.all, func(a, b problem) int { return cmp.Compare(a.line, b.line) })
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
