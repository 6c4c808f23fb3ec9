package telemetry_test

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/telemetry"
)

func TestBuildTakesTheLinkedVersionBeforeTheModules(t *testing.T) {
	t.Parallel()
	vcs := []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "2026-01-02T03:04:05Z"}}
	dirty := append([]debug.BuildSetting{{Key: "vcs.modified", Value: "true"}}, vcs...)
	for name, c := range map[string]struct {
		info   *debug.BuildInfo
		linked string
		want   telemetry.Build
	}{
		"nothing known":   {nil, "", telemetry.Build{Version: "dev"}},
		"a work tree":     {&debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: dirty}, "", telemetry.Build{Version: "dev", Commit: "abc-dirty", Date: "2026-01-02T03:04:05Z"}},
		"go install":      {&debug.BuildInfo{Main: debug.Module{Version: "v1.0.0"}}, "", telemetry.Build{Version: "v1.0.0"}},
		"a release":       {&debug.BuildInfo{Main: debug.Module{Version: "v1.0.0"}, Settings: vcs}, "v2.0.0", telemetry.Build{Version: "v2.0.0", Commit: "abc", Date: "2026-01-02T03:04:05Z"}},
		"only the linker": {nil, "v2.0.0", telemetry.Build{Version: "v2.0.0"}},
	} {
		c.want.GoVersion = runtime.Version()
		if got := telemetry.BuildFrom(c.info, c.linked); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestTheRunningProgramHasBuildInfo(t *testing.T) {
	t.Parallel()
	if b := telemetry.BuildInfo(); b.Version == "" || b.GoVersion != runtime.Version() {
		t.Errorf("%+v", b)
	}
}
