package config

import (
	"fmt"
	"reflect"
	"strings"
)

// Setting describes one setting, for help texts and documents.
type Setting struct {
	Key     string // as in the file, for example "heartbeat-interval"
	Flag    string // "--" and the key
	Env     string // the environment variable; for a secret there is also Env + "_FILE"
	Default string // as tagged; empty when there is none
	Help    string // one or more sentences
	Secret  bool
	Type    string // string, list, bool, int, float, duration or bytes
	Min     string // inclusive; empty when there is no bound
	Max     string // inclusive; empty when there is no bound
}

// fileEnv returns the variable that holds the path of a secret.
func (s *Setting) fileEnv() string { return s.Env + "_FILE" }

// span returns the allowed values in words, or "" if all are.
func (s *Setting) span() string {
	switch {
	case s.Min != "" && s.Max != "":
		return "from " + s.Min + " to " + s.Max
	case s.Min != "":
		return "at least " + s.Min
	case s.Max != "":
		return "at most " + s.Max
	}
	return ""
}

// Settings lists the settings of cfg, a struct or a pointer to one, in the order of its fields.
// prefix begins the names of environment variables, for example "EDGE"; empty means none. It panics
// if the tags are invalid.
func Settings(cfg any, prefix string) []Setting {
	fields := fieldsOf(cfg, prefix)
	settings := make([]Setting, len(fields))
	for i := range fields {
		settings[i] = fields[i].Setting
	}
	return settings
}

// field is a setting and the target of its value.
type field struct {
	Setting
	kind     kind
	target   reflect.Value
	fallback any // the default tag's value, or the zero value
	min, max any // nil when there is no bound
}

// parse parses a value. Its error completes a sentence that begins with the value.
func (f *field) parse(s string) (any, error) {
	v, err := f.kind.parse(s)
	if err != nil {
		return nil, err
	}
	if f.min != nil && f.kind.less(v, f.min) || f.max != nil && f.kind.less(f.max, v) {
		return nil, fmt.Errorf("is out of range (%s)", f.span())
	}
	return v, nil
}

func fieldsOf(cfg any, prefix string) []field {
	v := reflect.ValueOf(cfg)
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		panic(fmt.Sprintf("config: %T is not a struct", cfg))
	}
	fields := walk(nil, v, strings.TrimSuffix(prefix, "_"), "")
	names := map[string]string{}
	for _, f := range fields {
		for _, name := range []string{f.Key, f.Env} {
			if other, ok := names[name]; ok {
				panic(fmt.Sprintf("config: %s and %s share the name %s", other, f.Key, name))
			}
			names[name] = f.Key
		}
	}
	return fields
}

func walk(fields []field, v reflect.Value, envPrefix, keyPrefix string) []field {
	for i := range v.NumField() {
		tag := v.Type().Field(i)
		key, isSetting := tag.Tag.Lookup("key")
		switch {
		case !tag.IsExported() && !tag.Anonymous: // an embedded struct contributes its exported fields
			if isSetting {
				panic("config: the field " + tag.Name + " has a key and is not exported")
			}
		case isSetting:
			fields = append(fields, newField(v.Field(i), tag.Tag, envPrefix, keyPrefix+key))
		case tag.Type.Kind() == reflect.Struct:
			nested := keyPrefix
			if p := tag.Tag.Get("prefix"); p != "" {
				nested += p + "-"
			}
			fields = walk(fields, v.Field(i), envPrefix, nested)
		}
	}
	return fields
}

func newField(target reflect.Value, tag reflect.StructTag, envPrefix, key string) field {
	fail := func(format string, args ...any) { panic("config: " + key + ": " + fmt.Sprintf(format, args...)) }
	k, ok := kindOf(target.Type())
	if !ok {
		fail("a %s cannot be a setting", target.Type())
	}
	if key == "" || strings.HasSuffix(key, "-") {
		fail("the key is empty")
	}
	f := field{
		Setting: Setting{
			Key: key, Flag: "--" + key, Env: tag.Get("env"), Default: tag.Get("default"), Help: tag.Get("help"),
			Secret: tag.Get("secret") == "true", Type: k.name, Min: tag.Get("min"), Max: tag.Get("max"),
		},
		kind: k, target: target, fallback: reflect.Zero(target.Type()).Interface(),
	}
	if f.Env == "" {
		f.Env = strings.ToUpper(strings.ReplaceAll(key, "-", "_"))
		if envPrefix != "" {
			f.Env = envPrefix + "_" + f.Env
		}
	}
	if f.Secret && f.Default != "" {
		fail("a secret has no default")
	}
	bound := func(text string) any {
		if text == "" {
			return nil
		}
		if k.less == nil {
			fail("a %s has no min and max", k.name)
		}
		v, err := k.parse(text)
		if err != nil {
			fail("the bound %q %v", text, err)
		}
		return v
	}
	f.min, f.max = bound(f.Min), bound(f.Max)
	if f.Default != "" {
		v, err := f.parse(f.Default)
		if err != nil {
			fail("the default %q %v", f.Default, err)
		}
		f.fallback = v
	}
	return f
}
