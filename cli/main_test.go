package cli_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mainstay-infra/mainstay/cli"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
)

func run(t *testing.T, extra []*cobra.Command, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	code = cli.Main(
		t.Context(),
		args,
		cli.IO{
			In:        strings.NewReader(""),
			Out:       &o,
			Err:       &e,
			Getenv:    func(string) string { return "" },
			Dir:       t.TempDir(),
			ConfigDir: t.TempDir(),
		},
		extra...)
	return code, o.String(), e.String()
}

func TestExitCodesTellAWrongCommandLineFromAFailure(t *testing.T) {
	t.Parallel()
	fails := func() []*cobra.Command {
		return []*cobra.Command{
			{
				Use:  "fails",
				Args: cobra.NoArgs,
				RunE: func(*cobra.Command, []string) error { return errors.New("it broke") },
			},
		}
	}
	for line, want := range map[string]struct {
		code int
		err  string
	}{
		"":              {0, ""},
		"version":       {0, ""},
		"nonsense":      {2, "mainstay: unknown command \"nonsense\" for \"mainstay\"\nhint: see 'mainstay --help'\n"},
		"version extra": {2, "hint: see 'mainstay version --help'\n"},
		"--nonsense":    {2, "mainstay: unknown flag: --nonsense\n"},
		"fails":         {1, "mainstay: it broke\n"},
		"fails x":       {2, "mainstay: "},
		"vn":            {2, "unknown command \"vn\" for \"mainstay\"\nhint: did you mean vm?\n"},
		"edge ovrview":  {2, "did you mean overview?"},
		"edge nonsense": {2, `unknown command "nonsense" for "mainstay edge"`},
	} {
		code, _, errOut := run(t, fails(), strings.Fields(line)...)
		if code != want.code || !strings.Contains(errOut, want.err) {
			t.Errorf("%q: exit code %d, want %d; printed %q", line, code, want.code, errOut)
		}
	}
}

func TestTheHelpDocumentsTheExitCodes(t *testing.T) {
	t.Parallel()
	_, out, _ := run(t, nil, "--help")
	for _, want := range []string{"0  success", "4  no valid credentials"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}

func TestTheHelpListsShortFormsAndNoEarlierNames(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][2]string{
		"edge site list --help":   {"Short form:\n  ls\n", "Aliases"},
		"edge site delete --help": {"Short form:\n  rm\n", "remove"},
		"edge site show --help":   {"Show one site", "get"},
		"edge site --help":        {"Available Commands", "rename"},
		"fleet --help":            {"Available Commands", "cordon "},
	} {
		if _, out, _ := run(t, nil, strings.Fields(line)...); !strings.Contains(out, want[0]) || strings.Contains(out, want[1]) {
			t.Errorf("%s:\n%s", line, out)
		}
	}
}

func TestVersionIsForPeopleAndPrograms(t *testing.T) {
	t.Parallel()
	if _, out, _ := run(t, nil, "version"); !strings.HasPrefix(out, "mainstay "+telemetry.BuildInfo().Version+"\n") {
		t.Error(out)
	}
	if _, out, _ := run(t, nil, "--version"); out != "mainstay "+telemetry.BuildInfo().Version+"\n" {
		t.Error(out)
	}
	_, out, _ := run(t, nil, "version", "-o", "json")
	var b telemetry.Build
	if err := json.Unmarshal([]byte(out), &b); err != nil || b != telemetry.BuildInfo() {
		t.Errorf("%v %s", err, out)
	}
}

func TestCompletionIsThere(t *testing.T) {
	t.Parallel()
	if code, out, _ := run(t, nil, "completion", "bash"); code != 0 || !strings.Contains(out, "mainstay") {
		t.Errorf("%d", code)
	}
	if _, out, _ := run(t, nil, "__complete", "edge", "site", "list", "--output", ""); !strings.Contains(out, "yaml") {
		t.Error(out)
	}
}

func TestEveryCommandIsDocumented(t *testing.T) {
	t.Parallel()
	root := cli.NewRoot(cli.IO{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard})
	walk(root, func(cmd *cobra.Command) {
		path := cmd.CommandPath()
		if cmd.Short == "" {
			t.Errorf("%s has no Short", path)
		}
		if strings.HasPrefix(path, "mainstay edge") && !strings.Contains(cmd.Example, "mainstay edge") {
			t.Errorf("%s has no example", path)
		}
		if strings.HasPrefix(path, "mainstay edge") && cmd.InheritedFlags().Lookup("output") == nil &&
			cmd.PersistentFlags().Lookup("output") == nil {
			t.Errorf("%s has no --output", path)
		}
		// Only servers have lists of any length.
		asks := cmd.InheritedFlags().Lookup("server") != nil
		if cmd.Name() == "list" && asks && (cmd.Flags().Lookup("limit") == nil || cmd.Flags().Lookup("all") == nil) {
			t.Errorf("%s has no --limit or no --all", path)
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s: --%s has no usage", path, f.Name)
			}
			if inherits(cmd, f) &&
				path+" --"+f.Name != "mainstay vm wait --timeout" { // which has one sense there: how long to wait
				t.Errorf("%s: --%s hides an inherited flag", path, f.Name)
			}
		})
	})
}

func TestExamplesAreCommandLinesThatParse(t *testing.T) {
	t.Parallel()
	root := cli.NewRoot(cli.IO{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard})
	walk(root, func(cmd *cobra.Command) {
		for line := range strings.SplitSeq(strings.ReplaceAll(cmd.Example, "\\\n", ""), "\n") {
			_, line, ok := strings.Cut(line, "mainstay edge ")
			if !ok {
				continue
			}
			line, _, _ = strings.Cut(line, "$(sha256sum")
			found, rest, err := root.Find(append([]string{"edge"}, strings.Fields(line)...))
			if err != nil {
				t.Errorf("%q: %v", line, err)
				continue
			}
			for _, word := range rest {
				name, isFlag := strings.CutPrefix(word, "--")
				name, _, _ = strings.Cut(name, "=")
				if isFlag && found.Flags().Lookup(name) == nil && found.InheritedFlags().Lookup(name) == nil {
					t.Errorf("%q: %s has no flag --%s", line, found.CommandPath(), name)
				}
			}
		}
	})
}

// Scripts have these names, so they stay, but nobody is to learn them.
func TestOldNamesOfCommandsAndFlagsStayAndAreNotListed(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"edge site get s1":                      "mainstay edge site show",
		"edge site remove s1":                   "mainstay edge site delete",
		"edge site rename s1 new":               "mainstay edge site rename",
		"edge sites ls":                         "mainstay edge site list",
		"edge twin get d1":                      "mainstay edge twin show",
		"edge twin set d1 --data {}":            "mainstay edge twin update",
		"edge activity add hello":               "mainstay edge activity create",
		"edge crl get --pem":                    "mainstay edge crl show",
		"edge dl rm d1":                         "mainstay edge deadletter delete",
		"vm get web --url http://x":             "mainstay vm show",
		"vm rm web":                             "mainstay vm delete",
		"vm remove web":                         "mainstay vm delete",
		"image add a /b --url http://x":         "mainstay image create",
		"image remove a":                        "mainstay image delete",
		"image rename a b":                      "mainstay image rename",
		"image read-only a on":                  "mainstay image read-only",
		"fleet nodes --url http://x":            "mainstay fleet nodes",
		"fleet node host-1":                     "mainstay fleet node",
		"fleet cordon host-1":                   "mainstay fleet cordon",
		"fleet uncordon host-1":                 "mainstay fleet uncordon",
		"fleet deregister host-1":               "mainstay fleet deregister",
		"fleet vms --node host-1":               "mainstay fleet vms",
		"fleet create web --on host-1":          "mainstay fleet create",
		"fleet delete host-1 web":               "mainstay fleet delete",
		"lb vips --api-key-file f":              "mainstay lb vips",
		"lb backends --api-key-file f":          "mainstay lb backends",
		"lb drain 3 --api-key-file f":           "mainstay lb drain",
		"lb undrain 3":                          "mainstay lb undrain",
		"lb weight 3 10 --vip 192.0.2.1:80:tcp": "mainstay lb weight",
		"context rm prod":                       "mainstay context remove",
	} {
		root := cli.NewRoot(
			cli.IO{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}, &cobra.Command{Use: "lb", Short: "x"},
		)
		cmd, rest, err := root.Find(strings.Fields(line))
		if err == nil {
			err = cmd.ParseFlags(rest)
		}
		if err == nil {
			err = cmd.ValidateArgs(cmd.Flags().Args())
		}
		if err != nil || cmd.CommandPath() != want {
			t.Errorf("%s: %s, %v", line, cmd.CommandPath(), err)
			continue
		}
		typed := strings.Fields(line)[len(strings.Fields(want))-2]
		for _, sibling := range cmd.Parent().Commands() {
			if sibling.Name() == typed && sibling.IsAvailableCommand() && !sibling.HasSubCommands() {
				t.Errorf("%s: the help of %s lists %s", line, cmd.Parent().CommandPath(), typed)
			}
		}
		for _, name := range []string{"url", "api-key-file"} {
			if f := cmd.Flags().Lookup(name); f != nil && !f.Hidden {
				t.Errorf("%s: the help lists --%s", line, name)
			}
		}
	}
}

// inherits reports whether a command above cmd already has a flag of that name.
func inherits(cmd *cobra.Command, f *pflag.Flag) bool {
	for p := cmd.Parent(); p != nil; p = p.Parent() {
		if above := p.PersistentFlags().Lookup(f.Name); above != nil && above != f {
			return true
		}
	}
	return false
}

func walk(cmd *cobra.Command, f func(*cobra.Command)) {
	f(cmd)
	for _, child := range cmd.Commands() {
		walk(child, f)
	}
}
