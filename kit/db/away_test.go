package db_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// link passes what clients and PostgreSQL say to each other on, until it is cut.
type link struct {
	to string // socket of PostgreSQL

	mu    sync.Mutex
	cutAt []byte // what a client says last; nil: it says what it likes
	away  bool
	open  map[net.Conn]bool
}

const socketName = ".s.PGSQL.5432"

// linkTo returns a link to PostgreSQL and the URL that leads through it.
func linkTo(t *testing.T, database string) (*link, string) {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	k := &link{to: filepath.Join(query.Get("host"), socketName), open: map[net.Conn]bool{}}
	folder := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(folder, socketName))
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		k.cut(true)
		work.Wait()
	})
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() { k.pass(c) })
		}
	})
	query.Set("host", folder)
	u.RawQuery = query.Encode()
	return k, u.String()
}

// cut closes all connections, and those that come later if it stays away.
func (k *link) cut(away bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.away = away
	for c := range k.open {
		_ = c.Close()
	}
}

func (k *link) cutOn(word string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cutAt = []byte(word)
}

func (k *link) pass(client net.Conn) {
	server, err := net.Dial("unix", k.to)
	if err != nil {
		_ = client.Close()
		return
	}
	k.mu.Lock()
	k.open[client], k.open[server] = true, true
	if k.away {
		_, _ = client.Close(), server.Close()
	}
	k.mu.Unlock()
	var work sync.WaitGroup
	work.Go(func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	})
	said := make([]byte, 64<<10)
	for {
		n, err := client.Read(said)
		if err != nil {
			break
		}
		k.mu.Lock()
		last := k.cutAt != nil && bytes.Contains(said[:n], k.cutAt)
		k.mu.Unlock()
		if last { // the answer, which may be quick, is lost
			_ = client.Close()
		}
		_, _ = server.Write(said[:n])
		if last {
			break
		}
	}
	_, _ = client.Close(), server.Close()
	work.Wait()
	k.mu.Lock()
	delete(k.open, client)
	delete(k.open, server)
	k.mu.Unlock()
}

func TestADatabaseThatIsAwayIsNotAFullDisk(t *testing.T) {
	t.Parallel()
	k, through := linkTo(t, dbtest.PostgresURL(t))
	d := dbtest.Open(t, db.Config{URL: through, Schema: "test"}, tables)
	add := func() error {
		return d.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "INSERT INTO demo (id, n, flag, meta) VALUES ('a', 1, TRUE, '{}')")
			return err
		})
	}
	away := func(what string, err error, says string) {
		t.Helper()
		f := (*fault.Error)(nil)
		if !errors.As(err, &f) || f.Kind != fault.Unavailable || f.Code != db.CodeUnavailable || f.RetryAfter <= 0 ||
			!strings.Contains(f.Message, says) {
			t.Errorf("%s: %v", what, err)
		}
	}
	k.cutOn("INSERT INTO")
	away("in the middle of a transaction", add(), "nothing was stored")
	k.cutOn("commit")
	away("at the commit", add(), "check whether the change was stored")
	var n int
	k.cutOn("COUNT(*)")
	away("in the middle of a read", d.Get(t.Context(), &n, "SELECT COUNT(*) FROM demo"), "cannot be reached")
	k.cutOn("never")
	k.cut(true)
	away("from the beginning", add(), "nothing was stored")
	away("a read", d.Get(t.Context(), &n, "SELECT COUNT(*) FROM demo"), "cannot be reached")
	k.cut(false)
	if err := d.Get(t.Context(), &n, "SELECT COUNT(*) FROM demo"); err != nil || n > 1 {
		t.Errorf("it is back: %d rows, %v", n, err)
	}
}
