package edge

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/cli/verb"
)

// show returns the command that shows one object. arg is its placeholder.
func (s *session) show(noun, arg, what string, r request) *cobra.Command {
	return s.Object(verb.Verb{
		Use: "show " + arg, Short: "Show one " + what,
		Example: fmt.Sprintf("  mainstay edge %s show %s\n  mainstay edge %s show %s -o yaml", noun, arg, noun, arg),
	}, r)
}

// delete returns the command that deletes one object. arg is its placeholder; consequence may be empty.
func (s *session) delete(noun, arg, what, consequence string, r request) *cobra.Command {
	return s.Remove(verb.Verb{
		Use: "delete " + arg, Short: "Delete one " + what,
		Example: fmt.Sprintf("  mainstay edge %s delete %s\n  mainstay edge %s delete %s --yes", noun, arg, noun, arg),
	}, "Delete "+what+" %s"+consequence+"?", "Deleted "+what+" %s.", r)
}
