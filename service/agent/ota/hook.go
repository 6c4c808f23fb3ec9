package ota

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unicode"
)

const (
	exitReboots = 10
	stopGrace   = 10 * time.Second // between SIGTERM and SIGKILL
	outputTail  = 4 << 10          // bytes of a hook's output that are kept
)

// call runs the hook. An error means a problem of the agent, not of the hook.
func (m *Manager) call(ctx context.Context, u *Update, verb string) (Outcome, string, error) {
	limited, cancel := context.WithTimeout(ctx, m.cfg.HookTimeout)
	defer cancel()
	output := &tail{}
	cmd := exec.CommandContext(limited, m.cfg.Hook, verb)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.Dir = m.cfg.Folder
	// Do not pass on the agent's own environment, which contains secrets.
	cmd.Env = []string{
		"MAINSTAY_DEVICE=" + u.DeviceID, "MAINSTAY_OTA_REQUEST=" + u.RequestID, "MAINSTAY_OTA_VERSION=" + u.Version,
		"MAINSTAY_OTA_FILE=" + m.artifact(u.SHA256), "MAINSTAY_OTA_SHA256=" + u.SHA256,
	}
	for _, name := range []string{"PATH", "HOME", "LANG", "TZ", "TMPDIR"} {
		if value, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	cmd.SysProcAttr = ownGroup()
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = stopGrace

	// The kernel kills the hook when the thread that started it ends (ownGroup).
	runtime.LockOSThread()
	err := cmd.Run()
	runtime.UnlockOSThread()
	if cmd.Process != nil && limited.Err() != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // kill the rest of the group
	}
	if ctx.Err() != nil {
		return Broken, "", ctx.Err()
	}
	message := clean(output.lastLine())
	var exit *exec.ExitError
	switch {
	case limited.Err() != nil:
		return Broken, clean(fmt.Sprintf("%s did not end within %s: %s", verb, m.cfg.HookTimeout, message)), nil
	case err == nil:
		return Done, message, nil
	case errors.As(err, &exit) && exit.ExitCode() == exitReboots:
		return Reboots, message, nil
	case errors.As(err, &exit):
		if message == "" {
			message = exit.Error()
		}
		return Broken, clean(fmt.Sprintf("%s failed: %s", verb, message)), nil
	case errors.Is(err, exec.ErrWaitDelay):
		return Done, message, nil // it succeeded, but left a background process
	}
	return Broken, clean(fmt.Sprintf("%s could not be started: %v", verb, err)), nil
}

// tail keeps the end of the text that is written to it.
type tail struct{ text []byte }

func (t *tail) Write(b []byte) (int, error) {
	t.text = append(t.text, b[max(0, len(b)-outputTail):]...)
	if over := len(t.text) - outputTail; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(b), nil
}

func (t *tail) lastLine() string {
	text := strings.TrimSpace(string(t.text))
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// clean converts text to a message that the control plane accepts: one line of UTF-8 without
// control characters, at most maxMessage bytes long.
func clean(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "")
	}
	return strings.TrimSpace(text)
}
