package db

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"

	"github.com/jmoiron/sqlx"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Reader reads a database that another process may have open.
type Reader struct {
	Querier
	close func() error
}

// Close closes the connections.
func (r *Reader) Close() error { return r.close() }

// OpenReader opens an existing database to read it, also while the process that owns it runs. It
// creates nothing. Faults name the setting "database".
func OpenReader(ctx context.Context, cfg Config) (*Reader, error) {
	if cfg.URL != "" {
		d, err := openPostgres(ctx, cfg)
		if err != nil {
			return nil, err
		}
		return &Reader{d, d.Close}, nil
	}
	if _, err := os.Stat(cfg.Path); errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New(fault.NotFound, "database: there is no %s; is this the data folder of the service?", cfg.Path)
	}
	file := "file:" + (&url.URL{Path: cfg.Path}).EscapedPath()
	read, err := sqlx.Open("sqlite", fmt.Sprintf("%s?mode=rw&_pragma=query_only(1)&_pragma=busy_timeout(10000)", file))
	if err == nil {
		err = read.PingContext(ctx)
	}
	if err != nil {
		return nil, cannotOpen(err, cfg.Path)
	}
	d := &DB{engine: SQLite, write: read, read: read, reader: newLiteReader(read)}
	return &Reader{d, d.Close}, nil
}
