// Package guest builds the commands that reach into a VM, which `mainstay vm` and `mainstay vms` have in
// common: its console and its screen, programs and files.
//
//	guest.go    Reach: how a service is asked for them
//	console.go  a console in the terminal; socket.go: WebSockets
//	screen.go   a screen for a viewer of the person's choice
//	exec.go     programs in a guest, by its agent
//	copy.go     files of a guest, by its agent
//
// Invariants: however a console ends, the terminal is restored. A downloaded file is complete or does not
// exist.
package guest

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

// Reach is how VMs are reached through a service whose client is an A.
type Reach[A any] struct {
	*verb.Session[A]
	Service *client.Service
	Group   string // the commands' own, such as "mainstay vm"
	Screen  string // the last part of the path of a screen

	// At returns the path of a VM that an argument names, and its query.
	At func(ctx context.Context, c *verb.Call[A], vm string) (path string, query url.Values, err error)
	// Exec, PutFile and GetFile send requests for the VM that an argument names.
	Exec    func(ctx context.Context, c *verb.Call[A], vm string, p Program) (*http.Response, error)
	PutFile func(
		ctx context.Context, c *verb.Call[A], vm string, to Place, body io.Reader, prepare rest.Editor,
	) (*http.Response, error)
	GetFile func(ctx context.Context, c *verb.Call[A], vm, path string) (*http.Response, error)
}

// Program is a program to run in a guest, as both services take it.
type Program struct {
	Argv           []string
	Cwd            *string
	Env            *map[string]string
	Stdin          *string
	Stream         *bool
	TimeoutSeconds *int
}

// Place is where a file goes in a guest.
type Place struct{ Path, Mode string }

// file is what a service says of a file that it has written.
type file struct {
	Size   int64  `json:"size"`
	Sha256 string `json:"sha256"`
}

// piece is a line of a program's output.
type piece struct {
	Stream   string `json:"stream"`
	Data     []byte `json:"data"`
	ExitCode *int   `json:"exit_code"`
	Error    string `json:"error"`
}
