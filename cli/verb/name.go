package verb

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
)

// Object is what an argument is looked up in. Owner distinguishes objects with equal names; it may be
// empty.
type Object struct{ ID, Name, Owner string }

// Lookup finds objects by their names.
type Lookup struct {
	What string // "site"
	List string // the command that lists them: "mainstay edge site list"
	// Exact refuses the beginning of an ID. Use it where something is destroyed: IDs that were made
	// within a minute share their first eight characters.
	Exact bool
}

// ID returns the ID of the object that an argument names: by the exact name, the exact ID or, unless
// l.Exact is set, by the beginning of exactly one ID. An argument that has the form of an ID is not
// looked up.
func ID[T, A any](
	ctx context.Context, c *Call[A], l Lookup, arg string, of func(T) Object,
	list func(context.Context, Page) (*http.Response, error),
) (string, error) {
	if uuid.Validate(arg) == nil {
		return arg, nil
	}
	var named, byID, begun []Object
	if _, err := c.Pages(0, func(items []json.RawMessage) error {
		for _, item := range items {
			v, err := client.Decode[T](c.api.Service, client.Answer{Body: item}, nil)
			if err != nil {
				return err
			}
			switch o := of(v); {
			case o.Name == arg:
				named = append(named, o)
			case o.ID == arg:
				byID = append(byID, o)
			case strings.HasPrefix(o.ID, arg):
				begun = append(begun, o)
			}
		}
		return nil
	}, func(p Page) (*http.Response, error) { return list(ctx, p) }); err != nil {
		return "", err
	}
	found := named
	if len(found) == 0 {
		found = byID
	}
	if len(found) == 0 && !l.Exact {
		found = begun
	}
	switch len(found) {
	case 1:
		return found[0].ID, nil
	case 0:
		err := fmt.Errorf("there is no %s %s", l.What, output.Escape(arg))
		if len(begun) > 0 {
			err = fmt.Errorf("there is no %s %s; the beginning of an ID is not enough here", l.What, output.Escape(arg))
		}
		return "", &exit.Error{Code: exit.NotFound, Err: err, Hint: fmt.Sprintf("'%s' shows what there is", l.List)}
	}
	return "", exit.Usagef(
		"several %ss match %s; name one by its ID: %s", l.What, output.Escape(arg), output.Escape(listed(found)),
	)
}

// listed names a few objects.
func listed(found []Object) string {
	const most = 5
	var texts []string
	for _, o := range found[:min(len(found), most)] {
		text := o.ID
		if o.Owner != "" {
			text += " (" + o.Owner + ")"
		}
		texts = append(texts, text)
	}
	if more := len(found) - most; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, ", ")
}
