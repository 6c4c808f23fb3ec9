package edge_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

func TestADesiredStateIsReplacedUnderItsVersion(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.site("plant", enrollmentToken)
		c.device(agent, "d1")
		c.call("POST", "/devices/d1/ota", adminToken, artifact("2.0")).Want(200)
		put := func(body object, ifMatch string) answer {
			return c.callWith("PUT", "/twins/d1/desired", adminToken, body, map[string]string{"If-Match": ifMatch})
		}
		a := put(
			object{"desired": object{"rate": 5, "ota": object{"version": "evil"}}, "expected_version": 1}, "",
		).Want(200)
		tw := contracttest.As[edgeapi.Twin](a)
		if tw.DesiredVersion != 2 || !strings.Contains(string(tw.Desired), `"version":"2.0"`) ||
			strings.Contains(string(tw.Desired), "evil") ||
			tw.SiteId != site {
			c.Errorf("%+v %s", tw, tw.Desired)
		}
		put(object{"desired": object{}, "expected_version": 1}, "").Refused(409, "stale_version", "")
		put(object{"desired": object{}}, `"0-0"`).Want(412)
		put(object{"desired": object{}}, a.Header.Get("ETag")).Want(200)
		put(object{"desired": object{"x": strings.Repeat("y", 33<<10)}}, "").Want(413)
		put(object{"desired": []any{}}, "").Refused(400, "invalid", "desired")
		put(object{}, "").Refused(400, "invalid", "desired")
		c.call("PUT", "/twins/none/desired", adminToken, object{"desired": object{}}).Want(404)
		if got := c.call("GET", "/twins/d1", viewerToken, nil).Want(200); got.Header.Get("ETag") == a.Header.Get(
			"ETag",
		) {
			c.Error("the ETag did not change with the twin")
		}
	})
}

func TestAReportIsMerged(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		_, agent := c.site("plant", enrollmentToken)
		c.device(agent, "d1")
		report := func(body object) answer { return c.call("POST", "/agent/twins/d1/reported", agent, body) }
		report(object{"reported": object{"a": 1, "b": object{"x": 1, "y": 2}}}).Want(200)
		tw := contracttest.As[edgeapi.Twin](
			report(object{"reported": object{"a": nil, "b": object{"x": nil}}, "version": 1}).Want(200),
		)
		if string(tw.Reported) != `{"b":{"y":2}}` || tw.ReportedVersion != 2 {
			c.Errorf("%s at %d", tw.Reported, tw.ReportedVersion)
		}
		report(object{"reported": object{}, "version": 1}).Refused(409, "stale_version", "")
		report(object{"reported": object{"x": strings.Repeat("y", 33<<10)}}).Want(413)
		twins := contracttest.As[[]edgeapi.Twin](c.call("GET", "/agent/twins", agent, nil).Want(200))
		if len(twins) != 1 || twins[0].DeviceId != "d1" {
			c.Errorf("%+v", twins)
		}
	})
}

func artifact(version string) object {
	return object{
		"version": version,
		"url":     "https://fw.example/" + version,
		"sha256":  strings.Repeat("ab", 32),
		"size":    1000,
	}
}

func (c *control) ota(agent, site, device string, state string, more object) answer {
	c.Helper()
	status := object{"state": state}
	for k, v := range more {
		status[k] = v
	}
	return c.call("POST", "/agent/devices/"+device+"/ota/status", agent, object{"site_id": site, "status": status})
}

func TestAnUpdateFollowsItsStates(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.site("plant", enrollmentToken)
		c.device(agent, "d1")
		c.call("GET", "/devices/d1/ota", viewerToken, nil).Refused(404, "no_update", "")
		c.call("POST", "/devices/none/ota", adminToken, artifact("2")).Want(404)
		c.call(
			"POST",
			"/devices/d1/ota",
			adminToken,
			object{"version": "2", "url": "ftp://x/y", "sha256": strings.Repeat("ab", 32)},
		).Refused(400, "invalid", "url")
		c.call(
			"POST",
			"/devices/d1/ota",
			adminToken,
			object{"version": "2", "url": "https://x/y", "sha256": "short"},
		).Refused(400, "invalid", "sha256")
		c.ota(agent, site, "d1", "downloading", nil).Refused(404, "no_update", "")
		tw := contracttest.As[edgeapi.Twin](c.call("POST", "/devices/d1/ota", adminToken, artifact("2")).Want(200))
		if tw.DesiredVersion != 1 || !strings.Contains(string(tw.Desired), `"ota":{"request_id"`) {
			c.Errorf("%s", tw.Desired)
		}
		first := contracttest.As[edgeapi.OTA](c.call("GET", "/devices/d1/ota", viewerToken, nil).Want(200))
		if first.Status.State != "pending" || first.Request.Version != "2" ||
			first.Request.RequestId != first.Status.RequestId {
			c.Errorf("%+v", first)
		}
		c.ota(agent, site, "d1", "downloading", object{"progress": 40}).Want(200)
		c.ota(agent, site, "d1", "downloading", object{"progress": 60}).Want(200)
		c.ota(agent, site, "d1", "pending", nil).Refused(409, "illegal_transition", "")
		c.ota(agent, site, "d1", "flying", nil).Want(400)
		c.ota(agent, site, "d1", "installing", object{"progress": 101}).Want(400)
		if got := contracttest.As[edgeapi.OTA](c.ota(agent, site, "d1", "succeeded", nil).Want(200)); got.Status.Progress != 100 {
			c.Errorf("%+v", got)
		}
		c.ota(agent, site, "d1", "succeeded", nil).Want(200)
		c.ota(agent, site, "d1", "failed", nil).Refused(409, "illegal_transition", "")

		c.call("POST", "/devices/d1/ota", adminToken, artifact("3")).Want(200)
		c.ota(agent, site, "d1", "downloading", object{"request_id": first.Request.RequestId}).Refused(
			409, "superseded", "",
		)
		c.ota(agent, site, "d1", "failed", object{"message": "no space\nleft"}).Want(200)
		c.maintain()
		if got := c.alerts("ota_failed"); len(got) != 1 || got[0].Subject != "d1" {
			c.Errorf("%+v", got)
		}
		if o := contracttest.As[edgeapi.Overview](
			c.call("GET", "/overview", viewerToken, nil).Want(200),
		); o.Devices != 1 || o.Ota["failed"] != 1 ||
			len(o.Ota) != 1 {
			c.Errorf("%+v", o.Ota)
		}
	})
}

func TestADevicesFirmwareIsWhatWasLastSaidOfIt(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.site("plant", enrollmentToken)
		register := func(version string) {
			c.call("POST", "/devices/register", agent, object{"device_id": "d1", "firmware_version": version})
		}
		report := func(reported object) {
			c.call("POST", "/agent/twins/d1/reported", agent, object{"reported": reported}).Want(200)
		}
		register("1.0")
		want := func(when, version string) {
			c.Helper()
			listed := contracttest.As[[]edgeapi.Device](c.call("GET", "/devices", viewerToken, nil).Want(200))
			if one := contracttest.As[edgeapi.Device](
				c.call("GET", "/devices/d1", viewerToken, nil).Want(200),
			); one.FirmwareVersion != version ||
				listed[0].FirmwareVersion != version {
				c.Errorf(
					"%s: %q, in the list %q; want %q", when, one.FirmwareVersion, listed[0].FirmwareVersion, version,
				)
			}
		}
		c.call("POST", "/devices/d1/ota", adminToken, artifact("2.0")).Want(200)
		c.ota(agent, site, "d1", "installing", nil).Want(200)
		want("an update is under way", "1.0")
		c.ota(agent, site, "d1", "succeeded", nil).Want(200)
		want("an update succeeded", "2.0")
		c.call("POST", "/devices/d1/ota", adminToken, artifact("3.0")).Want(200)
		c.ota(agent, site, "d1", "failed", nil).Want(200)
		want("an update failed", "2.0")
		report(object{"firmware": "2.1", "mode": "auto"})
		want("the twin reports it", "2.1")
		report(object{"mode": "manual", "firmware": object{"image": "a"}})
		want("the twin reports something else there", "2.1")
		report(object{"firmware_version": "2.2"})
		want("the twin reports it under the other name", "2.2")
		register("4.0")
		want("it is registered again", "4.0")
	})
}

func TestAnAuditEntryOfATwinSaysWhatChanged(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		_, agent := c.site("plant", enrollmentToken)
		c.device(agent, "d1")
		put := func(desired object) {
			c.call("PUT", "/twins/d1/desired", adminToken, object{"desired": desired}).Want(200)
		}
		put(object{"mode": "auto", "limit": 1, "zone": object{"a": 1, "b": 2}})
		put(object{"mode": "manual", "limit": 1, "zone": object{"b": 2, "a": 9}})
		entries := contracttest.As[[]edgeapi.AuditEntry](c.call("GET", "/audit?action=twin.desired", viewerToken, nil).Want(200))
		if got, want := string(
			entries[0].Detail,
		), `{"after":{"mode":"manual","zone":{"a":9}},"before":{"mode":"auto","zone":{"a":1}},"desired_version":2}`; got != want {
			c.Errorf("%s, want %s", got, want)
		}
	})
}

func TestReportsThatShareATransactionAreJudgedEachForItself(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		_, agent := c.site("plant", enrollmentToken)
		_, stranger := c.site("other", enrollmentToken)
		const devices = 30
		site := ""
		for i := range devices {
			id := fmt.Sprintf("d%02d", i)
			c.device(agent, id)
			c.call("POST", "/devices/"+id+"/ota", adminToken, artifact("2.0")).Want(200)
			site = contracttest.As[edgeapi.Device](c.call("GET", "/devices/"+id, adminToken, nil).Want(200)).SiteId
		}
		var all sync.WaitGroup
		for i := range devices {
			path := fmt.Sprintf("/agent/devices/d%02d/ota/status", i)
			report := func(token, state string, status int) {
				body := object{"site_id": site, "status": object{"state": state}}
				if got := c.call("POST", path, token, body).Status; got != status {
					c.Errorf("%s %s: %d, want %d", path, state, got, status)
				}
			}
			all.Go(func() {
				report(agent, "downloading", 200)
				report(agent, "already_installed", 409) // only a pending one can be
				report(agent, "installing", 200)
				report(agent, "succeeded", 200)
			})
			all.Go(func() { report(stranger, "failed", 403) })
		}
		all.Wait()
		if got := contracttest.As[edgeapi.Overview](
			c.call("GET", "/overview", adminToken, nil).Want(200),
		).Ota; got["succeeded"] != devices ||
			len(got) != 1 {
			c.Errorf("the overview counts %v", got)
		}
	})
}
