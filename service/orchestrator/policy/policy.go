package policy

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"

	"github.com/mainstay-infra/mainstay/service/orchestrator/spec"
)

// Sets of rules.
const (
	Production  = "production"
	Development = "development"
)

// Rule is a rule as a file has it.
type Rule struct {
	ID       string   `json:"id" required:"true" form:"id" help:"What the rule is called."`
	Severity string   `json:"severity" required:"true" enum:"critical high medium low" help:"How much it matters."`
	Sets     []string `json:"sets" enum:"production development" items:"2" help:"The sets that it is part of."`
	Path     string   `json:"path" required:"true" help:"The key of the document that it is about."`
	Holds    string   `json:"holds" required:"true" help:"A CEL expression that is true for workloads that keep the rule."`
	Reason   string   `json:"reason" required:"true" help:"Why."`
	Fix      string   `json:"fix" required:"true" help:"What to do about it."`
}

// severities are from the one that matters most.
var severities = []string{"critical", "high", "medium", "low"}

// Violation is a rule that a workload does not keep.
type Violation struct {
	ID, Severity, Path, Reason, Fix string
	// Failed is why the rule could not be evaluated; empty: it could.
	Failed string
}

// Result is the outcome of a check.
type Result struct {
	Set        string
	Checked    int // rules
	Violations []Violation
}

// Blocks reports whether there is a violation that matters at least so much.
func (r *Result) Blocks(severity string) bool {
	return slices.ContainsFunc(r.Violations, func(v Violation) bool {
		return slices.Index(severities, v.Severity) <= slices.Index(severities, severity)
	})
}

// Rules are rules that are compiled. They are safe for concurrent use.
type Rules struct{ all []compiled }

type compiled struct {
	Rule
	program cel.Program
}

// maxCost bounds the evaluation of a rule: some milliseconds.
const maxCost = 1_000_000

// compile returns the program of a rule.
func compile(env *cel.Env, r *Rule) (cel.Program, error) {
	ast, issues := env.Compile(r.Holds)
	if issues.Err() != nil {
		return nil, fmt.Errorf("is not a valid expression: %w", issues.Err())
	}
	if ast.OutputType() != cel.BoolType && ast.OutputType() != cel.DynType {
		return nil, fmt.Errorf("must be true or false, not of the type %s", ast.OutputType())
	}
	return env.Program(ast, cel.CostLimit(maxCost))
}

func newEnv() (*cel.Env, error) {
	return cel.NewEnv(cel.Variable("spec", cel.MapType(cel.StringType, cel.DynType)), ext.Strings(), ext.Sets())
}

// Check checks a workload against the rules of a set.
func (r *Rules) Check(set string, s *spec.Spec) *Result {
	input := map[string]any{"spec": value(reflect.ValueOf(s))}
	out := &Result{Set: set, Violations: []Violation{}}
	for i := range r.all {
		rule := &r.all[i]
		if !slices.Contains(rule.Sets, set) {
			continue
		}
		out.Checked++
		v := Violation{ID: rule.ID, Severity: rule.Severity, Path: rule.Path, Reason: rule.Reason, Fix: rule.Fix}
		switch result, _, err := rule.program.Eval(input); {
		case err != nil:
			v.Failed = err.Error()
		case result.Value() == true:
			continue
		case result.Value() != false:
			v.Failed = fmt.Sprintf("the expression is %v, neither true nor false", result.Type())
		}
		out.Violations = append(out.Violations, v)
	}
	slices.SortFunc(out.Violations, func(a, b Violation) int {
		return cmp.Or(
			cmp.Compare(slices.Index(severities, a.Severity), slices.Index(severities, b.Severity)), cmp.Compare(a.ID, b.ID),
		)
	})
	return out
}

// value returns a part of a workload as rules see it: with all its keys, also those that the document does not have.
// Processors are in thousandths, memory and disk in bytes, and durations in seconds.
func value(v reflect.Value) any {
	switch d := v.Interface().(type) {
	case spec.Duration:
		return int64(time.Duration(d) / time.Second)
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return value(v.Elem())
	case reflect.Struct:
		all := map[string]any{}
		for i := range v.NumField() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			all[name] = value(v.Field(i))
		}
		return all
	case reflect.Slice:
		all := make([]any, v.Len())
		for i := range all {
			all[i] = value(v.Index(i))
		}
		return all
	case reflect.Map:
		all := map[string]any{}
		for _, key := range v.MapKeys() {
			all[key.String()] = value(v.MapIndex(key))
		}
		return all
	case reflect.String:
		return v.String()
	case reflect.Bool:
		return v.Bool()
	case reflect.Float64:
		return v.Float()
	}
	if v.CanUint() {
		return int64(v.Uint()) //nolint:gosec // ports
	}
	return v.Int()
}
