package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A step is what a document tells its reader to do in a terminal, or to see there.
type step struct {
	line     int    // in the document
	terminal string // empty: nobody runs it
	lines    []string
	press    string // a key instead of lines
	stays    bool   // the last command continues while the reader continues elsewhere
}

// marker is a comment that readers do not see. It stands before the block that it is of:
//
//	<!-- terminal: 1 -->            the block is typed into terminal 1, or is printed there
//	<!-- terminal: 1; stays -->     ... and its last command continues
//
// or alone, where the text says what to do:
//
//	<!-- terminal: 1; press Ctrl-C -->
//	<!-- terminal: 1; run make run; stays -->
var marker = regexp.MustCompile(`^<!-- terminal: (\w+)((?:; [^;]+)*) -->$`)

// steps reads a document's indented blocks and their markers.
func steps(text string) (found []step, err error) {
	var pending *step // a marker whose block has not come yet
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		switch line := lines[i]; {
		case strings.HasPrefix(line, "```"):
			return nil, fmt.Errorf("line %d: a fenced block; blocks are indented by four spaces here", i+1)
		case strings.HasPrefix(line, "<!-- terminal"):
			if pending != nil {
				return nil, fmt.Errorf("line %d: no block follows this marker", pending.line)
			}
			s, alone, err := parseMarker(line, i+1)
			if err != nil {
				return nil, err
			}
			if alone {
				found = append(found, s)
			} else {
				pending = &s
			}
		case strings.HasPrefix(line, "    ") && (i == 0 || lines[i-1] == "" || strings.HasPrefix(lines[i-1], "<!--")):
			s := step{line: i + 1}
			if pending != nil {
				s.terminal, s.stays, pending = pending.terminal, pending.stays, nil
			}
			for ; i < len(lines) && (strings.HasPrefix(lines[i], "    ") || lines[i] == "" && i+1 < len(lines) && strings.HasPrefix(lines[i+1], "    ")); i++ {
				s.lines = append(s.lines, strings.TrimPrefix(lines[i], "    "))
			}
			i--
			found = append(found, s)
		case line != "" && pending != nil:
			return nil, fmt.Errorf("line %d: no block follows this marker", pending.line)
		}
	}
	if pending != nil {
		return nil, fmt.Errorf("line %d: no block follows this marker", pending.line)
	}
	return found, nil
}

func parseMarker(line string, number int) (s step, alone bool, err error) {
	m := marker.FindStringSubmatch(line)
	if m == nil {
		return s, false, fmt.Errorf("line %d: a marker that cannot be read: %s", number, line)
	}
	s = step{line: number, terminal: m[1]}
	for option := range strings.SplitSeq(strings.TrimPrefix(m[2], "; "), "; ") {
		verb, rest, _ := strings.Cut(option, " ")
		switch {
		case option == "":
		case option == "stays":
			s.stays = true
		case option == "press Ctrl-C":
			s.press, alone = "\x03", true
		case verb == "run" && rest != "":
			s.lines, alone = []string{"$ " + rest}, true
		default:
			return s, false, fmt.Errorf("line %d: an option that is not known: %s", number, option)
		}
	}
	return s, alone, nil
}

// typing is what is typed after a prompt, and what is shown to follow.
type typing struct {
	text  string // empty: the lines are printed by what was started before
	shown []string
}

const prompt = "$ "

// commands takes a block apart. A command continues after a backslash at the line's end.
func (s step) commands() (all []typing) {
	for i := 0; i < len(s.lines); i++ {
		line := s.lines[i]
		if !strings.HasPrefix(line, prompt) {
			if len(all) == 0 {
				all = append(all, typing{})
			}
			last := &all[len(all)-1]
			last.shown = append(last.shown, line)
			continue
		}
		text := strings.TrimPrefix(line, prompt)
		for strings.HasSuffix(text, `\`) && i+1 < len(s.lines) {
			i++
			text += "\n" + s.lines[i]
		}
		all = append(all, typing{text: text})
	}
	return all
}

// readDocument reads a document of the repository.
func readDocument(t testing.TB, path string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// volatile is what differs from run to run, and what stands for it. What is left of a line
// must be as it is shown.
var volatile = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`), "ID"},
	{regexp.MustCompile(`\bdemo-[a-z0-9]{5}\b`), "demo-ID"},
	{regexp.MustCompile(`(Mainstay|Version) +(?:[0-9a-f]{7,40}|v[0-9][^ ]*|dev)(?:-dirty)?\b`), "$1 VERSION"},
	{regexp.MustCompile(`\((?:tcg|kvm)\)`), "(ACCELERATOR)"},
	{regexp.MustCompile(`[▁▂▃▄▅▆▇█░]+`), " "},
	{regexp.MustCompile(`\d+(?:[.:]\d+)*`), "N"},
	{regexp.MustCompile(`[ \t]+`), " "},
}

func stable(line string) string {
	for _, v := range volatile {
		line = v.pattern.ReplaceAllString(line, v.with)
	}
	return strings.TrimSpace(line)
}

// looksLike says whether a line is as it is shown; "..." within a shown line is any text.
func looksLike(line, shown string) bool {
	parts := strings.Split(shown, "...")
	for i, part := range parts {
		parts[i] = regexp.QuoteMeta(strings.TrimSpace(stable(part)))
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(stable(line))
}

// follows says whether lines are as they are shown, one for one; a shown line "..." is any
// number of lines. Loose lines may have others between them, which programs in the
// background print. When they are not, missing is the shown line that is not there.
func follows(lines, shown []string, loose bool) (missing string) {
	gap := loose
	at := 0
	for _, want := range shown {
		switch {
		case strings.TrimSpace(want) == "...":
			gap = true
			continue
		case strings.TrimSpace(want) == "":
			continue
		}
		i := at
		for i < len(lines) && !looksLike(lines[i], want) {
			if !gap {
				return want
			}
			i++
		}
		if i == len(lines) {
			return want
		}
		at, gap = i+1, loose
	}
	if !gap && at < len(lines) {
		return "the end, but there is: " + lines[at]
	}
	return ""
}

func TestBlocksOfADocumentAreReadWithTheirMarkers(t *testing.T) {
	t.Parallel()
	found, err := steps(
		"Text.\n\n    make run\n\n<!-- terminal: 1; stays -->\n\n    $ a \\\n        b\n    shown\n\n    more\n    $ c\n\nText\n<!-- terminal: 1; press Ctrl-C -->\n<!-- terminal: 2; run make run; stays -->\n",
	)
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 4 {
		t.Fatalf("%d steps: %+v", len(found), found)
	}
	if s := found[0]; s.terminal != "" || s.line != 3 {
		t.Errorf("%+v", s)
	}
	if s := found[1]; s.terminal != "1" || !s.stays || len(s.commands()) != 2 ||
		s.commands()[0].text != "a \\\n    b" ||
		!slices.Equal(s.commands()[0].shown, []string{"shown", "", "more"}) ||
		s.commands()[1].text != "c" {
		t.Errorf("%+v %+v", s, s.commands())
	}
	if s := found[2]; s.press != "\x03" {
		t.Errorf("%+v", s)
	}
	if s := found[3]; s.terminal != "2" || !s.stays || s.commands()[0].text != "make run" {
		t.Errorf("%+v", s)
	}
	for _, wrong := range []string{"<!-- terminal: 1 -->\nText\n", "<!-- terminal: 1 -->\n", "<!-- terminal 1 -->\n", "<!-- terminal: 1; runs -->\n\n    $ a\n", "```\nx\n```\n"} {
		if found, err := steps(wrong); err == nil {
			t.Errorf("%q: %+v", wrong, found)
		}
	}
}

func TestOutputIsHeldAgainstWhatIsShown(t *testing.T) {
	t.Parallel()
	printed := []string{
		"Mainstay abcdef0-dirty is running.",
		"edge  http://127.0.0.1:8080  SQLite",
		"11:42:07 POST 01a1fde9-e97b-74ee-8dd5-a1a52153e8a5 unchecked {\"a\":1,\"b\":2}",
	}
	for _, c := range []struct {
		shown string
		loose bool
		good  bool
	}{
		{"Mainstay 0332267 is running.|edge http://127.0.0.1:9 SQLite|1:2:3 POST 01a1fde9-e97b-74ee-8dd5-a1a52153e8a6 unchecked {\"a\":7, ... }", false, true},
		{"Mainstay v1.2 is running.|...", false, true},
		{"...|edge  http://127.0.0.1:8080  SQLite|...", false, true},
		{"edge  http://127.0.0.1:8080  SQLite", true, true},
		{"edge  http://127.0.0.1:8080  SQLite", false, false},
		{"Mainstay 0332267 is running.", false, false},
		{"Mainstay 0332267 runs.|...", false, false},
		{"...|lb ...", false, false},
		{"...|edge ...|Mainstay ...", true, false},
	} {
		if missing := follows(printed, strings.Split(c.shown, "|"), c.loose); (missing == "") != c.good {
			t.Errorf("%q (loose: %t): missing %q", c.shown, c.loose, missing)
		}
	}
}
