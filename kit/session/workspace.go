package session

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
)

// Service is a service of an installation.
type Service struct {
	// Name is the service's name in its workspace. It may be empty in a Document, where nobody gets
	// tickets.
	Name string `json:"name,omitempty"`
	// Title is the name that people read.
	Title string `json:"title"`
	// URL is the address of its console.
	URL string `json:"url"`
	// State is "up" or "down" as seen from the service that answers. A service can be down for it and
	// up for a browser.
	State string `json:"state"`
	// Current marks the service that answers.
	Current bool `json:"current"`

	// asked is the address at which the state is checked. It never depends on a request.
	asked string
}

// Workspace knows the services of an installation.
type Workspace interface {
	// Services returns all services, including the one that asks, in the order to show them. host is
	// the name by which the browser knows the one that asks.
	Services(host string) []Service
	// Ticket returns the address of a service's console, with a ticket that signs a person in, until
	// the session that it comes from ends. It fails with NotFound if there is none for this person,
	// who then signs in there.
	Ticket(who Who, host, service string, until time.Time) (url string, err error)
	// Redeem returns the token that a ticket for the service stands for, and until when it may be
	// used. An invalid ticket is a fault of kind Unauthenticated, and so is one that the service does not
	// accept any more.
	Redeem(ctx context.Context, service, ticket string) (token string, until time.Time, err error)
}

// OpenWorkspace returns given or, if it is nil, the Document at path, or nil if path is empty, too.
func OpenWorkspace(given Workspace, path string) (Workspace, error) {
	if given != nil || path == "" {
		return given, nil
	}
	d, err := ReadDocument(path)
	if err != nil {
		return nil, fault.InvalidField("workspace", "%v", err)
	}
	return d, nil
}

var errNoTicket = fault.New(fault.NotFound, "that service has no ticket for you; sign in there")

const (
	stateLife    = 5 * time.Second // how long a state is shown before it is checked again
	stateTimeout = 2 * time.Second
	maxChecks    = 8 // at once
)

// states checks which services answer. Consoles may ask often, so answers are kept for a moment.
type states struct {
	log    *slog.Logger
	now    func() time.Time
	client *http.Client
	checks chan struct{}

	mu    sync.Mutex
	known map[string]*checked // by URL
}

type checked struct {
	done  chan struct{} // closed when the check is complete
	at    time.Time
	state string
}

func newStates(now func() time.Time, log *slog.Logger) *states {
	return &states{
		log: log, now: now, checks: make(chan struct{}, maxChecks), known: map[string]*checked{},
		client: &http.Client{
			Timeout:       stateTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// of returns the services with their states. The service for which current is true is up, since it
// answers.
func (s *states) of(ctx context.Context, list []Service, current func(Service) bool) []Service {
	var wait sync.WaitGroup
	for i := range list {
		if list[i].Current = current(list[i]); list[i].Current {
			list[i].State = "up"
			continue
		}
		list[i].State = "down"
		wait.Go(func() {
			_ = routine.Run(s.log, "check of a service", func() { list[i].State = s.state(ctx, list[i].asked) }) // it is down then
		})
	}
	wait.Wait()
	return list
}

func (s *states) state(ctx context.Context, address string) string {
	s.mu.Lock()
	c := s.known[address]
	fresh := c == nil || !c.at.IsZero() && s.now().Sub(c.at) >= stateLife
	if fresh {
		c = &checked{done: make(chan struct{})}
		s.known[address] = c
	}
	s.mu.Unlock()
	if fresh {
		// The check does not end with the request that began it, since others wait for it.
		s.check(context.WithoutCancel(ctx), address, c)
	}
	<-c.done
	return c.state
}

func (s *states) check(ctx context.Context, address string, c *checked) {
	s.checks <- struct{}{}
	state := "down"
	defer func() {
		<-s.checks
		s.mu.Lock()
		c.state, c.at = state, s.now()
		s.mu.Unlock()
		close(c.done)
	}()
	health := strings.TrimSuffix(address, "/") + "/healthz"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, health, http.NoBody)
	if err != nil {
		return
	}
	response, err := s.client.Do(request)
	if err != nil {
		return
	}
	_ = response.Body.Close() // nothing is read from it
	if response.StatusCode == http.StatusOK {
		state = "up"
	}
}
