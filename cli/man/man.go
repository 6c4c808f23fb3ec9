// Package man writes manual pages of a command and all commands below it, for packages to install.
package man

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// New returns the command `man`, which writes the pages. It is not listed, since it is for those who
// build packages.
func New(version string) *cobra.Command {
	return &cobra.Command{
		Use: "man FOLDER", Short: "Write the manual pages to a folder", Hidden: true,
		Example: "  mainstay man /usr/share/man/man1", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			return pages(cmd.Root(), args[0], version)
		},
	}
}

// pages writes the page of cmd, and those of the commands below it that are listed.
func pages(cmd *cobra.Command, folder, version string) (err error) {
	file, err := os.Create(filepath.Join(folder, name(cmd)+".1"))
	if err != nil {
		return err
	}
	w := bufio.NewWriter(file)
	Page(w, cmd, version)
	if err := cmp.Or(w.Flush(), file.Close()); err != nil {
		return err
	}
	for _, child := range listed(cmd) {
		if err := pages(child, folder, version); err != nil {
			return err
		}
	}
	return nil
}

func listed(cmd *cobra.Command) []*cobra.Command {
	return slices.DeleteFunc(slices.Clone(cmd.Commands()), func(c *cobra.Command) bool { return !c.IsAvailableCommand() })
}

// name returns the name of a command's page: mainstay-edge-site-list.
func name(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// Page writes the page of one command, without a date, so that equal programs have equal pages. w keeps
// its errors for later, as a bufio.Writer does.
func Page(w io.Writer, cmd *cobra.Command, version string) {
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	p := page{w}
	p.line(`.TH %s 1 "" %s %s`, quote(strings.ToUpper(name(cmd))), quote("mainstay "+version), quote("Mainstay"))
	p.section("NAME")
	p.line(`%s \- %s`, escape(name(cmd)), escape(cmd.Short))
	p.section("SYNOPSIS")
	p.line(`\fB%s\fP%s`, escape(cmd.CommandPath()), escape(strings.TrimPrefix(cmd.UseLine(), cmd.CommandPath())))
	p.section("DESCRIPTION")
	p.text(cmp.Or(cmd.Long, cmd.Short))
	if children := listed(cmd); len(children) > 0 {
		p.section("COMMANDS")
		for _, child := range children {
			p.line(".TP")
			p.line(`\fB%s\fP`, escape(child.Name()))
			p.text(child.Short)
		}
	}
	p.flags("OPTIONS", cmd.NonInheritedFlags())
	p.flags("OPTIONS OF THE COMMANDS ABOVE", cmd.InheritedFlags())
	if cmd.Example != "" {
		p.section("EXAMPLES")
		p.literal(cmd.Example)
	}
	p.section("SEE ALSO")
	var others []string
	if cmd.HasParent() {
		others = append(others, name(cmd.Parent()))
	}
	for _, child := range listed(cmd) {
		others = append(others, name(child))
	}
	for i, other := range others {
		others[i] = `\fB` + escape(other) + `\fP(1)`
	}
	p.line("%s", strings.Join(others, ",\n"))
}

type page struct{ w io.Writer }

func (p page) line(format string, args ...any) { _, _ = fmt.Fprintf(p.w, format+"\n", args...) } // see Page

func (p page) section(title string) { p.line(".SH %s", quote(title)) }

// text writes paragraphs. Indented lines stay as they are.
func (p page) text(text string) {
	for i, paragraph := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if i > 0 {
			p.line(".PP")
		}
		if strings.Contains("\n"+paragraph, "\n  ") {
			p.literal(paragraph)
			continue
		}
		p.line("%s", escape(paragraph))
	}
}

func (p page) literal(text string) {
	p.line(".nf")
	p.line("%s", escape(text))
	p.line(".fi")
}

func (p page) flags(title string, set *pflag.FlagSet) {
	if !set.HasAvailableFlags() {
		return
	}
	p.section(title)
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		names := `\fB` + escape("--"+f.Name) + `\fP`
		if f.Shorthand != "" {
			names = `\fB` + escape("-"+f.Shorthand) + `\fP, ` + names
		}
		kind, usage := pflag.UnquoteUsage(f)
		if kind != "" {
			names += ` \fI` + escape(kind) + `\fP`
		}
		p.line(".TP")
		p.line("%s", names)
		if usual := f.DefValue; !slices.Contains([]string{"", "false", "0", "[]", "0s"}, usual) {
			usage += fmt.Sprintf(" (default %s)", usual)
		}
		p.text(usage)
	})
}

// escape makes a text safe for roff: no character of it is a macro or an escape.
func escape(text string) string {
	lines := strings.Split(strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}

func quote(text string) string { return `"` + strings.ReplaceAll(escape(text), `"`, `\(dq`) + `"` }
