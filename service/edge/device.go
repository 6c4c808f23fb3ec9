package edge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/kit/search"
	"github.com/mainstay-infra/mainstay/kit/text"
	"github.com/mainstay-infra/mainstay/service/edge/ota"
	"github.com/mainstay-infra/mainstay/service/edge/tally"
	"github.com/mainstay-infra/mainstay/service/edge/twin"
)

// Device is a device of a site, with its twin and the state of its update.
type Device struct {
	DeviceID        string  `db:"device_id"`
	SiteID          string  `db:"site_id"`
	OrgID           string  `db:"org_id"`
	Name            string  `db:"name"`
	Model           string  `db:"model"`
	FirmwareVersion string  `db:"firmware_version"` // the last one reported, by registration, twin or update
	Labels          Labels  `db:"labels"`
	RegisteredAt    db.Time `db:"registered_at"`
	LastSeenAt      db.Time `db:"last_seen_at"`

	// The twin, without the key "ota" (package twin).
	Desired         string  `db:"desired"`
	Reported        string  `db:"reported"`
	DesiredVersion  int64   `db:"desired_version"`
	ReportedVersion int64   `db:"reported_version"`
	TwinUpdatedAt   db.Time `db:"twin_updated_at"`

	// The update. OTARequest is JSON; it is empty if no update was ever requested.
	OTARequest    string    `db:"ota_request"`
	OTARequestID  string    `db:"ota_request_id"`
	OTACampaignID string    `db:"ota_campaign_id"`
	OTAState      ota.State `db:"ota_state"`
	OTAProgress   int       `db:"ota_progress"`
	OTAMessage    string    `db:"ota_message"`
	OTAUpdatedAt  db.Time   `db:"ota_updated_at"`

	Search string `db:"search"` // what a search looks at (package search)
}

func (d *Device) searchText() string { return search.Text(d.Labels.V, d.DeviceID, d.Name, d.Model) }

// described returns the ID, and the column search.
func (d *Device) described() (id, text string) { return d.DeviceID, d.searchText() }

// OTARequest is a request to install an update. It appears at desired.ota.
type OTARequest struct {
	RequestID   string    `json:"request_id"`
	Version     string    `json:"version"`
	URL         string    `json:"url"`
	SHA256      string    `json:"sha256"`
	Size        int64     `json:"size,omitempty"`
	Force       bool      `json:"force,omitempty"`
	RequestedAt time.Time `json:"requested_at"`
	CampaignID  string    `json:"campaign_id,omitempty"`
}

// OTAStatus is the progress of an update. It appears at reported.ota.
type OTAStatus struct {
	RequestID string    `json:"request_id"`
	State     ota.State `json:"state"`
	Progress  int       `json:"progress"`
	Message   string    `json:"message"`
	UpdatedAt time.Time `json:"updated_at"`
}

// ShownDesired returns the desired state with the update at "ota".
func (d *Device) ShownDesired() json.RawMessage {
	return twin.With(json.RawMessage(d.Desired), json.RawMessage(d.OTARequest))
}

// ShownReported returns the reported state with the update's status at "ota".
func (d *Device) ShownReported() json.RawMessage {
	if d.OTARequest == "" {
		return json.RawMessage(d.Reported)
	}
	return twin.With(json.RawMessage(d.Reported), mustJSON(d.otaStatus()))
}

func (d *Device) otaStatus() OTAStatus {
	return OTAStatus{
		RequestID: d.OTARequestID,
		State:     d.OTAState,
		Progress:  d.OTAProgress,
		Message:   d.OTAMessage,
		UpdatedAt: d.OTAUpdatedAt.Time,
	}
}

// request returns the device's last update request.
func (d *Device) request() (OTARequest, error) {
	var req OTARequest
	err := json.Unmarshal([]byte(d.OTARequest), &req)
	return req, err
}

// DeviceInput is what an agent reports about a device.
type DeviceInput struct {
	DeviceID, Name, Model, FirmwareVersion string
	Labels                                 map[string]string
}

// RegisterDevice registers a device of the calling site, or updates it if it exists. An ID that
// belongs to another site is a conflict.
func (s *Service) RegisterDevice(ctx context.Context, in DeviceInput) (d Device, created bool, err error) {
	if err := checkNamed(in.Name, in.Labels); err != nil {
		return d, false, err
	}
	for field, given := range map[string]string{"model": in.Model, "firmware_version": in.FirmwareVersion} {
		if err := text.Check(field, given); err != nil {
			return d, false, err
		}
	}
	own := callerFrom(ctx).SiteID
	err = s.db.Update(ctx, func(tx *db.Tx) error {
		err := tx.Get(ctx, &d, "SELECT * FROM devices WHERE device_id = ?"+tx.ForUpdate(), in.DeviceID)
		created = errors.Is(err, db.ErrNoRows)
		switch {
		case created:
			d, err = s.addDevice(ctx, tx, in)
			return err
		case err != nil:
			return err
		case d.SiteID != own:
			return fault.New(fault.Conflict, "device_id: %s belongs to another site", in.DeviceID).WithCode(
				"device_of_another_site",
			)
		}
		d.Name, d.Model, d.FirmwareVersion, d.LastSeenAt = in.Name, in.Model, in.FirmwareVersion, db.At(s.now())
		if in.Labels != nil {
			d.Labels.V = in.Labels
		}
		_, err = tx.Exec(
			ctx,
			`UPDATE devices SET name = ?, model = ?, firmware_version = ?, labels = ?, last_seen_at = ?,
			search = ? WHERE device_id = ?`,
			d.Name, d.Model, d.FirmwareVersion, d.Labels, d.LastSeenAt, d.searchText(), d.DeviceID,
		)
		return err
	})
	return d, created, err
}

// addDevice stores a new device of the calling site.
func (s *Service) addDevice(ctx context.Context, tx *db.Tx, in DeviceInput) (Device, error) {
	caller, now := callerFrom(ctx), db.At(s.now())
	if err := keepSite(ctx, tx, caller.SiteID); err != nil {
		return Device{}, err
	}
	d := Device{
		DeviceID:        in.DeviceID,
		SiteID:          caller.SiteID,
		OrgID:           caller.OrgID,
		Name:            in.Name,
		Model:           in.Model,
		FirmwareVersion: in.FirmwareVersion,
		RegisteredAt:    now,
		LastSeenAt:      now,
		Desired:         "{}",
		Reported:        "{}",
		TwinUpdatedAt:   now,
	}
	d.Labels.V = in.Labels
	d.Search = d.searchText()
	if err := tx.Insert(ctx, "devices", d); err != nil {
		if db.IsUnique(err) { // registered by another site at this moment
			err = fault.New(
				fault.Conflict, "device_id: %s is being registered by someone else; try again", in.DeviceID,
			)
		}
		return d, err
	}
	tally.Add(tx, d.OrgID, tally.Device, "registered", 1)
	return d, s.record(
		ctx, tx,
		entry{Action: "device.register", Target: d.DeviceID, Message: "device " + d.DeviceID + " registered"},
	)
}

// DeviceFilter selects devices; zero fields select all.
type DeviceFilter struct {
	SiteID string
	OTA    []ota.State // the states of their updates; empty: any, and devices without an update
	Text   string      // must be contained in the id, name, model or a label (key=value), ignoring case
	Sort   string      // as the contract has it; empty: by id
	After  string      // the key of the last device of the previous page
	Limit  int
}

var deviceSorts = list.Sorts{List: "devices", Unique: "device_id", Usual: "device_id", By: map[string]list.Column{
	"device_id": {Name: "device_id"}, "name": {Name: "name"}, "last_seen_at": {Name: "last_seen_at", Number: true},
}}

// deviceKey returns the key of a device in a list.
func deviceKey(order list.Order, d Device) string {
	value := ""
	switch order.Word() {
	case "name":
		value = d.Name
	case "last_seen_at":
		value = strconv.FormatInt(d.LastSeenAt.UnixMicro(), 10)
	}
	return order.Key(value, d.DeviceID)
}

// Devices lists devices in scope.
func (s *Service) Devices(ctx context.Context, f DeviceFilter) ([]Device, list.Order, error) {
	return s.devices(ctx, s.db, f)
}

func (s *Service) devices(ctx context.Context, q db.Querier, f DeviceFilter) ([]Device, list.Order, error) {
	scope := callerFrom(ctx).scope()
	if f.SiteID != "" {
		scope = scope.And("site_id = ?", f.SiteID)
	}
	if len(f.OTA) > 0 {
		condition, args := oneOf("ota_state", f.OTA)
		scope = scope.And(condition, args...)
	}
	devices := []Device{}
	order, err := search.Page{
		Table: "devices", ID: "device_id", Sorts: deviceSorts, Scope: scope, Text: f.Text, Sort: f.Sort, After: f.After,
		Limit: f.Limit,
	}.Read(ctx, q, &devices)
	return devices, order, err
}

// Twins lists devices with their twins in scope, after the given ID.
func (s *Service) Twins(ctx context.Context, siteID, after string, limit int) ([]Device, error) {
	where, args := callerFrom(ctx).scope().SQL()
	if siteID != "" {
		where, args = where+" AND site_id = ?", append(args, siteID)
	}
	devices := []Device{}
	err := s.db.Select(
		ctx, &devices, "SELECT * FROM devices WHERE "+where+" AND device_id > ? ORDER BY device_id LIMIT ?",
		append(args, after, limit)...)
	return devices, err
}

// Device returns one device in scope.
func (s *Service) Device(ctx context.Context, id string) (Device, error) {
	return s.device(ctx, s.db, id, "")
}

func (s *Service) device(ctx context.Context, q db.Querier, id, lock string) (Device, error) {
	var d Device
	err := q.Get(ctx, &d, "SELECT * FROM devices WHERE device_id = ?"+lock, id)
	caller := callerFrom(ctx)
	if err == nil &&
		(caller.Role == RoleAgent && d.SiteID != caller.SiteID || caller.Role != RoleAgent && !caller.sees(d.OrgID)) {
		err = db.ErrNoRows
	}
	return d, db.NotFound(err, "no device %s", id)
}

// DeleteDevice deletes a device and its twin. Campaigns stop counting it.
func (s *Service) DeleteDevice(ctx context.Context, id string) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		d, err := s.device(ctx, tx, id, tx.ForUpdate())
		if err != nil {
			return err
		}
		if err := removeFromCampaigns(ctx, tx, "device_id = ?", id); err != nil {
			return err
		}
		if err := deleteCounted(ctx, tx, countedDevices, "device_id = ?", id); err != nil {
			return err
		}
		if err := desiredChanged(ctx, tx, d.SiteID); err != nil {
			return err
		}
		tx.OnCommit(s.nudgeAlerts)
		return s.record(ctx, tx, entry{
			Action:  "device.delete",
			Target:  id,
			SiteID:  d.SiteID,
			OrgID:   d.OrgID,
			Message: "device " + id + " deleted",
		})
	})
}

// DesiredInput replaces the desired state of a twin.
type DesiredInput struct {
	Desired         json.RawMessage
	ExpectedVersion *int64 // if set and not the present desired version: a conflict
	IfMatch         string // if set and without the present ETag: a failed precondition (RFC 9110, 13.1.1)
}

// meets returns an error if the desired state has changed since the caller read it.
func (in DesiredInput) meets(d *Device) error {
	etag := twin.ETag(d.DesiredVersion, d.ReportedVersion)
	if in.IfMatch != "" && !matchesETag(in.IfMatch, etag) {
		return fault.New(fault.Precondition, "If-Match: the twin is at %s now; read it again", etag)
	}
	if in.ExpectedVersion != nil && *in.ExpectedVersion != d.DesiredVersion {
		return fault.New(
			fault.Conflict, "expected_version: the desired state is at version %d, not %d; read it again",
			d.DesiredVersion, *in.ExpectedVersion,
		).WithCode("stale_version")
	}
	return nil
}

// PutDesired replaces the desired state, except for "ota".
func (s *Service) PutDesired(ctx context.Context, id string, in DesiredInput) (Device, error) {
	desired, err := twin.Clean("desired", in.Desired)
	if err != nil {
		return Device{}, err
	}
	var d Device
	err = s.db.Update(ctx, func(tx *db.Tx) (err error) {
		if d, err = s.device(ctx, tx, id, tx.ForUpdate()); err != nil {
			return err
		}
		if err := in.meets(&d); err != nil {
			return err
		}
		before, after, err := twin.Diff(json.RawMessage(d.Desired), desired)
		if err != nil {
			return err
		}
		d.Desired, d.DesiredVersion, d.TwinUpdatedAt = string(desired), d.DesiredVersion+1, db.At(s.now())
		if _, err := tx.Exec(
			ctx, "UPDATE devices SET desired = ?, desired_version = ?, twin_updated_at = ? WHERE device_id = ?",
			d.Desired, d.DesiredVersion, d.TwinUpdatedAt, id,
		); err != nil {
			return err
		}
		if err := desiredChanged(ctx, tx, d.SiteID); err != nil {
			return err
		}
		return s.record(ctx, tx, entry{
			Action:  "twin.desired",
			Target:  id,
			SiteID:  d.SiteID,
			OrgID:   d.OrgID,
			Message: "desired state of " + id + " replaced",
			Detail:  map[string]any{"desired_version": d.DesiredVersion, "before": before, "after": after},
		})
	})
	return d, err
}

// matchesETag reports whether an If-Match header, which may list several tags, matches etag.
func matchesETag(header, etag string) bool {
	for _, candidate := range strings.Split(header, ",") {
		if c := strings.TrimSpace(candidate); c == "*" || c == etag {
			return true
		}
	}
	return false
}

// ReportTwin merges a patch into the reported state of one of the calling site's devices. If
// version is set, it must be the present reported version.
func (s *Service) ReportTwin(ctx context.Context, id string, patch json.RawMessage, version *int64) (Device, error) {
	var d Device
	err := s.db.Update(ctx, func(tx *db.Tx) (err error) {
		if d, err = s.device(ctx, tx, id, tx.ForUpdate()); err != nil {
			return err
		}
		if version != nil && *version != d.ReportedVersion {
			return fault.New(
				fault.Conflict, "version: the reported state is at version %d, not %d; read it again",
				d.ReportedVersion, *version,
			).WithCode("stale_version")
		}
		merged, err := twin.Merge("reported", json.RawMessage(d.Reported), patch)
		if err != nil {
			return err
		}
		now := db.At(s.now())
		d.Reported, d.ReportedVersion, d.TwinUpdatedAt, d.LastSeenAt = string(merged), d.ReportedVersion+1, now, now
		if firmware, said := twin.Firmware(patch); said {
			d.FirmwareVersion = firmware
		}
		_, err = tx.Exec(
			ctx,
			"UPDATE devices SET reported = ?, reported_version = ?, firmware_version = ?, twin_updated_at = ?, last_seen_at = ? WHERE device_id = ?",
			d.Reported, d.ReportedVersion, d.FirmwareVersion, now, now, id,
		)
		return err
	})
	return d, err
}

// checkArtifact checks the fields that updates and campaigns have in common.
func checkArtifact(version, rawURL string) error {
	if err := text.Check("version", version); err != nil {
		return err
	}
	if err := text.Check("url", rawURL); err != nil {
		return err
	}
	u, err := url.Parse(rawURL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return fault.InvalidField("url", "must be an http or https URL")
	}
	return nil
}

// RequestOTA requests an update of a device. It supersedes an earlier update that is still in
// progress.
func (s *Service) RequestOTA(ctx context.Context, id string, req OTARequest) (Device, error) {
	if err := checkArtifact(req.Version, req.URL); err != nil {
		return Device{}, err
	}
	var d Device
	err := s.db.Update(ctx, func(tx *db.Tx) (err error) {
		if d, err = s.device(ctx, tx, id, tx.ForUpdate()); err != nil {
			return err
		}
		req.RequestID, req.RequestedAt, req.CampaignID = newID(), s.now().UTC(), ""
		req.SHA256 = strings.ToLower(req.SHA256)
		moves := otaMoves{}
		if err := s.writeOTARequest(ctx, tx, &d, req, moves); err != nil {
			return err
		}
		if err := moves.tally(ctx, tx); err != nil {
			return err
		}
		if err := desiredChanged(ctx, tx, d.SiteID); err != nil {
			return err
		}
		return s.record(ctx, tx, entry{
			Action:  "ota.request",
			Target:  id,
			SiteID:  d.SiteID,
			OrgID:   d.OrgID,
			Message: fmt.Sprintf("update of %s to %s requested", id, req.Version),
			Detail:  map[string]any{"request_id": req.RequestID, "version": req.Version, "url": req.URL},
		})
	})
	return d, err
}

// writeOTARequest puts a request, in state pending, into a device's twin and adds the state change
// to moves. The caller writes the tallies and calls desiredChanged for the site.
func (s *Service) writeOTARequest(ctx context.Context, tx *db.Tx, d *Device, req OTARequest, moves otaMoves) error {
	if d.OTACampaignID != "" && !d.OTAState.Terminal() {
		// The device's previous campaign will get no further reports on its update.
		if err := settleCampaignDevice(
			ctx, tx, d.OTACampaignID, d.DeviceID, d.OTARequestID, outcomeFailed, "superseded by another update",
		); err != nil {
			return err
		}
	}
	moves.move(d.OrgID, d.OTAState, ota.Pending)
	now := db.At(s.now())
	d.OTARequest, d.OTARequestID, d.OTACampaignID = string(mustJSON(req)), req.RequestID, req.CampaignID
	d.OTAState, d.OTAProgress, d.OTAMessage, d.OTAUpdatedAt = ota.Pending, 0, "", now
	d.DesiredVersion, d.TwinUpdatedAt = d.DesiredVersion+1, now
	_, err := tx.Exec(
		ctx,
		`UPDATE devices SET ota_request = ?, ota_request_id = ?, ota_campaign_id = ?, ota_state = ?, ota_progress = 0, ota_message = '', ota_updated_at = ?,
		desired_version = ?, twin_updated_at = ? WHERE device_id = ?`,
		d.OTARequest,
		d.OTARequestID,
		d.OTACampaignID,
		string(d.OTAState),
		now,
		d.DesiredVersion,
		now,
		d.DeviceID,
	)
	tx.OnCommit(s.nudgeAlerts)
	return err
}

// OTA returns a device that has, or had, an update.
func (s *Service) OTA(ctx context.Context, id string) (Device, error) {
	d, err := s.Device(ctx, id)
	if err == nil && d.OTARequest == "" {
		err = fault.New(fault.NotFound, "no update was requested for device %s yet", id).WithCode("no_update")
	}
	return d, err
}
