package edge

import (
	"context"
	"maps"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/exit"
)

func (s *session) siteLabel() *cobra.Command {
	return s.object(verb{
		use: "label ID LABEL...", short: "Set labels (key=value) and remove them (key-)",
		long: `Set labels (key=value) and remove them (key-); the others stay.

The API replaces all labels at once, so this reads them first: of two people who label the same site in the same
moment, one may undo the other's change.`,
		example: "  mainstay edge site label ID region=eu tier=gold\n  mainstay edge site label ID tier-",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		change, err := labelChange(c.args[1:])
		if err != nil {
			return nil, err
		}
		site, err := decode[edgeapi.Site](c.send(c.api.GetSite(ctx, c.args[0])))
		if err != nil {
			return nil, err
		}
		labels := edgeapi.Labels{}
		maps.Copy(labels, site.Labels)
		change(labels)
		return c.api.PatchSite(ctx, c.args[0], edgeapi.SitePatch{Labels: &labels})
	})
}

// labelChange parses key=value and key- and returns a function that applies them.
func labelChange(args []string) (func(edgeapi.Labels), error) {
	set, unset := pairs{}, []string{}
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
