package document

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/mainstay-infra/mainstay/kit/text"
)

// Syntax is how documents of a kind are written: in YAML, or in JSON, which is a subset of it. The keys are those of a
// struct by its tags:
//
//   - key: the name of the key; without it, the one of the tag json. Fields with neither are not read.
//   - required: "true" if the key must be given.
//   - default: the value of a key that is not given, as it would be written.
//   - min, max: the bounds of numbers and durations, inclusive. Those of a list are its items'.
//   - enum: the words that a text may be, with blanks between them.
//   - form: the name of the Form that a text must have.
//   - items: the most items of a list, or keys of a map.
//   - help: what the key means, in sentences, for the reference.
type Syntax struct {
	MaxBytes int // of a document
	// MaxValues limits the values after aliases are expanded. The largest valid document has fewer.
	MaxValues int
	MaxItems  int // of lists and maps without the tag items
	// Needs ends the message about an empty document, for example "it needs at least the key interface".
	Needs string
	// Lenient turns unknown keys into warnings.
	Lenient bool
	// Scalars are the types of single values beyond Go's own, time.Duration and netip.Addr.
	Scalars map[reflect.Type]Scalar
	Forms   map[string]Form
}

// Scalar is a type of single values.
type Scalar struct {
	Name    string // in the reference
	Pattern string // in the JSON Schema; empty: any
	// Parse returns a value of the type. Its error completes a sentence that starts with the path of the value.
	Parse func(text string) (any, error)
}

// Decode reads a document into the struct that into points to, which is complete only if there are no problems. They
// know the lines of the document, so that checks across values can add to them. Warnings are about unknown keys, if the
// syntax is lenient.
func (s *Syntax) Decode(raw []byte, into any) (problems, warnings *Problems) {
	p, w := &Problems{}, &Problems{}
	if len(raw) > s.MaxBytes {
		p.Add("", "the document is larger than %d bytes", s.MaxBytes)
		return p, w
	}
	var parsed yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	switch err := dec.Decode(&parsed); {
	case errors.Is(err, io.EOF):
		p.Add("", "the document is empty; %s", s.Needs)
		return p, w
	case err != nil:
		text := strings.TrimPrefix(err.Error(), "yaml: ")
		if strings.Contains(text, "anchor") {
			// YAML's error repeats the value, which may be a password.
			text = "a value begins with * and does not name an anchor; put it in quotes"
		}
		p.Add("", "the document is not valid YAML: %s", text)
		return p, w
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		p.Add("", "the file has a second document, or what follows the first is not valid YAML")
		return p, w
	}
	root := parsed.Content[0]
	line := func(path string) int { return lineOf(root, path) }
	p.Line, w.Line = line, line
	d := &decoder{s: s, p: p, unknown: p}
	if s.Lenient {
		d.unknown = w
	}
	d.object(root, reflect.ValueOf(into).Elem(), "")
	return p, w
}

// decoder reads YAML into structs.
type decoder struct {
	s          *Syntax
	p, unknown *Problems
	values     int
}

// object reads a mapping into the struct v, which is at path.
func (d *decoder) object(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		d.p.AddAt(n.Line, path, "must be keys with values, not %s", describe(n))
		return
	}
	fields := keysOf(v.Type())
	given := d.keys(n, path, func(key *yaml.Node) bool {
		if slices.Contains(fields, key.Value) {
			return true
		}
		if len(key.Value) > 64 { // too long for a misspelling
			d.unknown.AddAt(key.Line, path, "unknown key %s", Quoted(key.Value))
		} else {
			d.unknown.AddAt(key.Line, join(path, key.Value), "unknown key%s", nearest(key.Value, fields))
		}
		return false
	})
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name := keyOf(field)
		if name == "" {
			continue
		}
		value, ok := given[name]
		if ok {
			d.value(value, v.Field(i), field.Tag, join(path, name))
			continue
		}
		if field.Tag.Get("required") == "true" {
			d.p.AddAt(n.Line, join(path, name), "is required")
		}
		d.s.setDefaults(v.Field(i), field.Tag)
	}
}

// keys returns the values of a mapping by their keys, of which those are left out that known does not know.
func (d *decoder) keys(n *yaml.Node, path string, known func(key *yaml.Node) bool) map[string]*yaml.Node {
	given := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode {
			d.p.AddAt(key.Line, path, "a key must be a word, not %s", describe(key))
			continue
		}
		switch {
		case key.Tag == "!!merge":
			d.p.AddAt(key.Line, path, "merge keys (<<) are not supported; write the values out")
		case !known(key):
		case given[key.Value] != nil:
			d.p.AddAt(key.Line, join(path, key.Value), "is given twice, first in line %d", given[key.Value].Line)
		default:
			given[key.Value] = value
		}
	}
	return given
}

// setDefaults sets the defaults of v.
func (s *Syntax) setDefaults(v reflect.Value, tag reflect.StructTag) {
	if text := tag.Get("default"); text != "" {
		if err := s.setScalar(v, text, ""); err != nil {
			panic(fmt.Sprintf("document: %s: the default %v", tag, err)) // a bug in the tags
		}
	}
	if v.Kind() == reflect.Struct && isObject(v.Type()) {
		for i := range v.NumField() {
			s.setDefaults(v.Field(i), v.Type().Field(i).Tag)
		}
	}
}

// value reads one value of any kind.
func (d *decoder) value(n *yaml.Node, v reflect.Value, tag reflect.StructTag, path string) {
	n = resolve(n)
	if d.values++; d.values > d.s.MaxValues {
		if d.values == d.s.MaxValues+1 {
			d.p.AddAt(n.Line, path, "the document has more than %d values; are its aliases meant?", d.s.MaxValues)
		}
		return
	}
	switch t := v.Type(); {
	case t.Kind() == reflect.Pointer:
		v.Set(reflect.New(t.Elem()))
		d.object(n, v.Elem(), path)
	case isObject(t):
		d.object(n, v, path)
	case t.Kind() == reflect.Slice:
		d.list(n, v, tag, path)
	case t.Kind() == reflect.Map:
		d.table(n, v, tag, path)
	default:
		d.scalar(n, v, tag, path)
	}
}

// tooMany reports a list, or a map, with more items than it may have.
func (d *decoder) tooMany(n *yaml.Node, items int, tag reflect.StructTag, path string) bool {
	most := d.s.MaxItems
	if text := tag.Get("items"); text != "" {
		var err error
		if most, err = strconv.Atoi(text); err != nil {
			panic(fmt.Sprintf("document: %s: %v", tag, err)) // a bug in the tags
		}
	}
	if items > most {
		d.p.AddAt(n.Line, path, "has %d items, which is more than %d", items, most)
	}
	return items > most
}

func (d *decoder) list(n *yaml.Node, v reflect.Value, tag reflect.StructTag, path string) {
	if n.Kind != yaml.SequenceNode {
		d.p.AddAt(n.Line, path, "must be a list, not %s", describe(n))
		return
	}
	if d.tooMany(n, len(n.Content), tag, path) {
		return
	}
	items := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		d.value(item, items.Index(i), tag, path+"["+strconv.Itoa(i)+"]")
		if d.values > d.s.MaxValues {
			return
		}
	}
	v.Set(items)
}

// table reads a mapping whose keys the document chooses.
func (d *decoder) table(n *yaml.Node, v reflect.Value, tag reflect.StructTag, path string) {
	if n.Kind != yaml.MappingNode {
		d.p.AddAt(n.Line, path, "must be keys with values, not %s", describe(n))
		return
	}
	given := d.keys(n, path, func(*yaml.Node) bool { return true })
	if d.tooMany(n, len(given), tag, path) {
		return
	}
	v.Set(reflect.MakeMapWithSize(v.Type(), len(given)))
	for key, value := range given {
		item := reflect.New(v.Type().Elem()).Elem()
		d.value(value, item, tag, join(path, key))
		v.SetMapIndex(reflect.ValueOf(key), item)
	}
}

func (d *decoder) scalar(n *yaml.Node, v reflect.Value, tag reflect.StructTag, path string) {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		d.p.AddAt(n.Line, path, "must be a single value, not %s", describe(n))
		return
	}
	err := d.s.setScalar(v, n.Value, n.Tag)
	if err == nil {
		err = cmp.Or(d.s.inBounds(v, tag), d.s.wellFormed(n.Value, tag))
	}
	if err != nil {
		d.p.AddAt(n.Line, path, "%v", err)
	}
}

// isObject distinguishes structs with keys from structs that are single values.
func isObject(t reflect.Type) bool { return t.Kind() == reflect.Struct && len(keysOf(t)) > 0 }

// keyOf returns the key of a field, or "".
func keyOf(f reflect.StructField) string {
	name, _, _ := strings.Cut(cmp.Or(f.Tag.Get("key"), f.Tag.Get("json")), ",")
	if name == "-" {
		return ""
	}
	return name
}

// keysOf returns the keys of a struct, in order.
func keysOf(t reflect.Type) (keys []string) {
	for i := range t.NumField() {
		if key := keyOf(t.Field(i)); key != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// describe describes the kind of a node, for errors.
func describe(n *yaml.Node) string {
	switch n = resolve(n); {
	case n.Kind == yaml.MappingNode:
		return "keys with values"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!null":
		return "nothing"
	}
	return "a single value"
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

// Quoted returns a value of the document in quotes, escaped and shortened to 64 bytes.
func Quoted(s string) string {
	const most = 64
	if len(s) > most {
		return strconv.Quote(s[:most]) + "..."
	}
	return strconv.Quote(s)
}
