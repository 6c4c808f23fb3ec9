package edge

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/cli/verb"
)

// show returns the command that shows one object.
func (s *session) show(noun, what string, r request) *cobra.Command {
	return s.Object(verb.Verb{
		Use: "show ID", Short: "Show one " + what,
		Example: fmt.Sprintf("  mainstay edge %s show ID\n  mainstay edge %s show ID -o yaml", noun, noun),
	}, r)
}

// delete returns the command that deletes one object. consequence may be empty.
func (s *session) delete(noun, what, consequence string, r request) *cobra.Command {
	return s.Remove(verb.Verb{
		Use: "delete ID", Short: "Delete one " + what,
		Example: fmt.Sprintf("  mainstay edge %s delete ID\n  mainstay edge %s delete ID --yes", noun, noun),
	}, "Delete "+what+" %s"+consequence+"?", "Deleted "+what+" %s.", r)
}
