package session

import (
	"context"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/ticket"
)

// Member is a service of a Ring.
type Member struct {
	Name, Title, URL string
	// Tokens returns the service's token for a role of Who when a ticket is redeemed. People with roles
	// that are not in Tokens sign in themselves.
	Tokens map[string]Issue
}

// Issue returns a token for whoever signs in with a ticket.
type Issue func(context.Context) (token string, err error)

// Fixed returns an Issue that returns the same token for everybody, or nil if the token is empty.
func Fixed(token string) Issue {
	if token == "" {
		return nil
	}
	return func(context.Context) (string, error) { return token, nil }
}

// at returns the member's address for a browser that knows the machine by host: as localhost, for
// example, or from another machine.
func (m *Member) at(host string) string {
	u, err := url.Parse(m.URL)
	if err != nil || host == "" {
		return m.URL
	}
	if port := u.Port(); port != "" {
		host = net.JoinHostPort(host, port)
	} else if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	u.Host, u.Path = host, ""
	return u.String()
}

// pass is what a ticket stands for.
type pass struct {
	role  string
	until time.Time
}

// Ring is the Workspace of services that run in one process, as in dev mode. Whoever may do
// everything in one of them may do so in the others, and likewise for seeing everything. It is safe
// for concurrent use.
type Ring struct {
	tickets *ticket.Tickets[pass]

	mu      sync.Mutex
	members []Member
}

// NewRing returns an empty Ring.
func NewRing(now func() time.Time) *Ring {
	return &Ring{tickets: ticket.New("mst_", func(p pass) string { return p.role }, now)}
}

// Join adds a service.
func (g *Ring) Join(m Member) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.members = append(g.members, m)
}

// Services returns the services in the order of their names.
func (g *Ring) Services(host string) []Service {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]Service, len(g.members))
	for i, m := range g.members {
		out[i] = Service{Name: m.Name, Title: m.Title, URL: m.at(host), asked: m.URL}
	}
	slices.SortFunc(out, func(a, b Service) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Ticket implements Workspace.
func (g *Ring) Ticket(who Who, host, service string, until time.Time) (string, error) {
	m, found := g.member(service)
	if !found {
		return "", fault.New(fault.NotFound, "there is no service %.64q here", service)
	}
	if m.Tokens[who.Role] == nil {
		return "", errNoTicket
	}
	word, _, err := g.tickets.Issue(pass{who.Role, until}, service, "session")
	if err != nil {
		return "", err
	}
	// The fragment is never sent to a server, so it is in no log.
	return m.at(host) + "/#ticket=" + url.QueryEscape(word), nil
}

// Redeem implements Workspace.
func (g *Ring) Redeem(ctx context.Context, service, word string) (token string, until time.Time, err error) {
	p, err := g.tickets.Redeem(word, service, "session")
	if err != nil {
		return "", time.Time{}, err
	}
	m, _ := g.member(service)
	issue := m.Tokens[p.role]
	if issue == nil {
		return "", time.Time{}, errNoTicket
	}
	if token, err = issue(ctx); err != nil {
		return "", time.Time{}, fault.Wrap(fault.Unauthenticated, err, "%s has no ticket for you; sign in", m.Title)
	}
	return token, p.until, nil
}

func (g *Ring) member(name string) (Member, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.IndexFunc(g.members, func(m Member) bool { return m.Name == name })
	if i < 0 {
		return Member{}, false
	}
	return g.members[i], true
}
