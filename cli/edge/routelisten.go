package edge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/kit/webhook"
)

// maxListenBody limits how much of a delivery is read, in bytes; events are at most 1 MiB.
const maxListenBody = 4 << 20

// routeListen returns a command that acts as a target for experiments: it needs no control plane,
// and prints what is delivered to it.
func (s *session) routeListen() *cobra.Command {
	var address, secretText string
	var status int
	cmd := &cobra.Command{
		Use:   "listen",
		Short: "Be a target: print what is delivered here, until interrupted",
		Long: `Listen on an address of this machine and print every delivery that arrives. With the route's secret the signatures are
checked, and what is not signed by it is refused with 401. --status answers with another status, to see retries and dead
letters.`,
		Example: "  mainstay edge route listen\n  mainstay edge route listen --address 127.0.0.1:9001 --secret whsec_...\n  mainstay edge route listen --status 503",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if status < 200 || status > 599 {
				return exit.Usagef("--status must be between 200 and 599")
			}
			t := listener{out: cmd.OutOrStdout(), status: status}
			if secretText != "" {
				var err error
				if t.secret, err = webhook.ParseSecret(secretText); err != nil {
					return exit.Usagef("--secret: %v", err)
				}
			}
			return t.serve(cmd.Context(), address, cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&address, "address", "127.0.0.1:9000", "address to listen on")
	cmd.Flags().StringVar(&secretText, "secret", "", "the route's secret, to check signatures with")
	cmd.Flags().IntVar(&status, "status", http.StatusOK, "status to answer with")
	return cmd
}

type listener struct {
	out    io.Writer
	secret webhook.Secret
	status int
}

func (l listener) serve(ctx context.Context, address string, progress io.Writer) error {
	socket, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("--address: %w", err)
	}
	if _, err := fmt.Fprintf(progress, "Listening on http://%s/. Stop with Ctrl-C.\n", socket.Addr()); err != nil {
		return err
	}
	server := &http.Server{Handler: l, ReadHeaderTimeout: 10 * time.Second}
	stopped := context.AfterFunc(ctx, func() { _ = server.Close() }) // the user wants to quit
	defer stopped()
	if err := server.Serve(socket); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// ServeHTTP prints a delivery: the time, its id, and the event.
func (l listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxListenBody))
	if err != nil {
		http.Error(w, "cannot read the body", http.StatusBadRequest)
		return
	}
	status, signed := l.status, "unchecked"
	if !l.secret.IsZero() {
		signed = "signed"
		if err := l.secret.Verify(r.Header, body, time.Now(), webhook.DefaultTolerance); err != nil {
			status, signed = http.StatusUnauthorized, "NOT SIGNED BY THE SECRET"
		}
	}
	line := fmt.Sprintf(
		"%s %s %s %s %s", time.Now().Format(time.TimeOnly), r.Method, r.Header.Get(webhook.HeaderID), signed, body,
	)
	_, _ = fmt.Fprintln(l.out, output.Escape(line)) // output may be closed
	w.WriteHeader(status)
}
