package db

import (
	"bytes"
	"io"
	"io/fs"
	"strings"
)

// liteDialect is a folder of migrations as SQLite takes them. A table whose key is one number needs
// no index beside it, but only if the key is of type INTEGER, by that very name
// (https://www.sqlite.org/lang_createtable.html#rowid). PostgreSQL's INTEGER has 32 bits, so that
// migrations say BIGINT. Tables that were made with BIGINT work alike, with an index more.
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

// liteFile is a file with other content.
type liteFile struct {
	fs.File
	content *bytes.Reader
}

func (f liteFile) Read(p []byte) (int, error) { return f.content.Read(p) }
