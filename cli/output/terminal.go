package output

import (
	"os"

	"github.com/mattn/go-isatty"
)

// IsTerminal tells whether a person is at the other end of a reader or writer.
func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}
