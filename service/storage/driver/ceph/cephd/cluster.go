//go:build ceph

package cephd

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/ceph/go-ceph/rados"
	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/service/storage/driver/ceph/wire"
)

// cluster is a connection.
type cluster struct {
	conn          *rados.Conn
	fsid, address string
}

// connect connects to a cluster, which must be the one that is meant.
func connect(h wire.Hello) (*cluster, error) {
	conn, err := rados.NewConnWithUser(h.User)
	if err != nil {
		return nil, err
	}
	if h.ConfFile != "" {
		if err := conn.ReadConfigFile(h.ConfFile); err != nil {
			return nil, fmt.Errorf("the file of settings cannot be read: %w", err)
		}
	}
	options := [][2]string{
		{"client_mount_timeout", seconds(h.Connect)},
		{"rados_mon_op_timeout", seconds(h.Monitor)},
		{"rados_osd_op_timeout", seconds(h.OSD)},
		{"log_to_stderr", "false"}, {"err_to_stderr", "false"}, {"log_file", ""}, {"admin_socket", ""},
	}
	if len(h.MonHosts) > 0 {
		options = append(options, [2]string{"mon_host", strings.Join(h.MonHosts, ",")})
	}
	if h.Key != "" {
		options = append(options, [2]string{"key", string(h.Key)}, [2]string{"keyring", "/dev/null"})
	} else if h.Keyring != "" {
		options = append(options, [2]string{"keyring", h.Keyring})
	}
	for _, o := range options {
		if err := conn.SetConfigOption(o[0], o[1]); err != nil {
			return nil, fmt.Errorf("the setting %s is refused: %w", o[0], err)
		}
	}
	if err := conn.Connect(); err != nil {
		return nil, err
	}
	c := &cluster{conn: conn}
	if c.fsid, err = conn.GetFSID(); err != nil {
		return nil, err
	}
	if h.FSID != "" && h.FSID != c.fsid {
		return nil, &wire.Error{
			Reason: wire.Another, Message: "the cluster is another one: its fsid is " + c.fsid + ", not " + h.FSID,
		}
	}
	c.address, err = conn.GetAddrs()
	return c, err
}

// seconds writes a time as librados reads it, in whole seconds. Zero is for ever.
func seconds(d time.Duration) string { return strconv.Itoa(int(math.Ceil(d.Seconds()))) }

// readers are the commands that Ask may give.
var readers = map[string]bool{
	"status": true, "df": true, "osd pool ls detail": true, "osd tree": true, "osd df": true, "osd crush rule dump": true,
}

// arguments are what commands are given beside their names.
var arguments = map[string]map[string]any{
	"osd pool ls detail": {"prefix": "osd pool ls", "detail": "detail"},
}

func (c *cluster) ask(r *wire.Request) (out wire.Response, err error) {
	out.Answers = map[string]json.RawMessage{}
	for _, command := range r.Commands {
		if !readers[command] {
			return out, fmt.Errorf("the command %q is not one that only reads", command)
		}
		if out.Answers[command], err = c.command(command); err != nil {
			return out, err
		}
	}
	return out, nil
}

func (c *cluster) command(name string) (json.RawMessage, error) {
	words := map[string]any{"prefix": name, "format": "json"}
	for k, v := range arguments[name] {
		words[k] = v
	}
	text, err := json.Marshal(words)
	if err != nil {
		return nil, err
	}
	var out []byte
	var said string
	if name == "osd df" {
		out, said, err = c.conn.MgrCommand([][]byte{text})
	} else {
		out, said, err = c.conn.MonCommand(text)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", name, said, err)
	}
	if !json.Valid(out) { // Pacific's managers print -nan and inf
		out = repair(out)
	}
	return out, nil
}

// repair makes numbers that JSON does not know null.
func repair(text []byte) []byte {
	s := string(text)
	for _, number := range []string{"-nan", "nan", "-inf", "inf"} {
		s = strings.ReplaceAll(s, ":"+number, ":null")
	}
	return []byte(s)
}

// fence shuts a client out: what it has sent and what is still on its way is not done any more, and its
// watches and locks end.
func (c *cluster) fence(address string) error {
	for _, word := range []string{"blocklist", "blacklist"} { // as Octopus calls it
		text, err := json.Marshal(map[string]any{"prefix": "osd " + word, word + "op": "add", "addr": address})
		if err != nil {
			return err
		}
		_, said, err := c.conn.MonCommand(text)
		if err == nil {
			return c.conn.WaitForLatestOSDMap()
		}
		if errno(err) != unix.EINVAL {
			return fmt.Errorf("%s: %w", said, err)
		}
	}
	return errors.New("the cluster does not know how to shut a client out")
}

func (c *cluster) open(pool string) (*rados.IOContext, error) {
	io, err := c.conn.OpenIOContext(pool)
	if errno(err) == unix.ENOENT {
		return nil, &wire.Error{Reason: wire.NotFound, Message: "the storage has no pool " + pool}
	}
	if err != nil {
		return nil, err
	}
	// What removes something works in a full pool, too; what does not fails instead of waiting.
	if err := io.SetPoolFullTry(); err != nil {
		io.Destroy()
		return nil, err
	}
	return io, nil
}

// errno returns the number of an error of Ceph, or 0.
func errno(err error) unix.Errno {
	var numbered interface{ ErrorCode() int }
	if !errors.As(err, &numbered) {
		return 0
	}
	n := numbered.ErrorCode()
	return unix.Errno(max(n, -n))
}

// reasonOf tells why something failed.
func reasonOf(err error) *wire.Error {
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return e
	}
	e := &wire.Error{Reason: wire.Failed, Message: "the storage has failed", Cause: err.Error()}
	switch errno(err) {
	case unix.ETIMEDOUT:
		e.Reason, e.Message = wire.Silent, "the cluster does not answer"
	case unix.EPERM, unix.EACCES, unix.ENOKEY:
		e.Reason, e.Message = wire.Refused, "the cluster does not accept the user or its key"
	case unix.EROFS:
		e.Reason, e.Message = wire.Conflict, "the image is the copy of one at another site, and only read until it is promoted"
	case unix.ENOSPC, unix.EDQUOT:
		e.Reason, e.Message = wire.Full, "the pool takes no more data"
	case unix.ESHUTDOWN:
		e.Reason, e.Message = wire.Silent, "the cluster has shut the gateway's connection out"
	}
	return e
}
