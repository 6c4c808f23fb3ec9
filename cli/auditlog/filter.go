package auditlog

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/cli/input"
)

// Filter holds the flags that filter the list of an audit log. Flags that were not given are nil.
type Filter struct {
	Actor, Action, Target, Result, Search *string
	From, To                              *time.Time
}

// Filters adds the flags of a Filter to cmd. The returned function reads them once cmd runs. action
// is an example of an action for the help.
func Filters(cmd *cobra.Command, action string) func() Filter {
	var actor, wanted, target, result, search string
	var from, to input.Moment
	f := cmd.Flags()
	f.StringVar(&actor, "actor", "", "only what this caller did")
	f.StringVar(&wanted, "action", "", "only this action, for example "+action)
	f.StringVar(&target, "target", "", "only what was done to the object with this id")
	f.StringVar(&result, "result", "", "only entries with this result: ok, error or denied")
	f.StringVar(&search, "search", "",
		"only entries with this text in action, target, message, actor or detail")
	f.Var(&from, "from", "only from this time on, or from so long ago")
	f.Var(&to, "to", "only before this time")
	given := func(flag string, value *string) *string {
		if !f.Changed(flag) {
			return nil
		}
		return value
	}
	return func() Filter {
		return Filter{
			Actor: given("actor", &actor), Action: given("action", &wanted), Target: given("target", &target),
			Result: given("result", &result), Search: given("search", &search), From: from.At, To: to.At,
		}
	}
}
