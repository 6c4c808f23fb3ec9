package man_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/cli"
	"github.com/mainstay-infra/mainstay/cli/man"
)

func TestEveryListedCommandHasAPage(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "man1")
	stdio := cli.IO{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}
	if code := cli.Main(t.Context(), []string{"man", folder}, stdio); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	pages := map[string]bool{}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pages[e.Name()] = true
	}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		page := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1"
		if !pages[page] {
			t.Errorf("there is no %s", page)
		}
		delete(pages, page)
		for _, child := range cmd.Commands() {
			if child.IsAvailableCommand() {
				walk(child)
			}
		}
	}
	walk(cli.NewRoot(stdio))
	for page := range pages {
		t.Errorf("%s is of no command", page)
	}
	text, err := os.ReadFile(filepath.Join(folder, "mainstay-edge-site-list.1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		".TH \"MAINSTAY\\-EDGE\\-SITE\\-LIST\" 1 \"\" ", "\nmainstay\\-edge\\-site\\-list \\- List sites, oldest first\n",
		"\n\\fB\\-\\-limit\\fP \\fIint\\fP\nprint at most so many (default 100)\n", "\\fBmainstay\\-edge\\-site\\fP(1)",
		"\n.SH \"OPTIONS OF THE COMMANDS ABOVE\"\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}

func TestNoTextIsAMacroOrAnEscape(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	man.Page(&b, &cobra.Command{
		Use: "x", Short: ".so /etc/passwd", Long: "a\n.so b\n'c\n\\fBd", Run: func(*cobra.Command, []string) {},
	}, `1" "2`)
	page := b.String()
	if strings.Contains(page, "\n.so") || strings.Contains(page, "\n'c") || strings.Contains(page, "\\fBd") ||
		!strings.Contains(page, `"mainstay 1\(dq \(dq2"`) {
		t.Error(page)
	}
}
