package verb

import (
	"bufio"
	"errors"
	"io"
	"strings"
)

// maxEventLine limits a line of an event stream, in bytes.
const maxEventLine = 4 << 20

// readEvents reads server-sent events (HTML standard, section 9.2.6) until the stream ends or use
// fails. alive is called for every line, including comments.
func readEvents(r io.Reader, alive func(), use func(id, name, data string) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxEventLine)
	var id, name string
	var data []string
	for lines.Scan() {
		alive()
		line := lines.Text()
		if line == "" {
			// An event without data only sets the id.
			if len(data) > 0 {
				if err := use(id, name, strings.Join(data, "\n")); err != nil {
					return err
				}
			}
			name, data = "", nil
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			id = value
		case "event":
			name = value
		case "data":
			data = append(data, value)
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return errors.New("an event is longer than 4 MiB")
	}
	return lines.Err()
}
