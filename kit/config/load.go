package config

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/spf13/pflag"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Sources are the sources that Load reads. All are optional.
type Sources struct {
	// Flags are parsed flags that BindFlags added.
	Flags *pflag.FlagSet
	// Environ has the form of os.Environ.
	Environ []string
	// File is the path of a YAML file that must exist; empty means none.
	File string
}

// Load fills in the settings of cfg, a pointer to a struct. If anything is wrong
// it changes nothing and returns one fault of kind Invalid whose message has a
// line for each problem; its Field is the key if there is only one.
func Load(cfg any, prefix string, src Sources) error {
	if reflect.ValueOf(cfg).Kind() != reflect.Pointer {
		panic(fmt.Sprintf("config: Load needs a pointer, not a %T", cfg))
	}
	fields := fieldsOf(cfg, prefix)
	p := &problems{}
	inFile := readFile(src.File, fields, p)
	inEnv := readEnviron(src.Environ, prefix, fields, p)

	chosen := make([]any, len(fields))
	for i := range fields {
		f := &fields[i]
		chosen[i] = f.fallback
		// From the lowest precedence to the highest: the last one stays.
		take := func(text, source string) {
			v, err := f.parse(text)
			switch {
			case err == nil:
				chosen[i] = v
			case f.Secret:
				p.add(f.Key, "%s: %s: the value %v", source, f.Key, err)
			default:
				p.add(f.Key, "%s: %s: %q %v", source, f.Key, text, err)
			}
		}
		if v, ok := inFile[f.Key]; ok {
			take(v.text, fmt.Sprintf("%s:%d", src.File, v.line))
		}
		if v, ok := inEnv[f.Key]; ok {
			take(v.text, v.source)
		}
		if src.Flags != nil {
			if flag := src.Flags.Lookup(f.Key); flag != nil && flag.Changed {
				take(flag.Value.String(), "flag "+f.Flag)
			}
		}
	}
	if err := p.fault(); err != nil {
		return err
	}
	for i := range fields {
		fields[i].target.Set(reflect.ValueOf(chosen[i]))
	}
	return nil
}

// problems collects what is wrong, in the order in which it was found.
type problems struct {
	keys  []string
	lines []string
}

func (p *problems) add(key, format string, args ...any) {
	p.keys, p.lines = append(p.keys, key), append(p.lines, fmt.Sprintf(format, args...))
}

func (p *problems) fault() error {
	switch len(p.lines) {
	case 0:
		return nil
	case 1:
		f := fault.New(fault.Invalid, "%s", p.lines[0])
		f.Field = p.keys[0]
		return f
	}
	return fault.New(fault.Invalid, "%d problems with the settings:\n  %s", len(p.lines), strings.Join(p.lines, "\n  "))
}
