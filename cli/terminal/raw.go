//go:build linux || darwin

package terminal

import (
	"os"

	"golang.org/x/sys/unix"
)

// Raw switches the terminal to raw mode, so that every key, including Ctrl-C, goes to the program. It
// returns a function that restores the terminal.
func Raw(terminal *os.File) (restore func() error, err error) {
	return change(terminal, func(t *unix.Termios) {
		t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP |
			unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
		t.Oflag &^= unix.OPOST
		t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
		t.Cflag = t.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
		t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	})
}

// Hidden makes the terminal show nothing of what is typed, but the end of the line. It returns a function
// that restores the terminal.
func Hidden(terminal *os.File) (restore func() error, err error) {
	return change(terminal, func(t *unix.Termios) {
		t.Lflag &^= unix.ECHO
		t.Lflag |= unix.ECHONL | unix.ICANON | unix.ISIG
	})
}

func change(terminal *os.File, edit func(*unix.Termios)) (restore func() error, err error) {
	fd := int(terminal.Fd())
	before, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil {
		return nil, err
	}
	now := *before
	edit(&now)
	if err := unix.IoctlSetTermios(fd, setTermios, &now); err != nil {
		return nil, err
	}
	return func() error { return unix.IoctlSetTermios(fd, setTermios, before) }, nil
}

// columns returns how wide the terminal is, or 0 if that is unknown.
func columns(terminal *os.File) int {
	size, err := unix.IoctlGetWinsize(int(terminal.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}
