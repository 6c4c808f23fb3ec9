package edge

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/image"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/kit/search"
	"github.com/mainstay-infra/mainstay/kit/text"
	"github.com/mainstay-infra/mainstay/service/edge/tally"
)

// Statuses of a deployment. All but pending and rolled_back are reported by the agent.
const (
	deploymentPending    = "pending"
	deploymentRunning    = "running"
	deploymentDenied     = "denied"
	deploymentRolledBack = "rolled_back"
)

// desiredStopped is the desired state of a deployment that is kept but not running.
const desiredStopped = "stopped"

// Port is a container port and the host port that is mapped to it.
type Port struct {
	ContainerPort int    `json:"container_port"`
	HostPort      int    `json:"host_port,omitempty"`
	Protocol      string `json:"protocol"`
}

// HealthCheck is the health check of a container, which the agent runs.
type HealthCheck struct {
	Command            []string `json:"command"`
	IntervalSeconds    int      `json:"interval_seconds"`
	TimeoutSeconds     int      `json:"timeout_seconds"`
	Retries            int      `json:"retries"`
	StartPeriodSeconds int      `json:"start_period_seconds"`
}

// Deployment is a container that a site should run.
//
// revision increases with every change of what should run. observed_revision is the revision that
// the agent's last status refers to.
type Deployment struct {
	ID               string                     `db:"id"`
	SiteID           string                     `db:"site_id"`
	OrgID            string                     `db:"org_id"`
	Name             string                     `db:"name"`
	Image            string                     `db:"image"`
	Version          string                     `db:"version"`
	DesiredState     string                     `db:"desired_state"`
	Env              db.JSON[map[string]string] `db:"env"`
	Ports            db.JSON[[]Port]            `db:"ports"`
	PullPolicy       string                     `db:"pull_policy"` // missing, always, never
	Restart          string                     `db:"restart"`     // always, on_failure, no
	Health           db.JSON[*HealthCheck]      `db:"health"`      // nil: none
	Revision         int64                      `db:"revision"`
	ObservedRevision int64                      `db:"observed_revision"`
	PreviousImage    string                     `db:"previous_image"` // empty: nothing to roll back to
	PreviousVersion  string                     `db:"previous_version"`
	PreviousRun      db.JSON[*deploymentRun]    `db:"previous_run"` // nil: as now
	Status           string                     `db:"status"`
	Message          string                     `db:"message"`
	Violates         bool                       `db:"violates"` // the policy packs no longer allow the image
	CreatedAt        db.Time                    `db:"created_at"`
	UpdatedAt        db.Time                    `db:"updated_at"`
	Search           string                     `db:"search"` // what a search looks at (package search)

	// Site holds what is known about the site. While the site is not online, the container's state
	// is unknown.
	Site siteSeen `db:"-"`
}

// siteSeen is the status of a site and the time of its last heartbeat.
type siteSeen struct {
	ID         string  `db:"id"`
	Status     string  `db:"status"`
	LastSeenAt db.Time `db:"last_seen_at"`
}

// deploymentRun holds the settings with which an image is run.
type deploymentRun struct {
	Env     map[string]string `json:"env"`
	Ports   []Port            `json:"ports"`
	Restart string            `json:"restart"`
	Health  *HealthCheck      `json:"health"`
}

func (d *Deployment) searchText() string { return search.Text(nil, d.ID, d.Name, d.Image, d.Version) }

// described returns the ID, and the column search.
func (d *Deployment) described() (id, text string) { return d.ID, d.searchText() }

func (d *Deployment) run() *deploymentRun {
	return &deploymentRun{Env: d.Env.V, Ports: d.Ports.V, Restart: d.Restart, Health: d.Health.V}
}

// keepPrevious stores the release before a change, for a rollback, if the change requires a new
// container. A release that never ran does not replace one that did.
func (d *Deployment) keepPrevious(was Deployment) {
	same := d.Image == was.Image && d.Version == was.Version && reflect.DeepEqual(d.run(), was.run())
	ran := was.Status != deploymentPending && was.Status != deploymentDenied
	if !same && ran && (was.Status == deploymentRunning || was.PreviousImage == "") {
		d.PreviousImage, d.PreviousVersion, d.PreviousRun.V = was.Image, was.Version, was.run()
	}
}

// goBack restores the previous release.
func (d *Deployment) goBack() {
	d.Image, d.Version = d.PreviousImage, d.PreviousVersion
	if run := d.PreviousRun.V; run != nil {
		d.Env.V, d.Ports.V, d.Restart, d.Health.V = run.Env, run.Ports, run.Restart, run.Health
	}
	d.PreviousImage, d.PreviousVersion, d.PreviousRun.V = "", "", nil
}

// DeploymentInput holds the settings that a caller may choose. In a change, nil fields keep the
// present value.
type DeploymentInput struct {
	Image, Version, DesiredState, PullPolicy, Restart *string
	Env                                               map[string]string
	Ports                                             []Port
	Health                                            *HealthCheck // an empty command: no check
}

func (in DeploymentInput) apply(d *Deployment) {
	set(&d.Image, in.Image)
	set(&d.Version, in.Version)
	set(&d.DesiredState, in.DesiredState)
	if in.Env != nil {
		d.Env.V = in.Env
	}
	if in.Ports != nil {
		d.Ports.V = in.Ports
	}
	set(&d.PullPolicy, in.PullPolicy)
	set(&d.Restart, in.Restart)
	if in.Health != nil {
		d.Health.V = in.Health
		if len(in.Health.Command) == 0 {
			d.Health.V = nil
		}
	}
}

func checkDeployment(d *Deployment) error {
	if err := text.Check("version", d.Version); err != nil {
		return err
	}
	for k, v := range d.Env.V {
		if err := checkEnvName(k); err != nil {
			return err
		}
		if err := checkLine("env."+k, v); err != nil {
			return err
		}
	}
	if h := d.Health.V; h != nil {
		for i, arg := range h.Command {
			// Arguments may span lines, but no process can be given a NUL.
			if !utf8.ValidString(arg) || strings.ContainsRune(arg, 0) {
				return fault.InvalidField(
					fmt.Sprintf("health.command.%d", i), "holds bytes that cannot be an argument of a program",
				)
			}
		}
		if h.Command[0] == "" {
			return fault.InvalidField("health.command.0", "must name a program")
		}
	}
	for i := range d.Ports.V {
		if d.Ports.V[i].Protocol == "" {
			d.Ports.V[i].Protocol = "tcp"
		}
	}
	return nil
}

// checkEnvName accepts names as POSIX defines them, of at most 256 bytes.
func checkEnvName(name string) error {
	for i, c := range []byte(name) {
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return fault.InvalidField("env", "%q is not a valid name of an environment variable", name)
		}
	}
	if name == "" || len(name) > 256 {
		return fault.InvalidField("env", "a name must have 1 to 256 characters")
	}
	return nil
}

// CreateDeployment deploys an image to a site, if the policy packs allow it.
func (s *Service) CreateDeployment(ctx context.Context, siteID, name string, in DeploymentInput) (Deployment, error) {
	now := db.At(s.now())
	d := Deployment{
		ID:           newID(),
		SiteID:       siteID,
		Name:         name,
		DesiredState: "running",
		PullPolicy:   "missing",
		Restart:      "always",
		Revision:     1,
		Status:       deploymentPending,
		CreatedAt:    now,
		UpdatedAt:    now,
	}
	d.Ports.V = []Port{}
	in.apply(&d)
	if err := checkDeployment(&d); err != nil {
		return d, err
	}
	ref, err := image.Parse("image", d.Image)
	if err != nil {
		return d, err
	}
	err = s.db.Update(ctx, func(tx *db.Tx) error {
		site, err := s.lockedSite(ctx, tx, siteID)
		if err != nil {
			return err
		}
		if site.Status == siteRevoked {
			return fault.New(fault.Conflict, "site_id: the site is revoked").WithCode("site_revoked")
		}
		d.OrgID, d.Search = site.OrgID, d.searchText()
		if err := s.mayRun(ctx, tx, siteID, ref); err != nil {
			return err
		}
		if err := tx.Insert(ctx, "deployments", d); err != nil {
			if db.IsUnique(err) {
				return fault.New(fault.Conflict, "name: the site has a deployment %q already", name)
			}
			return err
		}
		tally.Add(tx, d.OrgID, tally.Deployment, d.Status, 1)
		if err := desiredChanged(ctx, tx, siteID); err != nil {
			return err
		}
		return s.record(ctx, tx, entry{
			Action:  "deployment.create",
			Target:  d.ID,
			SiteID:  siteID,
			OrgID:   d.OrgID,
			Message: "deployment " + name + " created",
			Detail:  map[string]any{"image": d.Image, "version": d.Version},
		})
	})
	return d, err
}

// DeploymentFilter selects deployments; zero fields select all.
type DeploymentFilter struct {
	SiteID string
	Status []string // as the overview counts them; empty: any
	// Text must be contained in the id, name, image or version or, without SiteID, in what a search
	// for sites looks at, ignoring case.
	Text  string
	Sort  string // as the contract has it; empty: by id, which is the order of creation
	After string // the key of the last deployment of the previous page
	Limit int
}

// scope returns the part of a scope that has the statuses.
func (f DeploymentFilter) scope(scope db.Scope) db.Scope {
	if f.SiteID != "" {
		scope = scope.And("site_id = ?", f.SiteID)
	}
	// Whether a status still holds depends on the site for some statuses only.
	var lasting, changing []string
	unknown := false
	for _, status := range f.Status {
		switch {
		case status == countUnknown:
			unknown = true
		case slices.Contains(changeUnheard, status):
			changing = append(changing, status)
		default:
			lasting = append(lasting, status)
		}
	}
	var conditions []string
	var args []any
	for _, of := range []struct {
		statuses []string
		more     string
	}{{lasting, ""}, {changing, " AND site_id NOT IN " + silentSites}} {
		if len(of.statuses) > 0 {
			condition, values := oneOf("status", of.statuses)
			conditions, args = append(conditions, condition+of.more), append(args, values...)
		}
	}
	if unknown {
		conditions = append(conditions, statusIsUnknown)
	}
	if len(conditions) == 0 {
		return scope
	}
	return scope.And(strings.Join(conditions, " OR "), args...)
}

var deploymentSorts = list.Sorts{List: "deployments", Unique: "id", Usual: "id", By: map[string]list.Column{
	"id": {Name: "id"}, "name": {Name: "name"},
}}

// deploymentKey returns the key of a deployment in a list.
func deploymentKey(order list.Order, d Deployment) string {
	value := ""
	if order.Word() == "name" {
		value = d.Name
	}
	return order.Key(value, d.ID)
}

// Deployments lists deployments in scope, with the state of their sites.
func (s *Service) Deployments(ctx context.Context, f DeploymentFilter) ([]Deployment, list.Order, error) {
	return s.deployments(ctx, s.db, f)
}

func (s *Service) deployments(
	ctx context.Context, q db.Querier, f DeploymentFilter,
) ([]Deployment, list.Order, error) {
	scope := callerFrom(ctx).scope()
	page := search.Page{
		Table: "deployments", ID: "id", Sorts: deploymentSorts, Scope: f.scope(scope), Text: f.Text, Sort: f.Sort,
		After: f.After, Limit: f.Limit,
	}
	if f.Text != "" && f.SiteID == "" {
		where, args := scope.SQL()
		found, arg := search.Contains(f.Text)
		page.Or = new(db.Where("site_id IN (SELECT id FROM sites WHERE "+where+" AND "+found+")", append(args, arg)...))
	}
	deployments := []Deployment{}
	order, err := page.Read(ctx, q, &deployments)
	if err != nil {
		return nil, order, err
	}
	return deployments, order, addSites(ctx, q, deployments)
}

// addSites adds the state of their sites to deployments.
func addSites(ctx context.Context, q db.Querier, deployments []Deployment) error {
	if len(deployments) == 0 {
		return nil
	}
	ids := make([]string, len(deployments))
	for i, d := range deployments {
		ids[i] = d.SiteID
	}
	slices.Sort(ids)
	query, args, err := db.In("SELECT id, status, last_seen_at FROM sites WHERE id IN (?)", slices.Compact(ids))
	if err != nil {
		return err
	}
	var sites []siteSeen
	if err := q.Select(ctx, &sites, query, args...); err != nil {
		return err
	}
	byID := make(map[string]siteSeen, len(sites))
	for _, site := range sites {
		byID[site.ID] = site
	}
	for i := range deployments {
		deployments[i].Site = byID[deployments[i].SiteID]
	}
	return nil
}

// Deployment returns one deployment in scope, with the state of its site.
func (s *Service) Deployment(ctx context.Context, id string) (Deployment, error) {
	d, err := s.deployment(ctx, s.db, id, "")
	if err != nil {
		return d, err
	}
	one := []Deployment{d}
	err = addSites(ctx, s.db, one)
	return one[0], err
}

func (s *Service) deployment(ctx context.Context, q db.Querier, id, lock string) (Deployment, error) {
	var d Deployment
	err := q.Get(ctx, &d, "SELECT * FROM deployments WHERE id = ?"+lock, id)
	if err == nil && !callerFrom(ctx).sees(d.OrgID) {
		err = db.ErrNoRows
	}
	return d, db.NotFound(err, "no deployment %s", id)
}

// ownDeployment returns a deployment of the calling site. Those of other sites in the same org are
// Denied, all others NotFound.
func (s *Service) ownDeployment(ctx context.Context, tx *db.Tx, id string) (Deployment, error) {
	var d Deployment
	if err := tx.Get(ctx, &d, "SELECT * FROM deployments WHERE id = ?"+tx.ForUpdate(), id); err != nil {
		return d, db.NotFound(err, "no deployment %s", id)
	}
	caller := callerFrom(ctx)
	switch {
	case d.SiteID == caller.SiteID:
		return d, nil
	case d.OrgID != caller.OrgID:
		return d, fault.New(fault.NotFound, "no deployment %s", id)
	}
	return d, fault.New(fault.Denied, "deployment %s belongs to another site", id)
}

func (s *Service) writeDeployment(ctx context.Context, tx *db.Tx, wasStatus string, d *Deployment) error {
	d.UpdatedAt = db.At(s.now())
	tally.Move(tx, d.OrgID, tally.Deployment, wasStatus, d.Status)
	if wasStatus != d.Status {
		tx.OnCommit(s.nudgeAlerts)
	}
	// Reports come often. They change nothing that is searched, and leave its indexes alone.
	if described := d.searchText(); described != d.Search {
		d.Search = described
		if _, err := tx.Exec(ctx, "UPDATE deployments SET search = ? WHERE id = ?", described, d.ID); err != nil {
			return err
		}
	}
	_, err := tx.Exec(
		ctx,
		`UPDATE deployments SET image = ?, version = ?, desired_state = ?, env = ?, ports = ?, pull_policy = ?, restart = ?, health = ?, revision = ?, observed_revision = ?,
		previous_image = ?, previous_version = ?, previous_run = ?, status = ?, message = ?, updated_at = ? WHERE id = ?`,
		d.Image,
		d.Version,
		d.DesiredState,
		d.Env,
		d.Ports,
		d.PullPolicy,
		d.Restart,
		d.Health,
		d.Revision,
		d.ObservedRevision,
		d.PreviousImage,
		d.PreviousVersion,
		d.PreviousRun,
		d.Status,
		d.Message,
		d.UpdatedAt,
		d.ID,
	)
	return err
}

// PatchDeployment changes what should run. The previous release is kept for a rollback.
func (s *Service) PatchDeployment(ctx context.Context, id string, in DeploymentInput) (Deployment, error) {
	var d Deployment
	err := s.db.Update(ctx, func(tx *db.Tx) (err error) {
		if d, err = s.deployment(ctx, tx, id, tx.ForUpdate()); err != nil {
			return err
		}
		was := d
		in.apply(&d)
		if err := s.checkChanged(ctx, tx, &d); err != nil {
			return err
		}
		d.keepPrevious(was)
		d.Revision++
		d.Status, d.Message = deploymentPending, ""
		if err := s.writeDeployment(ctx, tx, was.Status, &d); err != nil {
			return err
		}
		if err := desiredChanged(ctx, tx, d.SiteID); err != nil {
			return err
		}
		return s.record(ctx, tx, entry{
			Action:  "deployment.update",
			Target:  id,
			SiteID:  d.SiteID,
			OrgID:   d.OrgID,
			Message: "deployment " + d.Name + " changed",
			Detail: map[string]any{
				"image":         d.Image,
				"version":       d.Version,
				"desired_state": d.DesiredState,
				"revision":      d.Revision,
			},
		})
	})
	return d, err
}

// checkChanged checks a changed deployment before it is stored.
func (s *Service) checkChanged(ctx context.Context, tx *db.Tx, d *Deployment) error {
	if err := checkDeployment(d); err != nil {
		return err
	}
	ref, err := image.Parse("image", d.Image)
	if err != nil {
		return err
	}
	// Stopping a deployment and changing a stopped one are allowed whatever the packs say.
	if d.DesiredState == desiredStopped {
		return nil
	}
	return s.mayRun(ctx, tx, d.SiteID, ref)
}

// DeleteDeployment deletes a deployment; its site stops running it.
func (s *Service) DeleteDeployment(ctx context.Context, id string) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		d, err := s.deployment(ctx, tx, id, tx.ForUpdate())
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM deployments WHERE id = ?", id); err != nil {
			return err
		}
		tally.Add(tx, d.OrgID, tally.Deployment, d.Status, -1)
		if err := desiredChanged(ctx, tx, d.SiteID); err != nil {
			return err
		}
		tx.OnCommit(s.nudgeAlerts)
		return s.record(ctx, tx, entry{
			Action:  "deployment.delete",
			Target:  id,
			SiteID:  d.SiteID,
			OrgID:   d.OrgID,
			Message: "deployment " + d.Name + " deleted",
		})
	})
}

// AgentDeployment is a deployment as its agent sees it. Allowed is false if the policy packs no
// longer allow its image.
type AgentDeployment struct {
	Deployment
	Allowed bool
}

// AgentDeployments lists the calling site's deployments, after the given ID.
func (s *Service) AgentDeployments(ctx context.Context, siteID, after string, limit int) ([]AgentDeployment, error) {
	if err := ownSite(ctx, siteID); err != nil {
		return nil, err
	}
	own := callerFrom(ctx).SiteID
	where, args := callerFrom(ctx).scope().SQL()
	var deployments []Deployment
	if err := s.db.Select(
		ctx, &deployments, "SELECT * FROM deployments WHERE "+where+" AND id > ? ORDER BY id LIMIT ?",
		append(args, after, limit)...); err != nil {
		return nil, err
	}
	packs, err := policiesOf(ctx, s.db, own)
	if err != nil {
		return nil, err
	}
	shown := make([]AgentDeployment, len(deployments))
	for i, d := range deployments {
		ref, err := image.Parse("image", d.Image)
		shown[i] = AgentDeployment{Deployment: d, Allowed: err == nil && allowed(packs, ref)}
	}
	return shown, nil
}

// DeploymentReport is an agent's report on a deployment.
type DeploymentReport struct {
	SiteID, Status, Message string
	ObservedRevision        *int64
}

// ReportDeployment stores the calling site's report on a deployment. A report on an older revision
// does not change the status, since it says nothing about the present one.
func (s *Service) ReportDeployment(ctx context.Context, id string, rep DeploymentReport) (Deployment, error) {
	if err := ownSite(ctx, rep.SiteID); err != nil {
		return Deployment{}, err
	}
	if err := checkLine("message", rep.Message); err != nil {
		return Deployment{}, err
	}
	var d Deployment
	err := s.db.Update(ctx, func(tx *db.Tx) (err error) {
		if d, err = s.ownDeployment(ctx, tx, id); err != nil {
			return err
		}
		return s.applyReport(ctx, tx, &d, rep)
	})
	return d, err
}

// applyReport stores a report within the transaction of ReportDeployment.
func (s *Service) applyReport(ctx context.Context, tx *db.Tx, d *Deployment, rep DeploymentReport) error {
	if observed := rep.ObservedRevision; observed != nil {
		if *observed > d.Revision {
			return fault.InvalidField(
				"observed_revision", "is %d, but the deployment is at revision %d", *observed, d.Revision,
			)
		}
		if *observed < d.ObservedRevision {
			return nil
		}
		d.ObservedRevision = *observed
		if d.ObservedRevision < d.Revision {
			// The report is on an earlier revision. The status of the present one is not known yet.
			return s.writeDeployment(ctx, tx, d.Status, d)
		}
	}
	was := d.Status
	d.Status, d.Message = rep.Status, rep.Message
	if was != d.Status && (d.Status == "failed" || d.Status == deploymentDenied) {
		if _, err := s.tell(ctx, tx, Activity{
			Level:   levelError,
			Source:  "agent",
			OrgID:   d.OrgID,
			SiteID:  d.SiteID,
			Chapter: "deployments",
			Action:  "deployment." + d.Status,
			Message: fmt.Sprintf("deployment %s %s: %s", d.Name, d.Status, d.Message),
		}); err != nil {
			return err
		}
	}
	return s.writeDeployment(ctx, tx, was, d)
}

// RollbackDeployment goes back to the previous release if there is one and the policy packs allow
// its image. It reports whether it did.
func (s *Service) RollbackDeployment(
	ctx context.Context, id, siteID, reason string,
) (d Deployment, rolledBack bool, err error) {
	if err := ownSite(ctx, siteID); err != nil {
		return d, false, err
	}
	if err := checkLine("reason", reason); err != nil {
		return d, false, err
	}
	err = s.db.Update(ctx, func(tx *db.Tx) (err error) {
		if d, err = s.ownDeployment(ctx, tx, id); err != nil {
			return err
		}
		var obstacle string
		if obstacle, err = rollbackObstacle(ctx, tx, &d); err != nil {
			return err
		}
		message := "deployment " + d.Name + ": " + obstacle
		if rolledBack = obstacle == ""; rolledBack {
			if err := s.rollBack(ctx, tx, &d, reason); err != nil {
				return err
			}
			message = "deployment " + d.Name + " rolled back to " + d.Version
		}
		return s.record(ctx, tx, entry{
			Action:  "deployment.rollback",
			Target:  id,
			Message: message,
			Detail: map[string]any{
				"rolled_back": rolledBack,
				"reason":      reason,
				"image":       d.Image,
				"version":     d.Version,
			},
		})
	})
	return d, rolledBack, err
}

// rollbackObstacle returns why a deployment cannot be rolled back, or "" if it can.
func rollbackObstacle(ctx context.Context, tx *db.Tx, d *Deployment) (string, error) {
	if d.PreviousImage == "" {
		return "nothing to roll back to", nil
	}
	ref, err := image.Parse("image", d.PreviousImage)
	if err != nil {
		return "", err
	}
	packs, err := policiesOf(ctx, tx, d.SiteID)
	if err != nil || allowed(packs, ref) {
		return "", err
	}
	return "the image before is no longer allowed", nil
}

// rollBack restores the previous release as a new revision.
func (s *Service) rollBack(ctx context.Context, tx *db.Tx, d *Deployment, reason string) error {
	was := d.Status
	d.goBack()
	d.Revision++
	d.Status, d.Message = deploymentRolledBack, reason
	if err := s.writeDeployment(ctx, tx, was, d); err != nil {
		return err
	}
	if err := desiredChanged(ctx, tx, d.SiteID); err != nil {
		return err
	}
	_, err := s.tell(ctx, tx, Activity{
		Level:   levelWarn,
		Source:  "agent",
		OrgID:   d.OrgID,
		SiteID:  d.SiteID,
		Chapter: "deployments",
		Action:  "deployment.rollback",
		Message: fmt.Sprintf("deployment %s rolled back to %s: %s", d.Name, d.Version, reason),
	})
	return err
}
