package httpapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/rest"
	"github.com/mainstay-infra/mainstay/service/hypervisor/agent"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest"
)

const (
	// maxOutput is the maximum of each output stream in a response, in bytes.
	maxOutput = 1 << 20
	// maxStreamed is the maximum output of a streamed program, in bytes.
	maxStreamed = 1 << 30
	// writeLimit is the timeout for writing one piece of a stream to the caller.
	writeLimit = 15 * time.Second
)

// PingAgent asks a guest's agent for an answer.
func (a *API) PingAgent(
	ctx context.Context, req hypervisorapi.PingAgentRequestObject,
) (hypervisorapi.PingAgentResponseObject, error) {
	version, took, err := a.agent.Ping(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.PingAgent200JSONResponse{Version: version, RoundTripMs: float32(took.Seconds() * 1000)}, nil
}

// Exec runs a program in a guest.
func (a *API) Exec(ctx context.Context, req hypervisorapi.ExecRequestObject) (hypervisorapi.ExecResponseObject, error) {
	b := req.Body
	c := guest.Command{
		Argv:    b.Argv,
		Dir:     value(b.Cwd),
		Timeout: time.Duration(orElse(b.TimeoutSeconds, 60)) * time.Second,
	}
	if b.Stdin != nil {
		c.Stdin = strings.NewReader(*b.Stdin)
	}
	program, err := a.agent.Program(ctx, req.Id, c, value(b.Env))
	if err != nil {
		return nil, err
	}
	if value(b.Stream) {
		return streamed{ctx, program}, nil
	}
	out, errs := &bounded{}, &bounded{}
	exit, err := program.Run(ctx, out, errs, 0)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.Exec200JSONResponse{
		Stdout: out.String(), Stderr: errs.String(), ExitCode: exitCode(exit),
		Truncated: exit.Truncated || out.cut || errs.cut,
	}, nil
}

// exitCode returns a program's exit code as shells report it: 128 plus the signal if it was killed.
func exitCode(e guest.Exit) int {
	if e.Code >= 0 {
		return e.Code
	}
	return 128 + int(unix.SignalNum(e.Signal))
}

// bounded keeps the first maxOutput bytes.
type bounded struct {
	bytes.Buffer
	cut bool
}

func (b *bounded) Write(p []byte) (int, error) {
	n := len(p)
	if room := maxOutput - b.Len(); n > room {
		p, b.cut = p[:room], true
	}
	_, err := b.Buffer.Write(p)
	return n, err
}

// String returns the output with invalid UTF-8 replaced.
func (b *bounded) String() string { return strings.ToValidUTF8(b.Buffer.String(), "\uFFFD") }

// streamed is a response that is written while the program runs.
type streamed struct {
	ctx     context.Context
	program *agent.Program
}

// VisitExecResponse implements the contract's answer.
func (s streamed) VisitExecResponse(w http.ResponseWriter) error {
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	p := &pieces{w: w, control: http.NewResponseController(w)}
	stdout, stderr := p.stream(hypervisorapi.ExecPieceStreamStdout), p.stream(hypervisorapi.ExecPieceStreamStderr)
	exit, err := s.program.Run(s.ctx, stdout, stderr, maxStreamed)
	last := hypervisorapi.ExecPiece{}
	switch {
	case err != nil:
		last.Error = ref(fault.From(err).Message)
	case exit.TimedOut:
		last.ExitCode, last.Error = ref(exitCode(exit)), ref("the time was over")
	default:
		last.ExitCode = ref(exitCode(exit))
	}
	return p.send(last)
}

// pieces writes lines of JSON, one at a time.
type pieces struct {
	mu      sync.Mutex
	w       io.Writer
	control *http.ResponseController
}

func (p *pieces) send(piece hypervisorapi.ExecPiece) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.control.SetWriteDeadline(time.Now().Add(writeLimit)) // drops callers that do not read
	if err := json.NewEncoder(p.w).Encode(piece); err != nil {
		return err
	}
	return p.control.Flush()
}

type pieceWriter func([]byte) (int, error)

func (f pieceWriter) Write(b []byte) (int, error) { return f(b) }

func (p *pieces) stream(name hypervisorapi.ExecPieceStream) io.Writer {
	return pieceWriter(func(b []byte) (int, error) {
		return len(b), p.send(hypervisorapi.ExecPiece{Stream: &name, Data: &b})
	})
}

var validMode = regexp.MustCompile(`^0?[0-7]{3,4}$`)

// PutFile writes a file in a guest.
func (a *API) PutFile(
	ctx context.Context, req hypervisorapi.PutFileRequestObject,
) (hypervisorapi.PutFileResponseObject, error) {
	path, modeText, body := value(req.Params.Path), orElse(req.Params.Mode, "0644"), req.Body
	size := rest.SizeOf(req.Body)
	if b := req.JSONBody; b != nil {
		path, modeText, body, size = b.Path, orElse(b.Mode, "0644"), bytes.NewReader(b.Content), int64(len(b.Content))
	}
	if _, err := a.store.VM(ctx, req.Id); err != nil {
		return nil, err // takes precedence over errors in the rest
	}
	switch {
	case path == "" || len(path) > 4096 || path[0] != '/':
		return nil, fault.InvalidField("path", "must be an absolute path")
	case !validMode.MatchString(modeText):
		return nil, fault.InvalidField("mode", "must be octal permissions such as 0644")
	case body == nil:
		return nil, fault.New(fault.Invalid,
			"the body is missing: send the file as application/octet-stream, or as JSON with path and content")
	case size < 0:
		return nil, fault.InvalidField(
			"content-length", "is required: how large the file is must be known before it is sent",
		)
	}
	mode, err := strconv.ParseUint(modeText, 8, 32)
	if err != nil {
		return nil, fault.InvalidField("mode", "must be octal permissions such as 0644")
	}
	hash := sha256.New()
	if err := a.agent.PutFile(ctx, req.Id, path, fs.FileMode(mode), size, io.TeeReader(body, hash)); err != nil {
		return nil, err
	}
	return hypervisorapi.PutFile200JSONResponse{
		Path: path, Mode: fmt.Sprintf("%04o", mode), Size: size, Sha256: hex.EncodeToString(hash.Sum(nil)),
	}, nil
}

// fetched is a response that is written while the file is read.
type fetched struct {
	ctx  context.Context
	log  *slog.Logger
	file *agent.File
}

// VisitGetFileResponse implements the contract's answer.
func (f fetched) VisitGetFileResponse(w http.ResponseWriter) error {
	begun := false
	n, err := f.file.Read(f.ctx, func(file guest.File) (io.Writer, error) {
		begun = true
		h := w.Header()
		h.Set("Content-Type", "application/octet-stream")
		h.Set("X-File-Mode", fmt.Sprintf("%04o", file.Mode.Perm()))
		if file.Size >= 0 {
			h.Set("Content-Length", strconv.FormatInt(file.Size, 10))
		}
		w.WriteHeader(http.StatusOK)
		return timedWriter{w, http.NewResponseController(w)}, nil
	})
	if err == nil {
		return nil
	}
	if !begun {
		return err
	}
	if !errors.Is(err, syscall.EPIPE) && f.ctx.Err() == nil {
		f.log.Warn("a file of a guest was cut off", "bytes", n, "error", err)
	}
	panic(http.ErrAbortHandler) // so that the caller does not take a partial file for a complete one
}

// timedWriter times out if the caller does not read, since the guest's file is open until then.
type timedWriter struct {
	io.Writer
	control *http.ResponseController
}

func (w timedWriter) Write(b []byte) (int, error) {
	_ = w.control.SetWriteDeadline(time.Now().Add(writeLimit))
	return w.Writer.Write(b)
}

// GetFile reads a file of a guest.
func (a *API) GetFile(
	ctx context.Context, req hypervisorapi.GetFileRequestObject,
) (hypervisorapi.GetFileResponseObject, error) {
	if req.Body.Path[0] != '/' {
		return nil, fault.InvalidField("path", "must be an absolute path")
	}
	file, err := a.agent.File(ctx, req.Id, req.Body.Path)
	if err != nil {
		return nil, err
	}
	return fetched{ctx, a.log, file}, nil
}
