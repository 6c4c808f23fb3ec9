package verb

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
)

// Object is what an argument is looked up in. Owner distinguishes objects with equal names. Name and
// Owner may be empty.
type Object struct{ ID, Name, Owner string }

// Kind is a kind of object that arguments and flags name.
type Kind[A any] struct {
	What   string   // "site"
	Listed string   // the command that lists them: "mainstay edge site list"
	Flags  []string // the flags whose values name such objects
	// List requests a page of them, and Get one by its ID. Get may be nil.
	List   func(ctx context.Context, c *Call[A], p Page) (*http.Response, error)
	Get    func(ctx context.Context, c *Call[A], id string) (*http.Response, error)
	Object func(json.RawMessage) (Object, error)
	// Searched means that List passes Page.Search on, and that the server finds objects by a part of
	// their name or ID.
	Searched bool
	// OwnIDs means that people choose the IDs, as those of devices, so an argument is first taken for an
	// ID. Other IDs are UUIDs.
	OwnIDs bool
	// AsTyped means that commands get the argument as it was typed: the API takes names, or the command
	// looks it up itself.
	AsTyped bool
}

// As returns a function that decodes an item of a list.
func As[T any](s *client.Service, of func(T) Object) func(json.RawMessage) (Object, error) {
	return func(raw json.RawMessage) (Object, error) {
		v, err := client.Decode[T](s, client.Answer{Body: raw}, nil)
		if err != nil {
			return Object{}, err
		}
		return of(v), nil
	}
}

// largestLookup is how many objects are looked through for a name.
const largestLookup = 20 * largestPage

// longestSearch is the length of the longest text that servers search for, in characters.
const longestSearch = 128

// ID returns the ID of the object that an argument names: by the exact name, the exact ID or, unless
// exact is set, by the beginning of exactly one ID. exact is for commands that destroy something: IDs
// that were made within a minute share their first eight characters. An argument that has the form of
// an ID is not looked up.
func (c *Call[A]) ID(ctx context.Context, kind, arg string, exact bool) (string, error) {
	key := [2]string{kind, arg}
	if id, known := c.found[key]; known {
		return id, nil
	}
	o, err := c.Find(ctx, c.api.Kinds[kind], arg, exact)
	if err == nil {
		c.found[key] = o.ID
	}
	if o.Name != "" {
		c.namesOf(kind)[o.ID] = o.Name
	}
	return o.ID, err
}

// namesOf returns the names that are known, by ID.
func (c *Call[A]) namesOf(kind string) map[string]string {
	if c.named[kind] == nil {
		c.named[kind] = map[string]string{}
	}
	return c.named[kind]
}

// Find returns the object that an argument names, as ID does.
func (c *Call[A]) Find(ctx context.Context, k *Kind[A], arg string, exact bool) (Object, error) {
	if uuid.Validate(arg) == nil {
		return Object{ID: arg}, nil
	}
	if k.OwnIDs {
		a, err := c.Send(k.Get(ctx, c, arg))
		if err == nil {
			return k.Object(a.Body)
		}
		if exit.Code(err) != exit.NotFound {
			return Object{}, err
		}
	}
	var named, byID, begun []Object
	more, err := c.Pages(largestLookup, func(items []json.RawMessage) error {
		for _, item := range items {
			o, err := k.Object(item)
			switch {
			case err != nil:
				return err
			case o.Name == arg:
				named = append(named, o)
			case o.ID == arg:
				byID = append(byID, o)
			case strings.HasPrefix(o.ID, arg):
				begun = append(begun, o)
			}
		}
		return nil
	}, func(p Page) (*http.Response, error) {
		if k.Searched && utf8.RuneCountInString(arg) <= longestSearch {
			p.Search = &arg
		}
		return k.List(ctx, c, p)
	})
	if err != nil {
		return Object{}, err
	}
	if more {
		return Object{}, exit.Usagef(
			"there are more than %d %ss, too many to search; name it by its whole ID instead of %s", largestLookup, k.What,
			output.Escape(arg),
		)
	}
	found := named
	if len(found) == 0 {
		found = byID
	}
	if len(found) == 0 && !exact {
		found = begun
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		err := fmt.Errorf("there is no %s %s", k.What, output.Escape(arg))
		if len(begun) > 0 {
			err = fmt.Errorf("there is no %s %s; the beginning of an ID is not enough here", k.What, output.Escape(arg))
		}
		return Object{}, &exit.Error{Code: exit.NotFound, Err: err, Hint: fmt.Sprintf("'%s' shows what there is", k.Listed)}
	}
	return Object{}, exit.Usagef(
		"several %ss match %s; name one by its ID: %s", k.What, output.Escape(arg), output.Escape(listed(found, arg)),
	)
}

// listed names a few objects that arg may mean.
func listed(found []Object, arg string) string {
	const most = 5
	var texts []string
	for _, o := range found[:min(len(found), most)] {
		var more []string
		for _, detail := range []string{o.Name, o.Owner} {
			if detail != "" && detail != arg {
				more = append(more, detail)
			}
		}
		text := o.ID
		if len(more) > 0 {
			text += " (" + strings.Join(more, ", ") + ")"
		}
		texts = append(texts, text)
	}
	if more := len(found) - most; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, ", ")
}

// placeholders returns the names of the arguments in the Use of a command, without brackets and dots.
func placeholders(use string) []string {
	names := strings.Fields(use)[1:]
	for i, name := range names {
		names[i] = strings.Trim(name, "[].")
	}
	return names
}

// resolve replaces names in arguments and flags by IDs. Typed keeps the arguments.
func (c *Call[A]) resolve(ctx context.Context, exact bool) error {
	if c.noToken != nil {
		return nil // such tokens, as those of agents, may not list anything
	}
	for i, name := range placeholders(c.Cmd.Use) {
		if k := c.api.Kinds[name]; k == nil || k.AsTyped || i >= len(c.Args) {
			continue
		}
		id, err := c.ID(ctx, name, c.Args[i], exact)
		if err != nil {
			return err
		}
		c.Args[i] = id
	}
	for _, name := range slices.Sorted(maps.Keys(c.api.Kinds)) { // always in the same order
		k := c.api.Kinds[name]
		if k.AsTyped {
			continue
		}
		for _, flag := range k.Flags {
			if err := c.resolveFlag(ctx, name, c.Cmd.Flags().Lookup(flag), exact); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Call[A]) resolveFlag(ctx context.Context, kind string, f *pflag.Flag, exact bool) error {
	if f == nil || !f.Changed {
		return nil
	}
	list, isList := f.Value.(pflag.SliceValue)
	values := []string{f.Value.String()}
	if isList {
		values = list.GetSlice()
	}
	for i, value := range values {
		if value == "" {
			continue // as in --site '', which may remove the site
		}
		id, err := c.ID(ctx, kind, value, exact)
		if err != nil {
			return fmt.Errorf("--%s: %w", f.Name, err)
		}
		values[i] = id
	}
	if isList {
		return list.Replace(values)
	}
	return f.Value.Set(values[0])
}

// largestNames is how many objects are asked for to show their names in a column.
const largestNames = 5 * largestPage

// names returns the names of objects by their IDs, as far as they are known: an ID without a name is
// shown itself. It sends one request for a single ID, and otherwise reads the list once.
func (c *Call[A]) names(ctx context.Context, kind string, ids []string) map[string]string {
	k := c.api.Kinds[kind]
	if k == nil || c.noToken != nil {
		return nil
	}
	known := c.namesOf(kind)
	ids = slices.DeleteFunc(ids, func(id string) bool { _, ok := known[id]; return ok })
	keep := func(items ...json.RawMessage) error {
		for _, item := range items {
			o, err := k.Object(item)
			if err != nil {
				return err
			}
			known[o.ID] = o.Name
		}
		return nil
	}
	// Names are a convenience. A caller who may not read these objects gets their IDs.
	switch {
	case len(ids) == 0:
	case len(ids) == 1 && k.Get != nil:
		if a, err := c.Send(k.Get(ctx, c, ids[0])); err == nil {
			_ = keep(a.Body)
		}
	case !c.readAll[kind]:
		c.readAll[kind] = true
		_, _ = c.Pages(largestNames, func(items []json.RawMessage) error { return keep(items...) },
			func(p Page) (*http.Response, error) { return k.List(ctx, c, p) })
	}
	for _, id := range ids {
		if _, ok := known[id]; !ok {
			known[id] = "" // not to be asked for again
		}
	}
	return known
}

// Complete makes the shell complete the arguments and flags of cmd and all commands below it that name
// objects.
func (s *Session[A]) Complete(cmd *cobra.Command) {
	for _, child := range cmd.Commands() {
		s.Complete(child)
	}
	names := placeholders(cmd.Use)
	if len(names) > 0 && cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = func(
			cmd *cobra.Command, args []string, typed string,
		) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) < len(names) {
				if k := s.api.Kinds[names[len(args)]]; k != nil {
					return s.candidates(cmd, k, typed), cobra.ShellCompDirectiveNoFileComp
				}
			}
			return nil, cobra.ShellCompDirectiveDefault
		}
	}
	for _, k := range s.api.Kinds {
		for _, flag := range k.Flags {
			if cmd.Flags().Lookup(flag) == nil {
				continue
			}
			// This fails only for a flag that does not exist, or that is completed already.
			_ = cmd.RegisterFlagCompletionFunc(flag, func(
				cmd *cobra.Command, _ []string, typed string,
			) ([]cobra.Completion, cobra.ShellCompDirective) {
				return s.candidates(cmd, k, typed), cobra.ShellCompDirectiveNoFileComp
			})
		}
	}
}

// completionTime limits how long the shell waits for completions.
const completionTime = 2 * time.Second

// candidates returns the names that begin with what was typed, and IDs of what has no name that a shell
// takes, or whose ID begins with it. It is silent when something fails, since whoever presses Tab has
// not asked anything yet.
func (s *Session[A]) candidates(cmd *cobra.Command, k *Kind[A], typed string) []cobra.Completion {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	c, err := s.begin(cmd, nil)
	if err != nil || s.noToken != nil {
		return nil
	}
	var all []cobra.Completion
	size := largestPage
	a, err := c.Send(k.List(ctx, c, Page{Limit: &size}))
	items, err := client.Decode[[]json.RawMessage](c.api.Service, a, err)
	if err != nil {
		return nil
	}
	for _, item := range items {
		o, err := k.Object(item)
		switch {
		case err != nil:
			return nil
		case !k.OwnIDs && simple(o.Name) && strings.HasPrefix(o.Name, typed):
			if !slices.Contains(all, o.Name) {
				all = append(all, o.Name)
			}
		case simple(o.ID) && strings.HasPrefix(o.ID, typed) && (typed != "" || k.OwnIDs || !simple(o.Name)):
			all = append(all, cobra.CompletionWithDesc(o.ID, output.Escape(o.Name)))
		}
	}
	return all
}

// simple reports whether a shell takes a name as one word, without quotes.
func simple(name string) bool {
	// A name that begins with a dash would be taken for a flag.
	return name != "" && name[0] != '-' && output.Escape(name) == name && !strings.ContainsAny(name, " \"'`\\$&|;<>()*?[]#~!{}")
}
