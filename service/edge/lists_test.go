package edge_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/kit/search"
	"github.com/mainstay-infra/mainstay/service/edge"
)

// deploy makes a deployment, and has the agent report its status unless that is empty.
func (c *control) deploy(site, agent, name, status string) edgeapi.Deployment {
	c.Helper()
	d := contracttest.As[edgeapi.Deployment](c.call("POST", "/deployments", adminToken, object{
		"site_id": site, "name": name, "image": "ghcr.io/acme/" + name + ":1", "version": "1",
	}).Want(201))
	if status != "" {
		c.call("POST", "/agent/deployments/"+d.Id+"/status", agent, object{
			"site_id": site, "status": status, "observed_revision": 1,
		}).Want(200)
	}
	return d
}

func TestRoutesDeploymentsAndCampaignsAreFoundByTheirTexts(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		org := c.org("a")
		oven, agent := c.site("Ofen_Süd", org.EnrollmentToken)
		c.call("PATCH", "/sites/"+oven, adminToken, object{"labels": object{"Zone": "NORTH"}}).Want(200)
		other, _ := c.site("Plant", enrollmentToken)
		c.deploy(oven, agent, "camera", "running")
		c.deploy(other, "", "logger", "")
		route := func(token, name, topic, target string) {
			c.call("POST", "/routes", token, object{"name": name, "topic": topic, "target_url": target}).Want(201)
		}
		route(adminToken, "100% alarms", "alarm.*", "https://hooks.example.com/In_Box")
		route(adminToken, `back\slash's`, "*", "https://hooks.example.com/ÜBER")
		route(org.AdminToken, "Of the org", "temp.oven", "https://10.0.0.7/x")
		c.campaign(other, object{"name": "Früh_ling", "version": "2.1-Beta"})
		c.campaign(other, object{"name": "100%", "url": "https://fw.example/Winter.bin"})
		for _, tt := range []struct{ path, q, token, want string }{
			{"/routes", "ALARM", viewerToken, "100% alarms"},
			{"/routes", "%", viewerToken, "100% alarms"},
			{"/routes", "_", viewerToken, "100% alarms"},
			{"/routes", `\`, viewerToken, `back\slash's`},
			{"/routes", "über", viewerToken, `back\slash's`},
			{"/routes", "TEMP.", viewerToken, "Of the org"},
			{"/routes", "alarms\nalarm", viewerToken, ""}, // no text is found across two fields
			{"/routes", "' OR '1'='1", viewerToken, ""},
			{"/routes", "alarm", org.ViewerToken, ""},
			{"/routes", "o", org.ViewerToken, "Of the org"},
			{"/deployments", "CAMERA", viewerToken, "camera"},
			{"/deployments", "acme/logger:1", viewerToken, "logger"},
			{"/deployments", "ghcr", viewerToken, "camera logger"},
			{"/deployments", "süd", viewerToken, "camera"},
			{"/deployments", "zone=north", viewerToken, "camera"},
			{"/deployments", "_", viewerToken, "camera"},
			{"/deployments", "%", viewerToken, ""},
			{"/deployments", other, viewerToken, "logger"},
			{"/deployments", "plant", org.ViewerToken, ""},
			{"/deployments", "e", org.ViewerToken, "camera"},
			{"/deployments?status=running", "logger", viewerToken, ""},
			{"/deployments?site_id=" + other, "ghcr", viewerToken, "logger"},
			{"/deployments?site_id=" + other, "plant", viewerToken, ""},
			{"/ota/campaigns", "FRÜH", viewerToken, "Früh_ling"},
			{"/ota/campaigns", "_", viewerToken, "Früh_ling"},
			{"/ota/campaigns", "%", viewerToken, "100%"},
			{"/ota/campaigns", "beta", viewerToken, "Früh_ling"},
			{"/ota/campaigns", "winter", viewerToken, "100%"},
			{"/ota/campaigns", "ABAB", viewerToken, "100% Früh_ling"},
			{"/ota/campaigns?status=running", "abab", viewerToken, ""},
			{"/ota/campaigns", "abab", org.ViewerToken, ""},
		} {
			if strings.ContainsRune(tt.q, '\n') {
				c.call("GET", tt.path+"?q="+url.QueryEscape(tt.q), tt.token, nil).Refused(400, "invalid", "q")
				continue
			}
			sign := "?"
			if strings.Contains(tt.path, "?") {
				sign = "&"
			}
			path := tt.path + sign + "limit=1&q=" + url.QueryEscape(tt.q)
			if got := strings.Join(c.values(path, tt.token, "name"), " "); got != tt.want {
				c.Errorf("%s: %q, want %q", path, got, tt.want)
			}
		}
		// What is found changes with the object.
		id := c.values("/routes?q=alarm", viewerToken, "id")[0]
		c.call("PATCH", "/routes/"+id, adminToken, object{"topic": "door.*", "name": "Doors"}).Want(200)
		camera := c.values("/deployments?q=camera", viewerToken, "id")[0]
		c.call("PATCH", "/deployments/"+camera, adminToken, object{"image": "quay.io/lens:2", "version": "2.0"}).Want(200)
		c.call("PATCH", "/sites/"+other, adminToken, object{"name": "Harbour"}).Want(200)
		for path, want := range map[string]int{
			"/routes?q=alarm": 0, "/routes?q=DOORS": 1, "/deployments?q=quay.io": 1, "/deployments?q=acme%2Fcamera": 0,
			"/deployments?q=plant": 0, "/deployments?q=harbour": 1,
		} {
			if got := len(c.all(path, viewerToken)); got != want {
				c.Errorf("%s: %d, want %d", path, got, want)
			}
		}
		c.call("POST", "/agent/deployments/"+camera+"/status", agent, object{
			"site_id": oven, "status": "running", "observed_revision": 2,
		}).Want(200)
		c.call("PATCH", "/deployments/"+camera, adminToken, object{"image": "quay.io/lens:3", "version": "3.0"}).Want(200)
		c.call("POST", "/agent/deployments/"+camera+"/rollback", agent, object{"site_id": oven}).Want(200)
		if got := len(c.all("/deployments?q=lens%3A2", viewerToken)); got != 1 {
			c.Errorf("after a rollback: %d", got)
		}
	})
}

// Searches of random names find what filtering by hand finds, whatever the page size and the order.
func TestASearchFindsWhatFilteringByHandFinds(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 1))
		letters := []rune(`aAbß%_\'ÜüİΣς𝒳 `)
		word := func(n int) string {
			out := make([]rune, 1+random.IntN(n))
			for i := range out {
				out[i] = letters[random.IntN(len(letters))]
			}
			return string(out)
		}
		for range 25 {
			c.call("POST", "/routes", adminToken, object{
				"name": "n" + word(6), "topic": "t." + word(4), "target_url": "https://hooks.example.com/x",
			}).Want(201)
		}
		var routes []edgeapi.Route
		for _, raw := range c.all("/routes", viewerToken) {
			var r edgeapi.Route
			if err := json.Unmarshal(raw, &r); err != nil {
				c.Fatal(err)
			}
			routes = append(routes, r)
		}
		if len(routes) != 25 {
			c.Fatalf("%d routes", len(routes))
		}
		for range 40 {
			q := word(3)
			var want []string
			for _, r := range routes {
				if slices.ContainsFunc([]string{r.Id, r.Name, r.Topic, r.TargetUrl}, func(s string) bool {
					return strings.Contains(search.Fold(s), search.Fold(q))
				}) {
					want = append(want, r.Id)
				}
			}
			slices.Sort(want)
			for _, sort := range []string{"id", "-name", "updated_at"} {
				got := c.values(fmt.Sprintf("/routes?limit=%d&sort=%s&q=%s", 1+random.IntN(9), sort, url.QueryEscape(q)), viewerToken, "id")
				slices.Sort(got)
				if !slices.Equal(got, want) {
					c.Errorf("seed %d, %q by %s: %v, want %v", seed, q, sort, got, want)
				}
			}
		}
	})
}

func TestRoutesDeploymentsAndCampaignsCanBeSorted(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		org := c.org("a")
		own, _ := c.site("own", org.EnrollmentToken)
		other, _ := c.site("other", enrollmentToken)
		for i := range 9 {
			token, site := adminToken, other
			if i%2 == 0 {
				token, site = org.AdminToken, own
			}
			name := fmt.Sprintf("n-%d", (i*5)%9/2)
			c.call("POST", "/routes", token, object{"name": name, "topic": "*", "target_url": "https://h.example/x"}).Want(201)
			c.deploy(site, "", fmt.Sprintf("d-%d", (i*5)%9), "")
			body := artifact("9")
			body["name"], body["targets"] = name, object{"labels": object{"a": "b"}}
			c.call("POST", "/ota/campaigns", token, body).Want(201)
			c.ahead(time.Second)
		}
		ids := c.values("/routes", viewerToken, "id")
		c.call("PATCH", "/routes/"+ids[3], adminToken, object{"retry_max": 7}).Want(200)
		for _, who := range []string{viewerToken, org.ViewerToken} {
			for path, words := range map[string][]string{
				"/routes": {"id", "name", "updated_at"}, "/deployments": {"id", "name"}, "/ota/campaigns": {"id", "name"},
			} {
				rows := contracttest.As[[]map[string]any](c.call("GET", path, who, nil).Want(200))
				for _, word := range words {
					want := slices.Clone(rows)
					slices.SortFunc(want, func(a, b map[string]any) int {
						return strings.Compare(fmt.Sprint(a[word], "\n", a["id"]), fmt.Sprint(b[word], "\n", b["id"]))
					})
					for _, dash := range []string{"", "-"} {
						for _, more := range []string{"", "&q=-"} {
							got := c.values(path+"?limit=2&sort="+dash+word+more, who, "id")
							var ids []string
							for _, row := range want {
								ids = append(ids, fmt.Sprint(row["id"]))
							}
							if !slices.Equal(got, ids) {
								c.Errorf("%s by %s%s: %v, want %v", path, dash, word, got, ids)
							}
						}
						slices.Reverse(want)
					}
				}
			}
		}
		// Without a word: oldest first, but campaigns newest first.
		if got := c.values("/deployments?limit=2", viewerToken, "id"); !slices.IsSorted(got) {
			c.Errorf("deployments: %v", got)
		}
		campaigns := c.values("/ota/campaigns?limit=2", viewerToken, "id")
		slices.Reverse(campaigns)
		if !slices.IsSorted(campaigns) {
			c.Errorf("campaigns are not newest first: %v", campaigns)
		}
	})
}

func TestHostileParametersOfListsAreRefusedByName(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.site("plant", enrollmentToken)
		for _, name := range []string{"one", "two"} {
			c.deploy(site, agent, name, "running")
			c.campaign(site, object{"name": name})
			c.call("POST", "/routes", adminToken, object{"name": name, "topic": "*", "target_url": "https://h.example/x"}).Want(201)
		}
		cursor := func(path string) string {
			link := c.call("GET", path, viewerToken, nil).Want(200).Header.Get("Link")
			found := regexp.MustCompile(`cursor=([^&>]+)`).FindStringSubmatch(link)
			if found == nil {
				c.Fatalf("%s: Link: %q", path, link)
			}
			return found[1]
		}
		routes, byName := cursor("/routes?limit=1"), cursor("/deployments?limit=1&sort=name")
		campaigns := cursor("/ota/campaigns?limit=1")
		for path, field := range map[string]string{
			"/deployments?cursor=" + routes: "cursor", "/routes?cursor=" + byName: "cursor",
			"/routes?sort=-id&cursor=" + routes: "cursor", "/deployments?sort=-name&cursor=" + byName: "cursor",
			"/ota/campaigns?sort=id&cursor=" + campaigns: "cursor", "/ota/campaigns?cursor=" + byName: "cursor",
			"/routes?sort=updated_at&cursor=" + list.EncodeCursor(`["routes","updated_at","x","y"]`): "cursor",
			"/routes?sort=enabled": "sort", "/deployments?sort=status": "sort", "/ota/campaigns?sort=": "sort",
			"/routes?q=" + strings.Repeat("x", 129): "q", "/deployments?q=a%00b": "q", "/ota/campaigns?q=%ff": "q", "/routes?q=": "q",
			"/routes?status=broken": "status", "/deployments?status=gone": "status.0", "/ota/campaigns?paused=maybe": "paused",
			"/deployments?status=failed&status=gone": "status.1", "/devices?ota_state=done": "ota_state.0",
			"/devices?ota_state=" + strings.Repeat("failed&ota_state=", 14) + "failed": "ota_state",
		} {
			c.call("GET", path, viewerToken, nil).Refused(400, "invalid", field)
		}
		for _, path := range []string{
			"/deployments?sort=name&limit=1&cursor=" + byName, "/ota/campaigns?limit=1&sort=-id&cursor=" + campaigns,
		} {
			c.call("GET", path, viewerToken, nil).Want(200)
		}
	})
}

func TestListsShowExactlyWhatTheOverviewCounts(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		org := c.org("a")
		silent, later := map[string]string{}, func() {}
		for i, enrollment := range []string{enrollmentToken, org.EnrollmentToken} {
			admin := []string{adminToken, org.AdminToken}[i]
			sites := map[string][2]string{}
			for _, status := range []string{"online", "offline", "revoked"} {
				id, agent := c.site(status, enrollment)
				sites[status] = [2]string{id, agent}
				for _, deployed := range []string{"", "pulling", "running", "stopped", "failed", "denied"} {
					c.deploy(id, agent, "d-"+deployed+"x", deployed)
				}
				again := c.deploy(id, agent, "back", "running")
				c.call("PATCH", "/deployments/"+again.Id, adminToken, object{"version": "2"}).Want(200)
				c.call("POST", "/agent/deployments/"+again.Id+"/rollback", agent, object{"site_id": id}).Want(200)
				for n, state := range []string{"", "pending", "downloading", "succeeded", "failed", "timed_out", "rejected", "rolled_back"} {
					device := fmt.Sprintf("%d-%s-%d", i, status, n)
					c.device(agent, device)
					if state != "" {
						c.call("POST", "/devices/"+device+"/ota", adminToken, artifact("2")).Want(200)
					}
					if state != "" && state != "pending" {
						// The rules of states are not what this is about.
						c.change("UPDATE devices SET ota_state = ? WHERE device_id = ?", state, device)
						c.change("UPDATE tallies SET n = n - 1 WHERE org_id = (SELECT org_id FROM devices WHERE device_id = ?) AND kind = 'ota' AND state = 'pending'", device)
						c.change(`INSERT INTO tallies SELECT org_id, 'ota', ota_state, 1 FROM devices WHERE device_id = ?
							ON CONFLICT (org_id, kind, state) DO UPDATE SET n = tallies.n + 1`, device)
					}
				}
			}
			silent[sites["revoked"][0]] = "revoked"
			beat := later
			later = func() { beat(); c.call("POST", "/heartbeat", sites["online"][1], object{}).Want(200) }
			for _, name := range []string{"draft", "running", "paused", "aborted"} {
				body := artifact("9")
				body["name"], body["targets"] = name, object{"labels": object{"a": "b"}}
				cp := contracttest.As[edgeapi.Campaign](c.call("POST", "/ota/campaigns", admin, body).Want(201))
				switch name {
				case "aborted":
					c.call("POST", "/ota/campaigns/"+cp.Id+"/abort", admin, nil).Want(200)
				case "running", "paused":
					c.change(
						"UPDATE campaigns SET status = 'running', paused_reason = ? WHERE id = ?",
						map[string]string{"paused": "too many failed"}[name], cp.Id,
					)
					c.change("UPDATE tallies SET n = n - 1 WHERE org_id = ? AND kind = 'campaign' AND state = 'draft'", cp.OrgId)
					c.change(`INSERT INTO tallies VALUES (?, 'campaign', 'running', 1)
						ON CONFLICT (org_id, kind, state) DO UPDATE SET n = tallies.n + 1`, cp.OrgId)
				}
			}
			for _, name := range []string{"well", "failing", "blocked", "both", "off", "gone"} {
				r := contracttest.As[edgeapi.Route](c.call("POST", "/routes", admin, object{
					"name": name, "topic": "none", "target_url": "https://h.example/x", "enabled": name != "off" && name != "gone",
				}).Want(201))
				if name == "failing" || name == "both" {
					at := db.At(time.Now().Add(10 * time.Minute))
					c.change("UPDATE route_stats SET last_failure_at = ?, last_error = '503' WHERE route_id = ?", at, r.Id)
					c.change("INSERT INTO route_minutes VALUES (?, ?, ?, 0, 5, 0)", r.Id, at, r.OrgId)
				}
				if name == "blocked" || name == "both" {
					// The delivery engine would unblock a route whose secret it can read.
					c.change("UPDATE routes SET secret = 'lost', blocked_reason = 'the secret is lost' WHERE id = ?", r.Id)
				}
				if name == "gone" {
					c.change("UPDATE routes SET disabled_reason = 'the target answered 410 Gone' WHERE id = ?", r.Id)
				}
			}
		}
		for id := range silent {
			c.call("POST", "/sites/"+id+"/revoke", adminToken, nil).Want(200)
		}
		c.ahead(10 * time.Minute)
		later()
		c.maintain()
		for _, who := range []string{viewerToken, org.ViewerToken} {
			o := contracttest.As[edgeapi.Overview](c.call("GET", "/overview", who, nil).Want(200))
			equal := func(path string, want int64) int64 {
				c.Helper()
				got := int64(len(c.all(path, who)))
				if got != want {
					c.Errorf("%s: %d rows, and the overview counts %d", path, got, want)
				}
				return got
			}
			sum := func(path string, counts edgeapi.Counts, words ...string) {
				c.Helper()
				var all int64
				for _, word := range words {
					all += equal(path+word, counts[strings.TrimSuffix(word, "&paused=false")])
				}
				for word := range counts {
					if !slices.ContainsFunc(words, func(w string) bool { return strings.TrimSuffix(w, "&paused=false") == word }) {
						c.Errorf("%s cannot be filtered by %s", path, word)
					}
				}
				equal(strings.SplitN(path, "?", 2)[0], all)
			}
			sum("/sites?status=", o.Sites, "online", "offline", "revoked")
			sum("/deployments?limit=2&status=", o.Deployments, "pending", "pulling", "running", "stopped", "failed", "denied",
				"rolled_back", "unknown")
			if o.Deployments["unknown"] == 0 || o.Deployments["running"] == 0 {
				c.Errorf("%v", o.Deployments)
			}
			equal("/deployments?limit=3&status=failed&status=denied", o.Deployments["failed"]+o.Deployments["denied"])
			equal("/deployments?limit=3&status=unknown&status=running&sort=-name", o.Deployments["unknown"]+o.Deployments["running"])
			sum("/routes?status=", o.Routes, "enabled", "disabled")
			equal("/routes?status=failing&limit=1", o.RoutesFailing)
			if o.RoutesFailing%4 != 0 || o.RoutesFailing == 0 {
				c.Errorf("%d routes fail", o.RoutesFailing)
			}
			for state, n := range o.Ota {
				equal("/devices?limit=2&ota_state="+state, n)
			}
			if len(o.Ota) != 7 {
				c.Errorf("%v", o.Ota)
			}
			equal("/devices?limit=2&sort=-last_seen_at&ota_state=failed&ota_state=timed_out&ota_state=rejected&ota_state=rolled_back&ota_state=canceled",
				o.Ota["failed"]+o.Ota["timed_out"]+o.Ota["rejected"]+o.Ota["rolled_back"])
			equal("/ota/campaigns?status=running&paused=false", o.Campaigns["running"])
			equal("/ota/campaigns?paused=true", o.Campaigns["paused"])
			if o.Campaigns["paused"] == 0 || o.Campaigns["running"] == 0 {
				c.Errorf("%v", o.Campaigns)
			}
			equal("/ota/campaigns?status=draft", o.Campaigns["draft"])
			equal("/ota/campaigns?status=aborted", o.Campaigns["aborted"])
		}
	})
}

// moreIndexesAlone finds plans that find a page in an index alone.
var moreIndexesAlone = regexp.MustCompile(`USING COVERING INDEX ((routes|deployments|campaigns|devices)_by_|sqlite_autoindex)\w+|` +
	`Index Only Scan (Backward )?using (routes|deployments|campaigns|devices)_by_\w+`)

func TestNoListOfRoutesDeploymentsOrCampaignsReadsTheWholeTable(t *testing.T) {
	t.Parallel()
	planned(t, func(c *control, p *plans) {
		org := c.org("a")
		site, agent := c.site("plant", org.EnrollmentToken)
		c.deploy(site, agent, "web", "failed")
		c.device(agent, "d")
		c.campaign(site, nil)
		c.call("POST", "/routes", adminToken, object{"name": "r", "topic": "*", "target_url": "https://h.example/x"}).Want(201)
		watch := func(what string, filtered bool, err error) {
			c.Helper()
			if err != nil {
				c.Fatal(err)
			}
			// The first query finds the page. The page itself is read and sorted again.
			plan := p.seen[0]
			p.seen = nil
			if p.Engine() == db.SQLite {
				plan = strings.NewReplacer("SCAN page", "", "USE TEMP B-TREE FOR ORDER BY", "").Replace(plan)
			}
			if !filtered && !moreIndexesAlone.MatchString(plan) ||
				regexp.MustCompile(`(?m)Seq Scan on|^SCAN (routes|deployments|campaigns|sites|devices|whole)( USING INDEX \w+)?$`).MatchString(plan) {
				c.Errorf("%s:\n%s", what, plan)
			}
		}
		for _, who := range []string{"", org.Id} {
			ctx := edge.As(c.Context(), who)
			for _, text := range []string{"", "nothing"} {
				for _, sort := range []string{"id", "-id", "name", "-name"} {
					for _, status := range []string{"", "enabled", "disabled"} {
						f := edge.RouteFilter{Text: text, Sort: sort, Status: status, Limit: 101}
						watch(fmt.Sprintf("%+v for org %q", f, who), false, c.service.RoutesFrom(ctx, p, f))
					}
					for _, status := range [][]string{nil, {"failed", "denied"}} {
						f := edge.DeploymentFilter{Text: text, Sort: sort, Status: status, Limit: 101}
						watch(fmt.Sprintf("%+v for org %q", f, who), status != nil, c.service.DeploymentsFrom(ctx, p, f))
					}
					f := edge.CampaignFilter{Text: text, Sort: sort, Limit: 101}
					watch(fmt.Sprintf("%+v for org %q", f, who), false, c.service.CampaignsFrom(ctx, p, f))
				}
				f := edge.RouteFilter{Text: text, Sort: "-updated_at", Limit: 101}
				watch(fmt.Sprintf("%+v for org %q", f, who), false, c.service.RoutesFrom(ctx, p, f))
				failed := edge.DeviceFilter{Text: text, OTA: edge.FailedUpdates, Limit: 101}
				_, err := c.service.DevicesFrom(ctx, p, failed)
				watch(fmt.Sprintf("%+v for org %q", failed, who), true, err)
			}
		}
	})
}
