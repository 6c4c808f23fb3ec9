//go:build linux

package volumes

import "io/fs"

// types are the letters with which ls shows the types of files.
var types = map[fs.FileMode]byte{
	0: '-', fs.ModeDir: 'd', fs.ModeSymlink: 'l', fs.ModeNamedPipe: 'p', fs.ModeSocket: 's', fs.ModeDevice: 'b',
	fs.ModeDevice | fs.ModeCharDevice: 'c',
}

// modeText returns a mode as ls shows it, such as -rw-r--r--.
func modeText(m fs.FileMode) string {
	const letters = "rwxrwxrwx"
	text := []byte("?" + letters)
	if t, ok := types[m.Type()]; ok {
		text[0] = t
	}
	for i := range letters {
		if m&(1<<(len(letters)-1-i)) == 0 {
			text[1+i] = '-'
		}
	}
	for _, special := range []struct {
		bit  fs.FileMode
		at   int
		with byte // that also may be executed
		sole byte
	}{{fs.ModeSetuid, 3, 's', 'S'}, {fs.ModeSetgid, 6, 's', 'S'}, {fs.ModeSticky, 9, 't', 'T'}} {
		switch {
		case m&special.bit == 0:
		case text[special.at] == 'x':
			text[special.at] = special.with
		default:
			text[special.at] = special.sole
		}
	}
	return string(text)
}
