package config

import (
	"strings"

	"github.com/spf13/pflag"
)

// flagValue keeps the text of a flag for Load. Set accepts everything, because
// pflag would repeat a refused value, which may be a secret, and would stop at
// the first.
type flagValue struct {
	kind    string
	text    string
	changed bool
}

func (v *flagValue) String() string { return v.text }
func (v *flagValue) Type() string   { return v.kind }

func (v *flagValue) Set(s string) error {
	if v.kind == "list" && v.changed {
		s = v.text + "," + s // --groups a --groups b
	}
	v.text, v.changed = s, true
	return nil
}

// BindFlags adds one flag for each setting of cfg to fs. Their values are
// checked and stored by Load. It panics when fs has a flag of that name.
func BindFlags(fs *pflag.FlagSet, cfg any, prefix string) {
	for _, s := range Settings(cfg, prefix) {
		flag := fs.VarPF(&flagValue{kind: s.Type, text: s.Default}, s.Key, "", usage(&s))
		if s.Type == "bool" {
			flag.NoOptDefVal = "true"
		}
	}
}

func usage(s *Setting) string {
	// pflag takes the first word in back quotes for the name of the value.
	text := strings.ReplaceAll(s.Help, "`", "'")
	if span := s.span(); span != "" {
		text += " Allowed: " + span + "."
	}
	text += " [" + s.Env
	if s.Secret {
		text += ", or a path in " + s.fileEnv()
	}
	return strings.TrimSpace(text + "]")
}
