package db

import (
	"bytes"
	"io"
	"io/fs"
	"strings"
)

// liteDialect adapts a directory of migrations for SQLite. A table with a single numeric key needs
// no separate index, but only if the key's type is named exactly INTEGER
// (https://www.sqlite.org/lang_createtable.html#rowid). PostgreSQL's INTEGER has 32 bits, so the
// migrations use BIGINT. Tables that were created with BIGINT behave the same but have one more
// index.
type liteDialect struct{ fs.FS }

// Open opens a file for reading.
func (d liteDialect) Open(name string) (fs.File, error) {
	file, err := d.FS.Open(name)
	if err != nil || !strings.HasSuffix(name, ".sql") {
		return file, err
	}
	text, err := io.ReadAll(file)
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	text = bytes.ReplaceAll(text, []byte("BIGINT PRIMARY KEY"), []byte("INTEGER PRIMARY KEY"))
	return liteFile{file, bytes.NewReader(text)}, nil
}

// liteFile is a file with its content replaced.
type liteFile struct {
	fs.File
	content *bytes.Reader
}

func (f liteFile) Read(p []byte) (int, error) { return f.content.Read(p) }
