package config

import (
	"fmt"
	"strings"
)

// Markdown returns a table of the settings in the given order: key, environment variable, default,
// and description with limits.
func Markdown(settings []Setting) string {
	var b strings.Builder
	b.WriteString("| key | environment | default | what it does |\n|---|---|---|---|\n")
	for _, s := range settings {
		env, help, value := code(s.Env), cell(s.Help), ""
		if s.Secret {
			env += ", " + code(s.fileEnv())
			help += " Secret; " + code(s.fileEnv()) + " is the path of a file that holds it."
		}
		if span := s.span(); span != "" {
			help += " Allowed: " + span + "."
		}
		if s.Default != "" {
			value = code(s.Default)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", code(s.Key), env, value, strings.TrimSpace(help))
	}
	return b.String()
}

func code(s string) string { return "`" + cell(s) + "`" }

// cell escapes text for a table cell.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(strings.TrimSpace(s))
}
