package configfile

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/mainstay-infra/mainstay/kit/document"
)

// maxNodes is the maximum number of values in a document after its aliases are expanded. The
// largest valid document has fewer.
const maxNodes = 1 << 19

// maxItems is the maximum length of a list, since no list may be longer than the number of all
// backends.
const maxItems = MaxBackends

// decoder reads YAML into structs by their tags: key, default, required, min, max.
type decoder struct {
	p     *document.Problems
	nodes int
}

// object reads a mapping into the struct v, which is at path.
func (d *decoder) object(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		d.p.AddAt(n.Line, path, "must be keys with values, not %s", describe(n))
		return
	}
	given := map[string]*yaml.Node{}
	fields := keysOf(v.Type())
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode {
			d.p.AddAt(key.Line, path, "a key must be a word, not %s", describe(key))
			continue
		}
		switch at := join(path, key.Value); {
		case key.Tag == "!!merge":
			d.p.AddAt(key.Line, path, "merge keys (<<) are not supported; write the values out")
		case !slices.Contains(fields, key.Value):
			if len(key.Value) > 64 { // too long for a misspelling
				d.p.AddAt(key.Line, path, "unknown key %s", quoted(key.Value))
			} else {
				d.p.AddAt(key.Line, at, "unknown key%s", nearest(key.Value, fields))
			}
		case given[key.Value] != nil:
			d.p.AddAt(key.Line, at, "is given twice, first in line %d", given[key.Value].Line)
		default:
			given[key.Value] = value
		}
	}
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		name := tag.Get("key")
		if name == "" {
			continue
		}
		value, ok := given[name]
		if ok {
			d.value(value, v.Field(i), tag, join(path, name))
			continue
		}
		if tag.Get("required") == "true" {
			d.p.AddAt(n.Line, join(path, name), "is required")
		}
		setDefaults(v.Field(i), tag)
	}
}

// setDefaults sets the defaults of v.
func setDefaults(v reflect.Value, tag reflect.StructTag) {
	if text := tag.Get("default"); text != "" {
		if err := setScalar(v, text, ""); err != nil {
			panic(fmt.Sprintf("configfile: %s: the default %v", tag.Get("key"), err)) // a bug in the tags
		}
	}
	if v.Kind() == reflect.Struct && isObject(v.Type()) {
		for i := range v.NumField() {
			setDefaults(v.Field(i), v.Type().Field(i).Tag)
		}
	}
}

// value reads one value of any kind.
func (d *decoder) value(n *yaml.Node, v reflect.Value, tag reflect.StructTag, path string) {
	n = resolve(n)
	if d.nodes++; d.nodes > maxNodes {
		if d.nodes == maxNodes+1 {
			d.p.AddAt(n.Line, path, "the document has more than %d values; are its aliases meant?", maxNodes)
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
	default:
		d.scalar(n, v, tag, path)
	}
}

func (d *decoder) list(n *yaml.Node, v reflect.Value, tag reflect.StructTag, path string) {
	if n.Kind != yaml.SequenceNode {
		d.p.AddAt(n.Line, path, "must be a list, not %s", describe(n))
		return
	}
	if len(n.Content) > maxItems {
		d.p.AddAt(n.Line, path, "has %d items, which is more than %d", len(n.Content), maxItems)
		return
	}
	items := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		d.value(item, items.Index(i), tag, path+"["+strconv.Itoa(i)+"]")
		if d.nodes > maxNodes {
			return
		}
	}
	v.Set(items)
}

func (d *decoder) scalar(n *yaml.Node, v reflect.Value, tag reflect.StructTag, path string) {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		d.p.AddAt(n.Line, path, "must be a single value, not %s", describe(n))
		return
	}
	err := setScalar(v, n.Value, n.Tag)
	if err == nil {
		err = inBounds(v, tag)
	}
	if err == nil && tag.Get("ipv4") == "true" && strings.Contains(n.Value, ":") { // also ::ffff:10.0.0.1
		err = fmt.Errorf("must be an IPv4 address, not %s", quoted(n.Value))
	}
	if err != nil {
		d.p.AddAt(n.Line, path, "%v", err)
	}
}

// isObject distinguishes structs with keys from structs that are single values.
func isObject(t reflect.Type) bool { return t.Kind() == reflect.Struct && len(keysOf(t)) > 0 }

// keysOf returns the keys of a struct, in order.
func keysOf(t reflect.Type) (keys []string) {
	for i := range t.NumField() {
		if key := t.Field(i).Tag.Get("key"); key != "" {
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
