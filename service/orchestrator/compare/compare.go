// Package compare tells how two documents differ: two revisions of a workload, or what is wanted and what is there.
//
// Documents are trees as encoding/json reads them into an any. Items of lists that all have a name are compared with
// those of the same name, wherever they are in their lists. Other items are compared by their places.
package compare

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
)

// Type is how a value differs.
type Type string

// The types.
const (
	Added   Type = "added"
	Removed Type = "removed"
	Changed Type = "changed"
)

// Change is a difference. What is added or removed is told as a whole.
type Change struct {
	Path string // for example network.ports[http].port; empty: the document
	Type Type
	From any // nil if it is added
	To   any // nil if it is removed
}

func (c Change) String() string {
	switch c.Type {
	case Added:
		return fmt.Sprintf("+ %s: %s", c.Path, text(c.To))
	case Removed:
		return fmt.Sprintf("- %s: %s", c.Path, text(c.From))
	}
	return fmt.Sprintf("~ %s: %s -> %s", c.Path, text(c.From), text(c.To))
}

func text(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return "?"
	}
	return string(raw)
}

// Tree returns a value as encoding/json would read it again.
func Tree(v any) (any, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var tree any
	return tree, json.Unmarshal(raw, &tree)
}

// Trees returns the differences from one tree to another, in the order of their paths.
func Trees(from, to any) []Change { return appendChanges(nil, "", from, to) }

// Covers returns how a tree falls short of a wanted one: what is missing in it, or has another value. What it has
// beyond that is not a difference, since runtimes add defaults of their own.
func Covers(want, have any) []Change {
	return slices.DeleteFunc(Trees(want, have), func(c Change) bool { return c.Type == Added })
}

func appendChanges(all []Change, path string, from, to any) []Change {
	if reflect.DeepEqual(from, to) {
		return all
	}
	switch f := from.(type) {
	case map[string]any:
		if t, ok := to.(map[string]any); ok {
			return appendKeys(all, f, t, func(key string) string {
				if path == "" {
					return key
				}
				return path + "." + key
			})
		}
	case []any:
		if t, ok := to.([]any); ok {
			at := func(key string) string { return path + "[" + key + "]" }
			if fn, tn := named(f), named(t); fn != nil && tn != nil {
				return appendKeys(all, fn, tn, at)
			}
			for i := range max(len(f), len(t)) {
				switch key := at(strconv.Itoa(i)); {
				case i >= len(f):
					all = append(all, Change{key, Added, nil, t[i]})
				case i >= len(t):
					all = append(all, Change{key, Removed, f[i], nil})
				default:
					all = appendChanges(all, key, f[i], t[i])
				}
			}
			return all
		}
	}
	return append(all, Change{path, Changed, from, to})
}

func appendKeys(all []Change, from, to map[string]any, at func(key string) string) []Change {
	keys := map[string]bool{}
	for key := range from {
		keys[key] = true
	}
	for key := range to {
		keys[key] = true
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		f, inFrom := from[key]
		t, inTo := to[key]
		switch {
		case !inFrom:
			all = append(all, Change{at(key), Added, nil, t})
		case !inTo:
			all = append(all, Change{at(key), Removed, f, nil})
		default:
			all = appendChanges(all, at(key), f, t)
		}
	}
	return all
}

// named returns the items of a list by their names, or nil if not all of them have one of their own.
func named(list []any) map[string]any {
	all := map[string]any{}
	for _, item := range list {
		object, ok := item.(map[string]any)
		if !ok {
			return nil
		}
		name, ok := object["name"].(string)
		if _, twice := all[name]; !ok || twice {
			return nil
		}
		all[name] = item
	}
	return all
}
