package edge

import (
	"context"
	"maps"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s *session) siteLabel() *cobra.Command {
	return s.Object(verb.Verb{
		Use: "label SITE LABEL...", Short: "Set labels (key=value) and remove them (key-)",
		Long: `Set labels (key=value) and remove them (key-); the others stay.

The API replaces all labels at once, so this reads them first: of two people who label the same site in the same
moment, one may undo the other's change.`,
		Example: "  mainstay edge site label plant-7 region=eu tier=gold\n  mainstay edge site label plant-7 tier-",
		Check: func(_ *cobra.Command, args []string) error {
			_, err := labelChange(args[1:])
			return err
		},
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		change, err := labelChange(c.Args[1:])
		if err != nil {
			return nil, err
		}
		site, err := decode[edgeapi.Site](c.Send(c.API.GetSite(ctx, c.Args[0])))
		if err != nil {
			return nil, err
		}
		labels := edgeapi.Labels{}
		maps.Copy(labels, site.Labels)
		change(labels)
		return c.API.PatchSite(ctx, c.Args[0], edgeapi.SitePatch{Labels: &labels})
	})
}

// labelChange parses key=value and key- and returns a function that applies them.
func labelChange(args []string) (func(edgeapi.Labels), error) {
	set, unset := verb.Pairs{}, []string{}
	for _, arg := range args {
		if key, ok := strings.CutSuffix(arg, "-"); ok && key != "" && !strings.Contains(key, "=") {
			unset = append(unset, key)
		} else if err := set.Set(arg); err != nil {
			return nil, exit.Usagef("label %q must be KEY=VALUE, or KEY- to remove it", arg)
		}
	}
	return func(labels edgeapi.Labels) {
		for _, key := range unset {
			delete(labels, key)
		}
		maps.Copy(labels, set)
	}, nil
}
