package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
)

func version() *cobra.Command {
	var style output.Style
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Show what this program was built from",
		Example: "  mainstay version\n  mainstay version -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := output.NewPrinter(cmd.OutOrStdout(), style)
			build := telemetry.BuildInfo()
			if !style.People() {
				return p.Value(build)
			}
			_, err := fmt.Fprintf(p.Out, "mainstay %s\n", build.Version)
			if err != nil {
				return err
			}
			return p.Rows([][]any{{"Commit", build.Commit}, {"Date", build.Date}, {"Go", build.GoVersion}})
		},
	}
	style.AddFlags(cmd)
	return cmd
}
