package e2e

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"mvdan.cc/sh/v3/syntax"

	"github.com/mainstay-infra/mainstay/app"
	"github.com/mainstay-infra/mainstay/cli"
)

// tree makes the command as cmd/mainstay does.
func tree() *cobra.Command {
	return cli.NewRoot(cli.IO{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}, app.Commands()...)
}

// checkCommand says what is wrong with the arguments of mainstay. A mention names a command
// alone, and may leave out what it takes.
func checkCommand(args []string, mention bool) error {
	cmd, rest, err := tree().Find(args)
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return fmt.Errorf("%s: %w", cmd.CommandPath(), err)
	}
	given := cmd.Flags().Args()
	if cmd.HasSubCommands() && len(given) > 0 {
		return fmt.Errorf("%s has no command %q", cmd.CommandPath(), given[0])
	}
	if help, err := cmd.Flags().GetBool("help"); err == nil && help {
		return nil
	}
	if mention && len(given) == 0 {
		return nil
	}
	if err := cmd.ValidateArgs(given); err != nil {
		return fmt.Errorf("%s: %w", cmd.CommandPath(), err)
	}
	return cmd.ValidateRequiredFlags()
}

// commandsOf are the calls of mainstay in a line of shell, each with its arguments. What the
// shell would put in is "x".
func commandsOf(line string) (calls [][]string, err error) {
	file, err := syntax.NewParser().Parse(strings.NewReader(line), "")
	if err != nil {
		return nil, err
	}
	syntax.Walk(file, func(node syntax.Node) bool {
		call, ok := node.(*syntax.CallExpr)
		if !ok {
			return true
		}
		var words []string
		for _, w := range call.Args {
			words = append(words, textOf(w))
		}
		for len(words) > 0 && (words[0] == "sudo" || words[0] == "watch") {
			words = words[1:]
		}
		if len(words) > 0 &&
			slices.Contains([]string{"mainstay", "./bin/mainstay", "/usr/local/bin/mainstay"}, words[0]) {
			calls = append(calls, words[1:])
		}
		return true
	})
	return calls, nil
}

// textOf is a word as far as it stands there.
func textOf(w *syntax.Word) string {
	var b strings.Builder
	var write func([]syntax.WordPart)
	write = func(parts []syntax.WordPart) {
		for _, part := range parts {
			switch p := part.(type) {
			case *syntax.Lit:
				b.WriteString(p.Value)
			case *syntax.SglQuoted:
				b.WriteString(p.Value)
			case *syntax.DblQuoted:
				write(p.Parts)
			default:
				b.WriteString("x")
			}
		}
	}
	write(w.Parts)
	return b.String()
}

// found is how many command lines a test has checked, which must not be none.
type found struct {
	testing.TB
	count int
}

// line checks a line of shell. Whether it is one at all, only its begin tells.
func (f *found) line(where, line string, mention bool) {
	f.Helper()
	calls, err := commandsOf(line)
	if err != nil {
		if regexp.MustCompile(`^(\$ |sudo |\S*=\S* )*(\./bin/)?mainstay `).MatchString(line) {
			f.Errorf("%s: %s: %v", where, line, err)
		}
		return // what a program prints, or a document
	}
	for _, args := range calls {
		f.count++
		if err := checkCommand(args, mention); err != nil {
			f.Errorf("%s: mainstay %s: %v", where, strings.Join(args, " "), err)
		}
	}
}

var (
	codeSpan   = regexp.MustCompile("`((?:\\./bin/)?mainstay [^`]+)`")
	quotedHint = regexp.MustCompile(`'(mainstay [a-z][^'\n]*)'`)
	verbs      = regexp.MustCompile(`%[a-z]`)
)

func TestCommandLinesOfTheDocumentsAreThoseOfTheProgram(t *testing.T) {
	t.Parallel()
	f := &found{TB: t}
	documents := []string{"../README.md", "../CONTRIBUTING.md", "../web/README.md"}
	if err := filepath.WalkDir("../docs", func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			documents = append(documents, path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, path := range documents {
		text := readDocument(t, strings.TrimPrefix(path, "../"))
		blocks, err := steps(text)
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		for _, s := range blocks {
			where := fmt.Sprintf("%s:%d", path, s.line)
			typed := s.lines // unless prompts tell what is typed from what is printed
			if slices.ContainsFunc(s.lines, func(l string) bool { return strings.HasPrefix(l, prompt) }) {
				typed = nil
				for _, c := range s.commands() {
					typed = append(typed, c.text)
				}
			}
			for _, line := range strings.Split(strings.ReplaceAll(strings.Join(typed, "\n"), "\\\n", " "), "\n") {
				f.line(where, line, false)
			}
		}
		for i, line := range strings.Split(text, "\n") {
			if strings.HasPrefix(line, "    ") {
				continue
			}
			for _, m := range codeSpan.FindAllStringSubmatch(line, -1) {
				f.line(fmt.Sprintf("%s:%d", path, i+1), m[1], true)
			}
		}
	}
	if f.count < 60 {
		t.Errorf("only %d command lines were found", f.count)
	}
}

func TestCommandLinesOfTheUnitsAreThoseOfTheProgram(t *testing.T) {
	t.Parallel()
	f := &found{TB: t}
	units, err := filepath.Glob("../deploy/systemd/*.service")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range units {
		if strings.HasSuffix(path, "/mainstay-pam.service") {
			f.count++ // another program's, which its own tests start with these flags
			continue
		}
		for line := range strings.Lines(readDocument(t, strings.TrimPrefix(path, "../"))) {
			if command, ok := strings.CutPrefix(strings.TrimSpace(line), "ExecStart="); ok {
				f.line(path, command, false)
			}
		}
	}
	if f.count < len(units) || len(units) == 0 {
		t.Errorf("%d command lines in %d units", f.count, len(units))
	}
}

func TestExamplesOfEveryCommandAreCommandLinesOfTheProgram(t *testing.T) {
	t.Parallel()
	f := &found{TB: t}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, line := range strings.Split(strings.ReplaceAll(cmd.Example, "\\\n", " "), "\n") {
			f.line("examples of "+cmd.CommandPath(), strings.TrimSpace(line), false)
		}
		for _, child := range cmd.Commands() {
			walk(child)
		}
	}
	walk(tree())
	if f.count < 100 {
		t.Errorf("only %d command lines were found", f.count)
	}
}

// What an error tells its reader to do next must be possible.
func TestCommandsThatHintsNameAreThoseOfTheProgram(t *testing.T) {
	t.Parallel()
	f := &found{TB: t}
	for _, folder := range []string{"app", "cli", "kit", "service"} {
		if err := filepath.WalkDir(filepath.Join("..", folder), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
				strings.HasSuffix(path, ".gen.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range quotedHint.FindAllStringSubmatch(string(text), -1) {
				f.line(path, verbs.ReplaceAllString(m[1], "x"), true)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if f.count < 40 {
		t.Errorf("only %d hints were found", f.count)
	}
}

func TestACommandLineIsHeldAgainstTheProgram(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"mainstay vm wait web --for agent":                             "",
		"TOKEN=x sudo ./bin/mainstay dev --data /tmp/x":                "",
		"id=$(mainstay edge site list -o json | jq .) && mainstay dev": "",
		"mainstay vm exec web -- uname -a":                             "",
		"mainstay vm wait web running":                                 "unexpected argument",
		"mainstay vm wiat web":                                         "wiat",
		"mainstay vm start":                                            "VM is missing",
		"mainstay edge sites --nope":                                   "nope",
		"mainstay nope":                                                "nope",
		"mainstay dev extra":                                           "extra",
		"mainstay agent nope":                                          "nope",
	} {
		calls, err := commandsOf(line)
		if err != nil || len(calls) == 0 {
			t.Fatalf("%s: %v %v", line, calls, err)
		}
		var got error
		for _, args := range calls {
			if got == nil {
				got = checkCommand(args, false)
			}
		}
		if (got == nil) != (want == "") || got != nil && !strings.Contains(got.Error(), want) {
			t.Errorf("%s: %v, want %q", line, got, want)
		}
	}
}
