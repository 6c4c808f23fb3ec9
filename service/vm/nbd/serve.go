package nbd

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"syscall"
)

// Disk is what is served.
type Disk interface {
	Size() int64 // in bytes
	ReadAt(ctx context.Context, p []byte, offset int64) error
	WriteAt(ctx context.Context, p []byte, offset int64) error
}

// Numbers of the protocol.
const (
	initMagic    = 0x4e42444d41474943 // NBDMAGIC
	optionMagic  = 0x49484156454f5054 // IHAVEOPT
	replyMagic   = 0x3e889045565a9
	requestMagic = 0x25609513
	simpleMagic  = 0x67446698

	flagFixedNewstyle = 1 << 0
	flagNoZeroes      = 1 << 1

	optExportName = 1
	optAbort      = 2
	optInfo       = 6
	optGo         = 7

	replyAck       = 1
	replyInfo      = 3
	replyUnknown   = 1<<31 + 6
	replyNoSupport = 1<<31 + 1

	infoExport = 0

	flagHasFlags = 1 << 0
	flagFlush    = 1 << 2

	cmdRead  = 0
	cmdWrite = 1
	cmdEnd   = 2
	cmdFlush = 3
)

const (
	// maxOption is the longest data of an option, in bytes: names have at most 4096.
	maxOption = 8 << 10
	// maxOptions is how many options a client may send.
	maxOptions = 64
	// maxRequest is the largest read or write, in bytes. QEMU sends at most 32 MiB.
	maxRequest = 32 << 20
)

// errProtocol is wrapped by errors about a client that does not speak the protocol.
var errProtocol = errors.New("nbd: the client does not follow the protocol")

// Serve serves a disk, as the export without a name, until the client ends the connection or ctx is
// done; the caller must close the connection then. It returns nil if the client ended it properly.
func Serve(ctx context.Context, conn io.ReadWriter, disk Disk) error {
	s := &server{ctx: ctx, in: bufio.NewReaderSize(conn, 64<<10), out: bufio.NewWriterSize(conn, 64<<10), disk: disk}
	ready, err := s.negotiate()
	for err == nil && ready {
		ready, err = s.request()
	}
	return err
}

type server struct {
	ctx    context.Context
	in     *bufio.Reader
	out    *bufio.Writer
	disk   Disk
	buffer []byte
}

// put writes numbers of fixed sizes.
func (s *server) put(values ...any) error {
	for _, v := range values {
		if err := binary.Write(s.out, binary.BigEndian, v); err != nil {
			return err
		}
	}
	return nil
}

const transmissionFlags = uint16(flagHasFlags | flagFlush)

// negotiate returns true when the client has chosen the export, and false when it has given up.
func (s *server) negotiate() (ready bool, err error) {
	if err := s.put(uint64(initMagic), uint64(optionMagic), uint16(flagFixedNewstyle|flagNoZeroes)); err != nil {
		return false, err
	}
	if err := s.out.Flush(); err != nil {
		return false, err
	}
	var flags uint32
	if err := binary.Read(s.in, binary.BigEndian, &flags); err != nil {
		return false, err
	}
	if flags&^(flagFixedNewstyle|flagNoZeroes) != 0 || flags&flagFixedNewstyle == 0 {
		return false, fmt.Errorf("%w: flags %#x", errProtocol, flags)
	}
	for range maxOptions {
		var head struct {
			Magic  uint64
			Option uint32
			Length uint32
		}
		if err := binary.Read(s.in, binary.BigEndian, &head); err != nil {
			return false, err
		}
		if head.Magic != optionMagic || head.Length > maxOption {
			return false, fmt.Errorf("%w: an option of %d bytes", errProtocol, head.Length)
		}
		data := make([]byte, head.Length)
		if _, err := io.ReadFull(s.in, data); err != nil {
			return false, err
		}
		done, ended, err := s.option(head.Option, data, flags&flagNoZeroes != 0)
		if err == nil {
			err = s.out.Flush()
		}
		if err != nil || ended || done {
			return done && err == nil, err
		}
	}
	return false, fmt.Errorf("%w: too many options", errProtocol)
}

// option answers an option. done means that requests follow, and ended that nothing follows.
func (s *server) option(option uint32, data []byte, noZeroes bool) (done, ended bool, err error) {
	switch option {
	case optExportName:
		if len(data) > 0 {
			return false, true, nil // the protocol has no answer for an unknown name
		}
		err := s.put(uint64(s.disk.Size()), transmissionFlags) //nolint:gosec // a size is not negative
		if err == nil && !noZeroes {
			err = s.put([124]byte{})
		}
		return true, false, err
	case optAbort:
		return false, true, s.reply(option, replyAck)
	case optInfo, optGo:
		if len(data) < 4 || binary.BigEndian.Uint32(data) > uint32(len(data)-4) { //nolint:gosec // at most maxOption
			return false, false, fmt.Errorf("%w: an option that is too short", errProtocol)
		}
		if binary.BigEndian.Uint32(data) != 0 {
			return false, false, s.reply(option, replyUnknown)
		}
		err := s.reply(option, replyInfo, uint16(infoExport), uint64(s.disk.Size()), transmissionFlags) //nolint:gosec // so
		return option == optGo, false, errors.Join(err, s.reply(option, replyAck))
	}
	return false, false, s.reply(option, replyNoSupport)
}

// reply answers an option.
func (s *server) reply(option, kind uint32, values ...any) error {
	length := 0
	for _, v := range values {
		length += binary.Size(v)
	}
	err := s.put(uint64(replyMagic), option, kind, uint32(length)) //nolint:gosec // of some bytes
	return errors.Join(err, s.put(values...))
}

// request serves one request. It returns false when the client has ended.
func (s *server) request() (more bool, err error) {
	var head struct {
		Magic  uint32
		Flags  uint16
		Type   uint16
		Cookie uint64
		Offset uint64
		Length uint32
	}
	if err := binary.Read(s.in, binary.BigEndian, &head); err != nil {
		return false, err
	}
	carries := head.Type == cmdRead || head.Type == cmdWrite
	if head.Magic != requestMagic || carries && head.Length > maxRequest {
		return false, fmt.Errorf("%w: a request of %d bytes", errProtocol, head.Length)
	}
	if carries && cap(s.buffer) < int(head.Length) {
		s.buffer = make([]byte, head.Length)
	}
	data := s.buffer[:0]
	if carries {
		data = s.buffer[:head.Length]
	}
	if head.Type == cmdWrite {
		if _, err := io.ReadFull(s.in, data); err != nil {
			return false, err
		}
	}
	size := uint64(s.disk.Size()) //nolint:gosec // a size is not negative
	within := head.Offset <= size && uint64(head.Length) <= size-head.Offset
	errno := syscall.Errno(0)
	switch {
	case head.Type == cmdEnd:
		return false, nil
	case head.Type == cmdFlush: // everything is in memory
	case !carries:
		errno = syscall.EINVAL
	case !within && head.Type == cmdWrite:
		errno = syscall.ENOSPC
	case !within:
		errno = syscall.EINVAL
	case head.Type == cmdRead:
		errno = number(s.disk.ReadAt(s.ctx, data, int64(head.Offset))) //nolint:gosec // it is within the disk
	default:
		errno = number(s.disk.WriteAt(s.ctx, data, int64(head.Offset))) //nolint:gosec // so
	}
	if err := s.put(uint32(simpleMagic), uint32(errno), head.Cookie); err != nil { //nolint:gosec // a small number
		return false, err
	}
	if head.Type == cmdRead && errno == 0 {
		if _, err := s.out.Write(data); err != nil {
			return false, err
		}
	}
	if err := s.ctx.Err(); err != nil {
		return false, err
	}
	return true, s.out.Flush()
}

// number returns the protocol's number of an error. The client does not learn more.
func number(err error) syscall.Errno {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrFull):
		return syscall.ENOSPC
	}
	return syscall.EIO
}
