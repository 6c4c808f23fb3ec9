// Package section is what the comparisons of services have in common: sections that are chosen by name, a folder that is
// removed at the end, and services that are waited for.
package section

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Section is a part of a comparison.
type Section[B any] struct {
	Name string
	Run  func(ctx context.Context, b B) error
}

// Main calls run with a context that ends when the program is told to stop, and with a folder that is removed then. It
// ends the program if run fails.
func Main(name string, run func(ctx context.Context, folder string) error) {
	if err := inFolder(name, run); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func inFolder(name string, run func(ctx context.Context, folder string) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	folder, err := os.MkdirTemp("", "bench-"+name+"-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	return run(ctx, folder)
}

// Run runs the chosen sections in the order of all. chosen has their names with commas between them.
func Run[B any](ctx context.Context, b B, all []Section[B], chosen string) error {
	names := strings.Split(chosen, ",")
	for _, name := range names {
		if !slices.ContainsFunc(all, func(s Section[B]) bool { return s.Name == name }) {
			return fmt.Errorf("unknown section %q", name)
		}
	}
	for _, s := range all {
		if !slices.Contains(names, s.Name) {
			continue
		}
		if err := s.Run(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	return nil
}

// AwaitReady waits until the service at a URL says that it is ready.
func AwaitReady(ctx context.Context, client *http.Client, url string) error {
	for {
		res, err := client.Get(url + "/readyz")
		if err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}
