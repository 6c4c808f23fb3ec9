package app

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// engine is an external program or feature that a service can use.
type engine struct {
	name    string
	present func() (where string, ok bool)
	costs   string // what does not work without it
	install string
}

func onPath(name string) func() (string, bool) {
	return func() (string, bool) {
		path, err := exec.LookPath(name)
		return path, err == nil
	}
}

// engines returns the engines that the services can use, sorted by the services' names.
func engines() (all []engine) {
	units := unitsThat(func(u Unit) bool { return u.engines != nil })
	slices.SortFunc(units, func(a, b Unit) int { return strings.Compare(a.Name, b.Name) })
	for _, u := range units {
		all = append(all, u.engines()...)
	}
	return all
}

func doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "doctor",
		Short:   "Show what is installed, what is missing, and what that costs",
		Example: "  mainstay doctor",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 2, 8, 2, ' ', 0)
			_, _ = fmt.Fprintln(w, "ENGINE\tSTATE\tWITHOUT IT\tINSTALL")
			for _, e := range engines() {
				if where, ok := e.present(); ok {
					_, _ = fmt.Fprintf(w, "%s\tfound: %s\t\t\n", e.name, where)
				} else {
					_, _ = fmt.Fprintf(w, "%s\tmissing\t%s\t%s\n", e.name, e.costs, e.install)
				}
			}
			return w.Flush()
		},
	}
}
