package inventory

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/mainstay-infra/mainstay/kit/document"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
)

const (
	// maxFile is the most bytes of a file, and maxVolumes how many volumes it may list.
	maxFile    = 32 << 20
	maxVolumes = 100_000
	maxPools   = 1000
	// maxName is the most bytes of a name, and maxSummary of a sentence.
	maxName    = 253
	maxSummary = 1000
	// maxBytes is the largest size, so that a thousand pools can be added up.
	maxBytes = 1 << 52
)

// content is what a valid file tells.
type content struct {
	id, name, summary string
	health            driver.Health
	pools             []driver.Pool
	volumes           []driver.Volume
}

// readFile reads a file. Its errors are faults of kind Unavailable without the path.
func readFile(path string) (*content, error) {
	raw, err := document.Read(path, maxFile)
	if err != nil {
		said := strings.ReplaceAll(fault.From(err).Message, path, "its file")
		return nil, fault.Wrap(fault.Unavailable, err, "%s", said)
	}
	c, err := parse(raw)
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "its file is not valid: %s", fault.From(err).Message)
	}
	return c, nil
}

// parse reads YAML, of which JSON is a part.
func parse(raw []byte) (*content, error) {
	var top yaml.Node
	from := yaml.NewDecoder(bytes.NewReader(raw))
	p := &document.Problems{}
	switch err := from.Decode(&top); {
	case errors.Is(err, io.EOF):
		p.Add("", "it is empty")
		return nil, p.Fault()
	case err != nil:
		p.AddAt(line(err), "", "it is neither YAML nor JSON")
		return nil, p.Fault()
	}
	if err := from.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		p.Add("", "something follows the document")
		return nil, p.Fault()
	}
	c := &content{}
	r := &reader{p}
	r.object(top.Content[0], "", func(f fields) {
		c.id, c.name = f.text("id", maxName, true), f.text("name", maxName, false)
		c.summary, c.health = f.text("summary", maxSummary, false), f.health(driver.Unknown)
		r.list(f.take("pools", true), "pools", maxPools, func(f fields) { c.pools = append(c.pools, f.pool(c)) })
		r.list(f.take("volumes", true), "volumes", maxVolumes, func(f fields) { c.volumes = append(c.volumes, f.volume()) })
	})
	if p.None() {
		c.check(p)
	}
	return c, p.Fault()
}

// lines finds the number of a line in an error of the parser. The rest may have text of the file.
var lines = regexp.MustCompile(`\bline (\d{1,9})\b`)

// line returns the line of an error of the parser; 0: it names none.
func line(err error) int {
	found := lines.FindStringSubmatch(err.Error())
	if found == nil {
		return 0
	}
	n, _ := strconv.Atoi(found[1]) // it consists of digits
	return n
}

// word matches what may be the name of a field that somebody has misspelled. What else stands in a file that is no
// inventory is not repeated: messages are seen by more people than the file.
var word = regexp.MustCompile(`^[a-z][a-z_]{0,29}$`)

// named returns the path of a field.
func (f fields) named(key string) string {
	if !word.MatchString(key) {
		return strings.TrimSuffix(f.path, ".")
	}
	return f.path + key
}

// check checks what belongs together.
func (c *content) check(p *document.Problems) {
	pools := map[string]bool{}
	for i, pool := range c.pools {
		if pools[pool.Name] {
			p.Add(at("pools", i)+".name", "there are two pools of that name")
		}
		if pool.Used > pool.Max {
			p.Add(at("pools", i)+".used_bytes", "is more than capacity_bytes")
		}
		pools[pool.Name] = true
	}
	volumes := map[driver.Name]bool{}
	for i, v := range c.volumes {
		if !pools[v.Pool] {
			p.Add(at("volumes", i)+".pool", "there is no such pool")
		}
		if volumes[v.Name] {
			p.Add(at("volumes", i)+".name", "there are two volumes of that name in the pool")
		}
		volumes[v.Name] = true
	}
}

func at(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

// reader reads nodes, and collects what is wrong with them.
type reader struct{ p *document.Problems }

func (r *reader) wrong(n *yaml.Node, path, format string, args ...any) {
	r.p.AddAt(n.Line, path, format, args...)
}

// fields are those of an object. What is taken is removed; what is left is not known.
type fields struct {
	*reader
	node *yaml.Node
	path string // with a dot, if it is not empty
	all  map[string]*yaml.Node
}

// object reads an object, whose fields read takes.
func (r *reader) object(n *yaml.Node, path string, read func(fields)) {
	if n.Kind != yaml.MappingNode {
		r.wrong(n, path, "must be an object")
		return
	}
	f := fields{reader: r, node: n, path: path, all: map[string]*yaml.Node{}}
	if path != "" {
		f.path += "."
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		switch {
		case key.Kind != yaml.ScalarNode || !printable(key.Value, maxName):
			r.wrong(key, path, "has a key that is not text")
		case f.all[key.Value] != nil:
			r.wrong(key, f.named(key.Value), "is there twice")
		default:
			f.all[key.Value] = n.Content[i+1]
		}
	}
	read(f)
	for key, left := range f.all {
		if !word.MatchString(key) {
			r.wrong(left, f.named(key), "has a field that inventories do not have")
			continue
		}
		r.wrong(left, f.named(key), "there is no such field")
	}
}

// list reads a list of objects.
func (r *reader) list(n *yaml.Node, path string, limit int, read func(fields)) {
	switch {
	case n == nil:
	case n.Kind != yaml.SequenceNode:
		r.wrong(n, path, "must be a list")
	case len(n.Content) > limit:
		r.wrong(n, path, "has more than %d entries", limit)
	default:
		for i, one := range n.Content {
			r.object(one, at(path, i), read)
		}
	}
}

// take returns a field, or nil if it is not there.
func (f fields) take(name string, required bool) *yaml.Node {
	n := f.all[name]
	if n == nil && required {
		f.wrong(f.node, f.path+name, "is missing")
	}
	delete(f.all, name)
	return n
}

func printable(text string, limit int) bool {
	return text != "" && len(text) <= limit && utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool {
		return !unicode.IsPrint(r)
	})
}

func (f fields) text(name string, limit int, required bool) string {
	n := f.take(name, required)
	if n == nil {
		return ""
	}
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" || !printable(n.Value, limit) {
		f.wrong(n, f.path+name, "must be a text of at most %d bytes without control characters", limit)
	}
	return n.Value
}

// bytes reads a size; missing if it is not there.
func (f fields) bytes(name string, required bool, missing int64) int64 {
	n := f.take(name, required)
	if n == nil {
		return missing
	}
	size, err := strconv.ParseInt(n.Value, 10, 64)
	if n.Kind != yaml.ScalarNode || n.Tag != "!!int" || err != nil || size < 0 || size > maxBytes {
		f.wrong(n, f.path+name, "must be a whole number of bytes from 0 to %d", int64(maxBytes))
	}
	return size
}

// oneOf reads one of some words; usual if it is not there.
func (f fields) oneOf(name, usual string, words ...string) string {
	n := f.take(name, false)
	if n == nil {
		return usual
	}
	if n.Kind != yaml.ScalarNode || !slices.Contains(words, n.Value) {
		f.wrong(n, f.path+name, "must be %s", strings.Join(words, " or "))
	}
	return n.Value
}

func (f fields) health(usual driver.Health) driver.Health {
	return driver.Health(f.oneOf(
		"health", string(usual), string(driver.Healthy), string(driver.Warning), string(driver.Critical), string(driver.Unknown),
	))
}

func (f fields) pool(of *content) driver.Pool {
	return driver.Pool{
		Name: f.text("name", maxName, true), Kind: driver.PoolOther, Max: f.bytes("capacity_bytes", true, 0),
		Used: f.bytes("used_bytes", true, 0), Health: f.health(of.health), Replicas: 1,
	}
}

func (f fields) volume() driver.Volume {
	v := driver.Volume{
		Name: driver.Name{Pool: f.text("pool", maxName, true), Native: f.text("name", maxName, true)}, Foreign: true,
		Kind: driver.Kind(f.oneOf("kind", string(driver.Block), string(driver.Block), string(driver.Filesystem))),
		Size: f.bytes("size_bytes", true, 0), Used: f.bytes("used_bytes", false, -1), Enforced: true,
	}
	if n := f.take("created_at", false); n != nil {
		var err error
		if v.CreatedAt, err = time.Parse(time.RFC3339, n.Value); n.Kind != yaml.ScalarNode || err != nil {
			f.wrong(n, f.path+"created_at", "must be a time such as 2026-01-31T12:00:00Z")
		}
	}
	return v
}
