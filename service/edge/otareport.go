package edge

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/shell"
	"github.com/mainstay-infra/mainstay/service/edge/ota"
	"github.com/mainstay-infra/mainstay/service/edge/tally"
)

// OTAReport is an agent's report on a device's update.
type OTAReport struct {
	RequestID string // empty: the current request
	State     ota.State
	Progress  *int
	Message   string
}

// otaReport is a report in the queue of the batcher.
type otaReport struct {
	OTAReport
	caller   Caller // the reporting agent
	deviceID string
}

// otaReported is the result of a report: the device after it, or the reason why the report was
// refused.
type otaReported struct {
	device  Device
	refusal error
}

// ReportOTA changes the state of a device's update as far as the rules of package ota allow.
// Concurrent reports share transactions, since a campaign may cause thousands of them.
func (s *Service) ReportOTA(ctx context.Context, id string, rep OTAReport) (Device, error) {
	if err := checkLine("status.message", rep.Message); err != nil {
		return Device{}, err
	}
	done, err := s.otaReports.Do(ctx, otaReport{rep, callerFrom(ctx), id})
	if err != nil {
		return Device{}, err
	}
	return done.device, done.refusal
}

// writeOTAReports writes a batch of reports. Reports on the same device are written in order.
func (s *Service) writeOTAReports(ctx context.Context, tx *db.Tx, reports []otaReport) ([]otaReported, error) {
	// All replicas lock devices in the same order.
	order := make([]int, len(reports))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(reports[a].deviceID, reports[b].deviceID) })
	done, moves := make([]otaReported, len(reports)), otaMoves{}
	for _, i := range order {
		r := &reports[i]
		var err error
		done[i].device, done[i].refusal, err = s.writeOTAReport(shell.As(ctx, r.caller), tx, r, moves)
		if err != nil {
			return nil, err
		}
	}
	return done, moves.tally(ctx, tx)
}

// writeOTAReport writes one report. It returns a refusal only before it has written anything.
func (s *Service) writeOTAReport(
	ctx context.Context, tx *db.Tx, rep *otaReport, moves otaMoves,
) (d Device, refusal, err error) {
	id := rep.deviceID
	if d, err = s.device(ctx, tx, id, tx.ForUpdate()); err != nil {
		if fault.Is(err, fault.NotFound) {
			return d, err, nil
		}
		return d, nil, err
	}
	if d.OTARequest == "" {
		return d, fault.New(fault.NotFound, "no update was requested for device %s", id).WithCode("no_update"), nil
	}
	was := d.OTAState
	changed, refusal := ota.Check(rep.RequestID, rep.State, d.OTARequestID, was)
	if refusal != nil || !changed && was.Terminal() { // a repeated report; nothing to store
		return d, refusal, nil
	}
	d.OTAState, d.OTAMessage, d.OTAUpdatedAt = rep.State, rep.Message, db.At(s.now())
	set(&d.OTAProgress, rep.Progress)
	if rep.State.Good() {
		d.OTAProgress = 100
	}
	d.ReportedVersion++
	if d.OTAState.Good() {
		request, err := d.request()
		if err != nil {
			return d, nil, err
		}
		d.FirmwareVersion = request.Version
	}
	if _, err := tx.Exec(
		ctx,
		"UPDATE devices SET ota_state = ?, ota_progress = ?, ota_message = ?, ota_updated_at = ?, reported_version = ?, firmware_version = ?, twin_updated_at = ?, last_seen_at = ? WHERE device_id = ?",
		string(d.OTAState), d.OTAProgress, d.OTAMessage, d.OTAUpdatedAt, d.ReportedVersion, d.FirmwareVersion,
		d.OTAUpdatedAt, d.OTAUpdatedAt, id,
	); err != nil {
		return d, nil, err
	}
	if !changed {
		return d, nil, nil
	}
	moves.move(d.OrgID, was, d.OTAState)
	if d.OTACampaignID != "" {
		if err := settleCampaignDevice(
			ctx, tx, d.OTACampaignID, d.DeviceID, d.OTARequestID, outcomeOf(d.OTAState), d.OTAMessage,
		); err != nil {
			return d, nil, err
		}
		tx.OnCommit(s.nudgeCampaigns)
	}
	if d.OTAState.Terminal() {
		tx.OnCommit(s.nudgeAlerts)
	}
	return d, nil, nil
}

// otaMoves sums up state transitions of updates by org, so that a batch of devices takes one or two
// tally changes instead of one per device.
type otaMoves map[otaMove]int64

type otaMove struct{ org, state string }

func (m otaMoves) move(org string, from, to ota.State) {
	m[otaMove{org, string(from)}]--
	m[otaMove{org, string(to)}]++
}

func (m otaMoves) tally(ctx context.Context, tx *db.Tx) error {
	// All replicas lock the tallies in the same order.
	order := func(a, b otaMove) int {
		return cmp.Or(strings.Compare(a.org, b.org), strings.Compare(a.state, b.state))
	}
	for _, key := range slices.SortedFunc(maps.Keys(m), order) {
		if n := m[key]; n != 0 && key.state != "" { // empty: there was no update before
			tally.Add(tx, key.org, tally.OTA, key.state, n)
		}
	}
	return nil
}
