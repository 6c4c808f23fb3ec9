// Package web holds the built consoles of the services. They are built by
// `make web` from the sources beside this file; a binary without them works, and
// serves no console.
package web

import (
	"embed"
	"io/fs"
)

//go:embed dist
var dist embed.FS

// Console returns the built files of a service's console, or nil when it was not
// built.
func Console(service string) fs.FS {
	files, err := fs.Sub(dist, "dist/"+service)
	if err != nil {
		return nil
	}
	if _, err := fs.Stat(files, "index.html"); err != nil {
		return nil
	}
	return files
}
