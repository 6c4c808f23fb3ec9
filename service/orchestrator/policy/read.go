package policy

import (
	_ "embed"
	"fmt"
	"regexp"

	"github.com/mainstay-infra/mainstay/kit/document"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

//go:embed rules.yaml
var builtIn []byte

// file is a file of rules.
type file struct {
	Rules []Rule `json:"rules" required:"true" items:"500" help:"The rules."`
}

var syntax = document.Syntax{
	MaxBytes: 1 << 20, MaxValues: 1 << 14, MaxItems: 500, Needs: "it needs rules",
	Forms: map[string]document.Form{
		"id": {Pattern: regexp.MustCompile(`^[a-z](-?[a-z0-9])*$`), Max: 63, Says: "lower-case letters, digits and single hyphens"},
	},
}

// BuiltIn returns the rules that every orchestrator has.
func BuiltIn() (*Rules, error) { return (&Rules{}).With(builtIn) }

// With returns the rules with those of a file. A rule replaces the one of the same id.
func (r *Rules) With(raw []byte) (*Rules, error) {
	var f file
	problems, _ := syntax.Decode(raw, &f)
	env, err := newEnv()
	if err != nil {
		return nil, fault.Wrap(fault.Internal, err, "rules cannot be compiled")
	}
	all := append([]compiled{}, r.all...)
	seen := map[string]bool{}
	for i := range f.Rules {
		rule := &f.Rules[i]
		at := fmt.Sprintf("rules[%d]", i)
		if rule.ID != "" && seen[rule.ID] {
			problems.Add(at+".id", "is that of another rule, too")
			continue
		}
		seen[rule.ID] = true
		if len(rule.Sets) == 0 {
			problems.Add(at+".sets", "is required")
		}
		if rule.Holds == "" {
			continue // which is told already
		}
		program, err := compile(env, rule)
		if err != nil {
			problems.Add(at+".holds", "%v", err)
			continue
		}
		all = replace(all, compiled{*rule, program})
	}
	if err := problems.Fault(); err != nil {
		return nil, err
	}
	return &Rules{all}, nil
}

func replace(all []compiled, one compiled) []compiled {
	for i := range all {
		if all[i].ID == one.ID {
			all[i] = one
			return all
		}
	}
	return append(all, one)
}

// List returns the rules.
func (r *Rules) List() []Rule {
	out := make([]Rule, len(r.all))
	for i := range r.all {
		out[i] = r.all[i].Rule
	}
	return out
}
