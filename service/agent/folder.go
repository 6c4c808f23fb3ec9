package agent

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	agentapi "github.com/mainstay-infra/mainstay/api/agent"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// folderNames are the names in the data folder that the agent opens, overwrites or cleans up, with
// the type of file that it makes under each of them.
var folderNames = map[string]fs.FileMode{
	"agent.db":               0,
	"agent.db-wal":           0,
	"agent.db-shm":           0,
	"agent.db.lock":          0,
	"agent.db.is-damaged":    0,
	identityFile:             0,
	"identity.json.room":     0,
	"identity.previous.json": 0,
	"reserve":                0,
	agentapi.Socket:          fs.ModeSocket,
	"ota":                    fs.ModeDir,
	"twins":                  fs.ModeDir,
}

// checkFolder returns an error if a name in the data folder is not what the agent makes there. It
// does not follow links: through one, the agent would overwrite or delete the files of others, and
// a pipe would block it forever. The data folder itself may be a link.
func checkFolder(data string) error {
	for name, want := range folderNames {
		path := filepath.Join(data, name)
		info, err := os.Lstat(path)
		if err != nil {
			continue // it does not exist, or opening it says what is wrong
		}
		if got := info.Mode().Type(); got != want {
			return fault.InvalidField(
				"data", "%s is %s, but the agent needs %s there, which it makes by itself; move it away, "+
					"or choose another folder with --data", path, fileType(got), fileType(want),
			)
		}
	}
	return nil
}

func fileType(mode fs.FileMode) string {
	switch mode {
	case 0:
		return "a regular file"
	case fs.ModeDir:
		return "a folder"
	case fs.ModeSymlink:
		return "a symbolic link"
	case fs.ModeNamedPipe:
		return "a named pipe"
	case fs.ModeSocket:
		return "a socket"
	}
	return fmt.Sprintf("a special file (%s)", mode)
}
