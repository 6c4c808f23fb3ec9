package telemetry

import (
	"runtime"
	"runtime/debug"
	"sync"
)

// version is set when a release is linked:
//
//	go build -ldflags "-X github.com/mainstay-infra/mainstay/kit/telemetry.version=v1.2.3"
var version string

// Build describes what this program was built from.
type Build struct {
	Version   string `json:"version"`    // of the release, or of the module, or "dev"
	Commit    string `json:"commit"`     // with "-dirty" if there were changes; may be empty
	Date      string `json:"date"`       // of the commit, RFC 3339; may be empty
	GoVersion string `json:"go_version"` // for example "go1.26.0"
}

// BuildInfo returns the build of the running program, as recorded by the linker and the Go tool.
func BuildInfo() Build { return build() }

// build reads the information once: it cannot change, and parsing it takes longer than serving a
// request.
var build = sync.OnceValue(func() Build {
	info, _ := debug.ReadBuildInfo()
	return buildFrom(info, version)
})

func buildFrom(info *debug.BuildInfo, linked string) Build {
	b := Build{Version: linked, GoVersion: runtime.Version()}
	if info == nil {
		info = &debug.BuildInfo{}
	}
	if b.Version == "" && info.Main.Version != "(devel)" {
		b.Version = info.Main.Version
	}
	if b.Version == "" {
		b.Version = "dev"
	}
	dirty := false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Date = s.Value
		case "vcs.modified":
			dirty = s.Value == "true"
		}
	}
	if dirty && b.Commit != "" {
		b.Commit += "-dirty"
	}
	return b
}
