// Package config reads a service's settings from flags, environment and a YAML file into a struct
// whose tags are the only declaration of the settings.
//
// # Declaring
//
// A setting is an exported field with a key tag:
//
//	type Config struct {
//		Listen string        `key:"listen" default:"127.0.0.1:8080" help:"Address to serve on."`
//		Beat   time.Duration `key:"beat" default:"30s" min:"1s" max:"1h" help:"..."`
//		Token  string        `key:"token" secret:"true" help:"..."`
//		TLS    TLSConfig     `prefix:"tls"` // its key "cert" becomes "tls-cert"
//	}
//
// Types: string, bool, int, int64, float64, time.Duration, Bytes and []string (separated by
// commas). min and max are inclusive, for ordered types. Fields without a key are ignored; a struct
// without a prefix tag uses its keys unchanged. A setting's environment variable is its env tag, or
// else the prefix given by the caller, "_", and the key in upper case with "_" for "-". Invalid
// tags panic, since they are part of the program.
//
// # Precedence
//
//	flag on the command line > environment > file > default tag > zero
//
// An environment variable that is empty counts as not set. A secret may also be given as the path
// of a file in the variable NAME_FILE; one line break at the end of that file is dropped.
//
// # Invariants
//
//   - Load changes the struct only if there are no problems at all.
//   - All problems are reported together, each with its key, its source and, for
//     unknown names, the nearest known one. A value is checked even when a source
//     of higher precedence overrides it.
//   - The value of a secret never appears in an error, help text or table.
package config
