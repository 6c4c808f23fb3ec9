package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"syscall"

	"github.com/mainstay-infra/mainstay/cli/exit"
)

// failure explains why a request got no response.
func (s *Service) failure(err error) error {
	var coded *exit.Error
	var u *url.Error
	switch inRequest := errors.As(err, &u); {
	case inRequest && errors.As(u.Err, &coded):
		return coded // it names the server
	case errors.As(err, &coded):
		return err
	}
	server := ""
	if u != nil {
		if parsed, parseErr := url.Parse(u.URL); parseErr == nil {
			server = " from " + parsed.Scheme + "://" + parsed.Host
		}
		err = u.Err
	}
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("interrupted: %w", err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return unavailable(fmt.Errorf("no answer%s: connection refused", server),
			fmt.Sprintf("is the server running? start it with %s, or name another with %s", s.Start, s.Flag))
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return unavailable(fmt.Errorf("no answer%s in time: %w", server, err), "--timeout allows for more")
	case errors.Is(err, http.ErrSchemeMismatch):
		return exit.Hinted(fmt.Errorf("no answer%s: %w", server, err), "the server has no TLS: its URL begins with http://")
	case errors.As(err, &certificate):
		return exit.Hinted(
			fmt.Errorf("no answer%s: %w", server, err),
			"--ca-file names the authority that signed the server's certificate",
		)
	}
	if server == "" {
		return err // not a transport error: for example, a file that a flag names
	}
	return unavailable(fmt.Errorf("no answer%s: %w", server, err), "")
}

func unavailable(err error, hint string) error {
	return &exit.Error{Code: exit.Unavailable, Err: err, Hint: hint}
}
