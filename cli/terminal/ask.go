// Package terminal asks people questions, shows them how far something is, and switches terminals to the
// modes that consoles and passwords need.
//
//	ask.go     questions and their answers
//	status.go  a line that changes below other text
//	raw.go     modes of a terminal
//
// Invariant: a terminal has its mode back when a function has returned, also after Ctrl-C.
package terminal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/mainstay-infra/mainstay/cli/output"
)

// maxLine limits an answer, in bytes.
const maxLine = 64 << 10

// Line reads one line, without its end. It reads nothing beyond it.
func Line(in io.Reader) (string, error) {
	var line []byte
	for one := make([]byte, 1); len(line) < maxLine; {
		n, err := in.Read(one)
		if n == 1 && one[0] == '\n' {
			return strings.TrimSuffix(string(line), "\r"), nil
		}
		line = append(line, one[:n]...)
		if errors.Is(err, io.EOF) && len(line) > 0 {
			return string(line), nil
		}
		if err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("a line is longer than %d bytes", maxLine)
}

// Ask prints a question and returns the answer, or usual if it is empty. It returns when ctx ends.
func Ask(ctx context.Context, in io.Reader, out io.Writer, question, usual string) (string, error) {
	if usual != "" {
		question += " [" + usual + "]"
	}
	answer, err := ask(ctx, in, out, question)
	if answer = strings.TrimSpace(answer); answer == "" {
		answer = usual
	}
	return answer, err
}

// Secret is Ask for what nobody is to see.
func Secret(ctx context.Context, in *os.File, out io.Writer, question string) (answer string, err error) {
	restore, err := Hidden(in)
	if err != nil {
		return "", fmt.Errorf("hide what is typed: %w", err)
	}
	defer func() { err = errors.Join(err, restore()) }()
	answer, err = ask(ctx, in, out, question)
	return strings.TrimSpace(answer), err
}

func ask(ctx context.Context, in io.Reader, out io.Writer, question string) (string, error) {
	if _, err := fmt.Fprintf(out, "%s: ", output.Escape(question)); err != nil {
		return "", err
	}
	type result struct {
		line string
		err  error
	}
	read := make(chan result, 1)
	// Reading from a terminal cannot be interrupted; the process ends first.
	go func() {
		line, err := Line(in)
		read <- result{line, err}
	}()
	select {
	case r := <-read:
		if errors.Is(r.err, io.EOF) {
			return "", errors.New("no answer")
		}
		return r.line, r.err
	case <-ctx.Done():
		_, _ = io.WriteString(out, "\n") // below the question
		return "", fmt.Errorf("interrupted: %w", ctx.Err())
	}
}
