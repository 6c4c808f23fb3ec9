package edge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/glob"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/kit/search"
	"github.com/mainstay-infra/mainstay/kit/series"
	"github.com/mainstay-infra/mainstay/kit/text"
	"github.com/mainstay-infra/mainstay/kit/webhook"
	"github.com/mainstay-infra/mainstay/service/edge/delivery"
	"github.com/mainstay-infra/mainstay/service/edge/tally"
	"github.com/mainstay-infra/mainstay/service/edge/topic"
)

// Route sends matching events to an HTTP target.
type Route struct {
	ID             string  `db:"id"`
	OrgID          string  `db:"org_id"` // empty: a global route, which sees every org's events
	Name           string  `db:"name"`
	SiteID         string  `db:"site_id"` // empty: every site in scope
	Topic          string  `db:"topic"`   // a pattern
	TargetURL      string  `db:"target_url"`
	Method         string  `db:"method"`
	Enabled        bool    `db:"enabled"`
	DisabledReason string  `db:"disabled_reason"`
	RetryMax       int     `db:"retry_max"`
	TimeoutSeconds int     `db:"timeout_seconds"`
	Secret         string  `db:"secret"`         // sealed
	BlockedReason  string  `db:"blocked_reason"` // internal reason why nothing is sent although it is enabled
	CreatedAt      db.Time `db:"created_at"`
	UpdatedAt      db.Time `db:"updated_at"`
	Search         string  `db:"search"` // what a search looks at (package search)
}

func (r *Route) searchText() string { return search.Text(nil, r.ID, r.Name, r.Topic, r.TargetURL) }

// described returns the ID, and the column search.
func (r *Route) described() (id, text string) { return r.ID, r.searchText() }

func (r *Route) state() string {
	if r.Enabled {
		return "enabled"
	}
	return "disabled"
}

// matches reports whether the route applies to an event.
func (r *Route) matches(e *Event) bool {
	return (r.OrgID == "" || r.OrgID == e.OrgID) && (r.SiteID == "" || r.SiteID == e.SiteID) &&
		glob.Match(r.Topic, e.Topic)
}

// Limits of a route's settings. The contract has the same ones.
const (
	maxRouteRetries = 20
	maxRouteTimeout = 60 // seconds
)

func (s *Service) checkRoute(ctx context.Context, q db.Querier, r *Route) error {
	if err := text.Check("name", r.Name); err != nil {
		return err
	}
	if err := topic.Check("topic", r.Topic); err != nil {
		return err
	}
	if _, err := s.targets.CheckURL(r.TargetURL); err != nil {
		return err
	}
	if r.Method != http.MethodPost && r.Method != http.MethodPut && r.Method != http.MethodPatch {
		return fault.InvalidField("method", "must be POST, PUT or PATCH")
	}
	if r.RetryMax < 1 || r.RetryMax > maxRouteRetries {
		return fault.InvalidField("retry_max", "must be between 1 and %d", maxRouteRetries)
	}
	if r.TimeoutSeconds < 1 || r.TimeoutSeconds > maxRouteTimeout {
		return fault.InvalidField("timeout_seconds", "must be between 1 and %d", maxRouteTimeout)
	}
	if r.SiteID == "" {
		return nil
	}
	_, err := s.site(ctx, q, r.SiteID)
	return err
}

// holdRoutes must be the first step of every transaction that changes routes. It blocks ingest,
// whose transactions hold the counter of events: events being accepted get their deliveries before
// the change, and later ones see it. Then it locks the routes' deliveries. All transactions take
// these locks in this order.
func (s *Service) holdRoutes(ctx context.Context, tx *db.Tx, ids ...string) error {
	var event int64
	if err := tx.Get(ctx, &event, "SELECT value FROM counters WHERE name = 'event'"+tx.ForUpdate()); err != nil {
		return err
	}
	if _, err := take(ctx, tx, "routes", 1); err != nil {
		return err
	}
	tx.OnCommit(func() { s.delivery.Changed(ids...) })
	return delivery.LockRoute(ctx, tx, ids...)
}

// keepRoutes prevents changes of routes until the transaction ends.
func keepRoutes(ctx context.Context, tx *db.Tx) error {
	var revision int64
	return tx.Get(ctx, &revision, "SELECT value FROM counters WHERE name = 'routes'"+tx.ForShare())
}

// routesRevision returns a number that grows with every change of a route.
func (s *Service) routesRevision(ctx context.Context) (revision int64, err error) {
	err = s.db.Get(ctx, &revision, "SELECT value FROM counters WHERE name = 'routes'")
	return revision, err
}

// RouteInput holds the settings that a caller may choose. Nil fields keep the present value, or
// take the default in a new route.
type RouteInput struct {
	Name, SiteID, Topic, TargetURL, Method, Secret *string
	Enabled                                        *bool
	RetryMax, TimeoutSeconds                       *int
}

func (in RouteInput) apply(r *Route) {
	set(&r.Name, in.Name)
	set(&r.SiteID, in.SiteID)
	set(&r.Topic, in.Topic)
	set(&r.TargetURL, in.TargetURL)
	set(&r.Method, in.Method)
	set(&r.Enabled, in.Enabled)
	set(&r.RetryMax, in.RetryMax)
	set(&r.TimeoutSeconds, in.TimeoutSeconds)
}

func set[T any](field *T, value *T) {
	if value != nil {
		*field = *value
	}
}

// CreateRoute creates a route and returns it with its signing secret in plain text.
func (s *Service) CreateRoute(ctx context.Context, in RouteInput) (Route, string, error) {
	r := Route{
		ID:             newID(),
		OrgID:          callerFrom(ctx).OrgID,
		Method:         "POST",
		Enabled:        true,
		RetryMax:       5,
		TimeoutSeconds: 10,
	}
	in.apply(&r)
	r.CreatedAt = db.At(s.now())
	r.UpdatedAt, r.Search = r.CreatedAt, r.searchText()
	if err := s.checkRoute(ctx, s.db, &r); err != nil {
		return r, "", err
	}
	secret := webhook.NewSecret()
	set(&secret, in.Secret)
	if err := s.sealSecret(&r, secret); err != nil {
		return r, "", err
	}
	err := s.db.Update(ctx, func(tx *db.Tx) error {
		if err := s.holdRoutes(ctx, tx, r.ID); err != nil {
			return err
		}
		return s.addRoute(ctx, tx, r)
	})
	return r, secret, err
}

// addRoute inserts the rows of a route. The transaction must have started with holdRoutes.
func (s *Service) addRoute(ctx context.Context, tx *db.Tx, r Route) error {
	if err := keepOrg(ctx, tx, r.OrgID); err != nil {
		return err
	}
	if err := tx.Insert(ctx, "routes", r); err != nil {
		return err
	}
	if _, err := tx.Exec(
		ctx,
		`INSERT INTO route_stats (route_id, delivered, failed_attempts, dead_lettered, last_status, last_error)
		VALUES (?, 0, 0, 0, 0, '')`,
		r.ID,
	); err != nil {
		return err
	}
	tally.Add(tx, r.OrgID, tally.Route, r.state(), 1)
	return s.record(ctx, tx, entry{
		Action:  "route.create",
		Target:  r.ID,
		SiteID:  r.SiteID,
		OrgID:   r.OrgID,
		Message: "route " + r.Name + " created",
		Detail:  routeDetail(r),
	})
}

func routeDetail(r Route) map[string]any {
	return map[string]any{
		"name":       r.Name,
		"topic":      r.Topic,
		"site_id":    r.SiteID,
		"target_url": r.TargetURL,
		"enabled":    r.Enabled,
	}
}

func (s *Service) sealSecret(r *Route, secret string) error {
	if _, err := webhook.ParseSecret(secret); err != nil {
		return fault.InvalidField("secret", "%s", fault.From(err).Message)
	}
	r.Secret = s.routeSecrets.Seal([]byte(secret), r.ID)
	return nil
}

// RouteHealth is the state of a route's deliveries.
type RouteHealth struct {
	State         string  `db:"-"`           // as defined by the contract
	LastStatus    int     `db:"last_status"` // of the last attempt
	LastError     string  `db:"last_error"`  // of the last attempt that failed
	LastSuccessAt db.Time `db:"last_success_at"`
	LastFailureAt db.Time `db:"last_failure_at"`
}

// RouteWithHealth is a route with the state of its deliveries.
type RouteWithHealth struct {
	Route
	RouteHealth
}

const selectRoutesWithHealth = `SELECT r.*, COALESCE(st.last_status, 0) AS last_status, COALESCE(st.last_error, '') AS last_error, st.last_success_at, st.last_failure_at
	FROM routes r LEFT JOIN route_stats st ON st.route_id = r.id WHERE `

// judge sets State, and LastError if the route is blocked.
func (r *RouteWithHealth) judge(breaker webhook.State) {
	switch {
	case !r.Enabled:
		r.State = "disabled"
	case r.BlockedReason != "":
		r.State, r.LastError = "blocked", r.BlockedReason
	case breaker == webhook.Open:
		r.State = "circuit_open"
	case r.LastFailureAt.After(r.LastSuccessAt.Time):
		r.State = "failing"
	case r.LastSuccessAt.IsZero():
		r.State = "idle"
	default:
		r.State = "ok"
	}
}

// RouteFilter selects routes; zero fields select all.
type RouteFilter struct {
	Status string // enabled, disabled, or failing, which is what an alert is firing for
	Text   string // must be contained in the id, the name, the topic or the target's URL, ignoring case
	Sort   string // as the contract has it; empty: by id, which is the order of creation
	After  string // the key of the last route of the previous page
	Limit  int
}

// scope returns the part of a scope that has the status.
func (f RouteFilter) scope(scope db.Scope) db.Scope {
	switch f.Status {
	case "enabled":
		return scope.And("enabled")
	case "disabled":
		return scope.And("NOT enabled")
	case countFailing:
		return scope.And(routeIsFailing)
	}
	return scope
}

// routeIsFailing is the condition on routes that an alert is firing because of their deliveries.
const routeIsFailing = `id IN (SELECT subject FROM alerts
	WHERE status = 'firing' AND kind IN ('route_failing', 'delivery_blocked'))`

var routeSorts = list.Sorts{List: "routes", Unique: "id", Usual: "id", By: map[string]list.Column{
	"id": {Name: "id"}, "name": {Name: "name"}, "updated_at": {Name: "updated_at", Number: true},
}}

// routeKey returns the key of a route in a list.
func routeKey(order list.Order, r Route) string {
	value := ""
	switch order.Word() {
	case "name":
		value = r.Name
	case "updated_at":
		value = strconv.FormatInt(r.UpdatedAt.UnixMicro(), 10)
	}
	return order.Key(value, r.ID)
}

// Routes lists routes in scope, with the state of their deliveries.
func (s *Service) Routes(ctx context.Context, f RouteFilter) ([]RouteWithHealth, list.Order, error) {
	return s.routes(ctx, s.db, f)
}

func (s *Service) routes(ctx context.Context, q db.Querier, f RouteFilter) ([]RouteWithHealth, list.Order, error) {
	var rows []Route
	order, err := search.Page{
		Table: "routes", ID: "id", Sorts: routeSorts, Scope: f.scope(callerFrom(ctx).scope()), Text: f.Text, Sort: f.Sort,
		After: f.After, Limit: f.Limit,
	}.Read(ctx, q, &rows)
	if err != nil || len(rows) == 0 {
		return nil, order, err
	}
	ids := make([]string, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
	}
	query, args, err := db.In(
		"SELECT route_id, last_status, last_error, last_success_at, last_failure_at FROM route_stats WHERE route_id IN (?)", ids,
	)
	if err != nil {
		return nil, order, err
	}
	var stats []struct {
		RouteID string `db:"route_id"`
		RouteHealth
	}
	if err := q.Select(ctx, &stats, query, args...); err != nil {
		return nil, order, err
	}
	health := make(map[string]RouteHealth, len(stats))
	for _, st := range stats {
		health[st.RouteID] = st.RouteHealth
	}
	routes := make([]RouteWithHealth, len(rows))
	for i, r := range rows {
		routes[i] = RouteWithHealth{r, health[r.ID]}
		routes[i].judge(s.delivery.Breaker(r.ID))
	}
	return routes, order, nil
}

// RouteWithHealth returns one route in scope, with the state of its deliveries.
func (s *Service) RouteWithHealth(ctx context.Context, id string) (RouteWithHealth, error) {
	var r RouteWithHealth
	err := s.db.Get(ctx, &r, selectRoutesWithHealth+"r.id = ?", id)
	if err == nil && !callerFrom(ctx).sees(r.OrgID) {
		err = db.ErrNoRows
	}
	if err != nil {
		return r, db.NotFound(err, "no route %s", id)
	}
	r.judge(s.delivery.Breaker(id))
	return r, nil
}

// Route returns one route in scope.
func (s *Service) Route(ctx context.Context, id string) (Route, error) {
	return s.route(ctx, s.db, id, "")
}

func (s *Service) route(ctx context.Context, q db.Querier, id, lock string) (Route, error) {
	var r Route
	err := q.Get(ctx, &r, "SELECT * FROM routes WHERE id = ?"+lock, id)
	if err == nil && !callerFrom(ctx).sees(r.OrgID) {
		err = db.ErrNoRows
	}
	return r, db.NotFound(err, "no route %s", id)
}

// PatchRoute changes a route. If that disables it, its pending deliveries become dead letters, so
// that nothing is lost and nothing waits unnoticed.
func (s *Service) PatchRoute(ctx context.Context, id string, in RouteInput) (Route, error) {
	r, err := s.Route(ctx, id)
	if err != nil {
		return r, err // fail before taking any locks
	}
	more := false
	err = s.db.Update(ctx, func(tx *db.Tx) (err error) {
		if err := s.holdRoutes(ctx, tx, id); err != nil {
			return err
		}
		if r, err = s.route(ctx, tx, id, tx.ForUpdate()); err != nil {
			return err
		}
		was := r
		in.apply(&r)
		if err := s.checkRoute(ctx, tx, &r); err != nil {
			return err
		}
		if in.Secret != nil {
			if err := s.sealSecret(&r, *in.Secret); err != nil {
				return err
			}
		}
		if r.Enabled {
			r.DisabledReason = ""
			if _, err := s.deliveryRoute(r); err != nil && !was.Enabled {
				return fault.InvalidField(
					"secret", "cannot be read any more; give a new secret to enable the route",
				).WithCode("secret_lost")
			}
		}
		r.UpdatedAt = db.At(s.now())
		more, err = s.changeRoute(ctx, tx, was, r, "route "+r.Name+" changed")
		return err
	})
	if err == nil && more {
		s.buryRest(ctx, id, r.OrgID)
	}
	return r, err
}

// changeRoute stores a changed route. It reports whether a route that it disabled has deliveries
// left for buryRest. The transaction must have started with holdRoutes.
func (s *Service) changeRoute(ctx context.Context, tx *db.Tx, was, r Route, message string) (more bool, err error) {
	if _, err := tx.Exec(
		ctx,
		`UPDATE routes SET name = ?, site_id = ?, topic = ?, target_url = ?, method = ?, enabled = ?, disabled_reason = ?,
		retry_max = ?, timeout_seconds = ?, secret = ?, updated_at = ?, search = ? WHERE id = ?`,
		r.Name,
		r.SiteID,
		r.Topic,
		r.TargetURL,
		r.Method,
		r.Enabled,
		r.DisabledReason,
		r.RetryMax,
		r.TimeoutSeconds,
		r.Secret,
		r.UpdatedAt,
		r.searchText(),
		r.ID,
	); err != nil {
		return false, err
	}
	if was.Enabled && !r.Enabled {
		if more, err = delivery.BuryRoute(ctx, tx, r.ID, r.OrgID, delivery.RouteDisabled, s.now()); err != nil {
			return false, err
		}
	}
	tally.Move(tx, r.OrgID, tally.Route, was.state(), r.state())
	tx.OnCommit(s.nudgeAlerts)
	return more, s.record(ctx, tx, entry{
		Action:  "route.update",
		Target:  r.ID,
		SiteID:  r.SiteID,
		OrgID:   r.OrgID,
		Message: message,
		Detail:  routeDetail(r),
	})
}

// buryRest turns the remaining deliveries of a disabled or deleted route into dead letters, page by
// page so that others do not wait long. On an error it stops, and maintenance does the rest.
func (s *Service) buryRest(ctx context.Context, id, orgID string) {
	for more := true; more; {
		err := s.db.Update(ctx, func(tx *db.Tx) (err error) {
			more, err = s.buryPage(ctx, tx, id, orgID)
			return err
		})
		if err != nil {
			s.log.Warn(
				"deliveries of a route that is off wait for the next maintenance to become dead letters", "route",
				id, "error", err,
			)
			return
		}
	}
}

// buryPage is one step of buryRest. It does nothing if the route was enabled again.
func (s *Service) buryPage(ctx context.Context, tx *db.Tx, id, orgID string) (more bool, err error) {
	if err := keepRoutes(ctx, tx); err != nil {
		return false, err
	}
	reason := delivery.RouteDisabled
	r, err := s.route(asSystem(ctx), tx, id, "")
	switch {
	case fault.Is(err, fault.NotFound):
		reason = delivery.RouteDeleted
	case err != nil:
		return false, err
	case r.Enabled:
		return false, nil
	default:
		orgID = r.OrgID
	}
	if err := delivery.LockRoute(ctx, tx, id); err != nil {
		return false, err
	}
	return delivery.BuryRoute(ctx, tx, id, orgID, reason, s.now())
}

// buryStray turns deliveries of disabled and deleted routes into dead letters. There are some after
// a crash in the middle of buryRest.
func (s *Service) buryStray(ctx context.Context) error {
	ids, err := delivery.Stray(ctx, s.db)
	if err != nil || len(ids) == 0 {
		return err
	}
	for _, id := range ids {
		s.buryRest(ctx, id, "")
	}
	// buryRest cannot know to which org's tally the deliveries of a deleted route belonged.
	return s.db.Update(ctx, func(tx *db.Tx) error { return delivery.Recount(ctx, tx) })
}

// routeGone disables a route whose target answered 410 Gone. The transaction must have started with
// holdRoutes.
func (s *Service) routeGone(ctx context.Context, tx *db.Tx, id string) error {
	ctx = asSystem(ctx)
	r, err := s.route(ctx, tx, id, tx.ForUpdate())
	if fault.Is(err, fault.NotFound) || err == nil && !r.Enabled {
		return nil
	}
	if err != nil {
		return err
	}
	was := r
	r.Enabled, r.DisabledReason, r.UpdatedAt = false, "the target answered 410 Gone", db.At(s.now())
	if _, err := s.tell(
		ctx,
		tx,
		Activity{Level: levelError, OrgID: r.OrgID, SiteID: r.SiteID, Chapter: "delivery", Action: "route.disable",
			Message: fmt.Sprintf("route %s was disabled: %s", r.Name, r.DisabledReason)},
	); err != nil {
		return err
	}
	_, err = s.changeRoute(ctx, tx, was, r, "route "+r.Name+" disabled: "+r.DisabledReason)
	return err // maintenance buries the remaining deliveries
}

// DeleteRoute deletes a route. Its pending deliveries become dead letters.
func (s *Service) DeleteRoute(ctx context.Context, id string) error {
	r, err := s.Route(ctx, id)
	if err != nil {
		return err // fail before taking any locks
	}
	more := false
	err = s.db.Update(ctx, func(tx *db.Tx) error {
		if err := s.holdRoutes(ctx, tx, id); err != nil {
			return err
		}
		if r, err = s.route(ctx, tx, id, tx.ForUpdate()); err != nil {
			return err
		}
		if more, err = delivery.BuryRoute(ctx, tx, id, r.OrgID, delivery.RouteDeleted, s.now()); err != nil {
			return err
		}
		return s.deleteRoute(ctx, tx, r)
	})
	if err == nil && more {
		s.buryRest(ctx, id, r.OrgID)
	}
	return err
}

// deleteRoute deletes the rows of a route. The transaction must have started with holdRoutes.
func (s *Service) deleteRoute(ctx context.Context, tx *db.Tx, r Route) error {
	for _, statement := range []string{
		"DELETE FROM routes WHERE id = ?", "DELETE FROM route_stats WHERE route_id = ?",
		"DELETE FROM route_minutes WHERE route_id = ?",
	} {
		if _, err := tx.Exec(ctx, statement, r.ID); err != nil {
			return err
		}
	}
	tally.Add(tx, r.OrgID, tally.Route, r.state(), -1)
	tx.OnCommit(s.nudgeAlerts)
	return s.record(ctx, tx, entry{
		Action:  "route.delete",
		Target:  r.ID,
		SiteID:  r.SiteID,
		OrgID:   r.OrgID,
		Message: "route " + r.Name + " deleted",
	})
}

// TestRoute sends one test event to the route's target, without retries.
func (s *Service) TestRoute(ctx context.Context, id string, payload []byte) (webhook.Result, error) {
	r, err := s.Route(ctx, id)
	if err != nil {
		return webhook.Result{}, err
	}
	dr, err := s.deliveryRoute(r)
	if err != nil {
		return webhook.Result{}, err
	}
	if len(payload) == 0 {
		payload = []byte(`{"test":true}`)
	}
	now := s.now().UTC()
	res := s.delivery.Try(
		ctx,
		dr,
		delivery.Event{EventID: "test-" + newID(), OrgID: r.OrgID, SiteID: r.SiteID, Topic: r.Topic,
			Payload: payload, Headers: map[string]string{}, EventTime: now, ReceivedAt: now},
	)
	err = s.db.Update(ctx, func(tx *db.Tx) error {
		return s.record(ctx, tx, entry{Action: "route.test", Target: id, SiteID: r.SiteID, OrgID: r.OrgID,
			Message: "route " + r.Name + " tested", Detail: map[string]any{"status": res.Status}})
	})
	return res, err
}

// deliveryRoute converts a route for the delivery engine and decrypts its secret.
func (s *Service) deliveryRoute(r Route) (delivery.Route, error) {
	text, err := s.routeSecrets.Open(r.Secret, r.ID)
	if err != nil {
		return delivery.Route{}, fault.Wrap(
			fault.Conflict, err,
			"the route's secret cannot be opened; give it a new one, or start with the key that it was sealed with as accepted-secret-key",
		).WithCode("secret_lost")
	}
	secret, err := webhook.ParseSecret(string(text))
	if err != nil {
		return delivery.Route{}, err
	}
	return delivery.Route{
		ID:        r.ID,
		OrgID:     r.OrgID,
		TargetURL: r.TargetURL,
		Method:    r.Method,
		Enabled:   r.Enabled,
		RetryMax:  r.RetryMax,
		Timeout:   time.Duration(r.TimeoutSeconds) * time.Second,
		Secret:    secret,
		Blocked:   r.BlockedReason != "",
	}, nil
}

// routeForDelivery returns a route for the delivery engine, or db.ErrNoRows if it does not exist.
func (s *Service) routeForDelivery(ctx context.Context, id string) (delivery.Route, error) {
	r, err := s.Route(asSystem(ctx), id)
	if fault.Is(err, fault.NotFound) {
		return delivery.Route{}, db.ErrNoRows
	}
	if err != nil {
		return delivery.Route{}, err
	}
	return s.deliveryRoute(r)
}

// routeBlocked records why nothing can be sent over a route although it is enabled. An empty reason
// means that it works again.
func (s *Service) routeBlocked(ctx context.Context, id, reason string) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(
			ctx, "UPDATE routes SET blocked_reason = ? WHERE id = ? AND blocked_reason <> ?", reason, id, reason,
		)
		if n > 0 {
			tx.OnCommit(s.nudgeAlerts)
		}
		return err
	})
}

// routeTable is a snapshot of all routes.
type routeTable struct {
	revision int64
	all      []Route
	org      map[string]string // route ID -> org ID
}

// routing caches the routes in memory for ingest. It reads them again whenever the counter "routes"
// has changed, on any replica. The transaction must have taken an event number before, so that no
// change of routes is in progress (holdRoutes).
type routing struct {
	mu    sync.Mutex
	table *routeTable
}

func (rt *routing) current(ctx context.Context, tx *db.Tx) (*routeTable, error) {
	var revision int64
	if err := tx.Get(ctx, &revision, "SELECT value FROM counters WHERE name = 'routes'"); err != nil {
		return nil, err
	}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.table != nil && rt.table.revision == revision {
		return rt.table, nil
	}
	table := &routeTable{revision: revision, org: map[string]string{}}
	if err := tx.Select(ctx, &table.all, "SELECT * FROM routes ORDER BY id"); err != nil {
		return nil, err
	}
	for _, r := range table.all {
		table.org[r.ID] = r.OrgID
	}
	rt.table = table
	return table, nil
}

// RouteStats holds a route's counts since its creation, and per minute.
type RouteStats struct {
	Pending        int64
	Delivered      int64         `db:"delivered"`
	FailedAttempts int64         `db:"failed_attempts"`
	DeadLettered   int64         `db:"dead_lettered"`
	LastStatus     int           `db:"last_status"`
	LastError      string        `db:"last_error"`
	LastSuccessAt  db.Time       `db:"last_success_at"`
	LastFailureAt  db.Time       `db:"last_failure_at"`
	Minutes        []RouteMinute `db:"-"`
	Breaker        webhook.State `db:"-"`
}

// RouteMinute holds a route's counts of one minute.
type RouteMinute struct {
	Minute         db.Time `db:"minute"`
	Delivered      int64   `db:"delivered"`
	FailedAttempts int64   `db:"failed_attempts"`
	DeadLettered   int64   `db:"dead_lettered"`
}

// RouteStats returns a route's statistics, with those of the last minutes.
func (s *Service) RouteStats(ctx context.Context, id string, minutes int) (RouteStats, error) {
	if _, err := s.Route(ctx, id); err != nil {
		return RouteStats{}, err
	}
	var st RouteStats
	err := s.db.Get(
		ctx, &st,
		"SELECT delivered, failed_attempts, dead_lettered, last_status, last_error, last_success_at, last_failure_at FROM route_stats WHERE route_id = ?",
		id,
	)
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return st, err
	}
	if err := s.db.Get(ctx, &st.Pending, "SELECT count(*) FROM deliveries WHERE route_id = ?", id); err != nil {
		return st, err
	}
	st.Minutes = []RouteMinute{}
	err = delivery.Minutes.Read(ctx, s.db, &st.Minutes, series.Last(s.now(), time.Minute, minutes), "route_id = ?", id)
	st.Breaker = s.delivery.Breaker(id)
	return st, err
}
