package edge_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/service/edge"
)

// values are those of one field of all items of a list, on all of its pages.
func (c *control) values(path, token, field string) []string {
	c.Helper()
	values := []string{}
	for _, raw := range c.all(path, token) {
		var item map[string]any
		if err := json.Unmarshal(raw, &item); err != nil {
			c.Fatal(err)
		}
		values = append(values, fmt.Sprint(item[field]))
	}
	return values
}

func TestSitesAndDevicesAreFoundByTheirTexts(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		org := c.org("a")
		c.site("Plant 100%", enrollmentToken)
		oven, agent := c.site("Ofen_Süd", org.EnrollmentToken)
		c.call("PATCH", "/sites/"+oven, adminToken, object{"labels": object{"Zone": "NORTH", "a": "b"}}).Want(200)
		_, other := c.site(`back\slash's`, enrollmentToken)
		for i, name := range []string{"Pump", "ÖLPUMPE", "Valve"} {
			c.call("POST", "/devices/register", agent, object{
				"device_id": fmt.Sprintf("dev-%d", i), "name": name, "model": fmt.Sprintf("M%d%%", i),
				"labels": object{"hall": fmt.Sprint(i)},
			}).Want(201)
		}
		c.device(other, "elsewhere")
		for _, tt := range []struct{ path, q, token, field, want string }{
			{"/sites", "plant", viewerToken, "name", "Plant 100%"},
			{"/sites", "100%", viewerToken, "name", "Plant 100%"},
			{"/sites", "%", viewerToken, "name", "Plant 100%"},
			{"/sites", "_", viewerToken, "name", "Ofen_Süd"},
			{"/sites", `\`, viewerToken, "name", `back\slash's`},
			{"/sites", "SÜD", viewerToken, "name", "Ofen_Süd"},
			{"/sites", "zone=north", viewerToken, "name", "Ofen_Süd"},
			{"/sites", "' OR '1'='1", viewerToken, "name", ""},
			{"/sites", "nothing", viewerToken, "name", ""},
			{"/sites", "plant", org.ViewerToken, "name", ""},
			{"/sites", "ofen", org.ViewerToken, "name", "Ofen_Süd"},
			{"/sites", oven[3:20], viewerToken, "name", "Ofen_Süd"},
			{"/sites?status=offline", "plant", viewerToken, "name", ""},
			{"/devices", "PUMP", viewerToken, "device_id", "dev-0 dev-1"},
			{"/devices", "ölpumpe", viewerToken, "device_id", "dev-1"},
			{"/devices", "m2%", viewerToken, "device_id", "dev-2"},
			{"/devices", "hall=1", org.ViewerToken, "device_id", "dev-1"},
			{"/devices", "elsewhere", org.ViewerToken, "device_id", ""},
			{"/devices", "elsewhere", viewerToken, "device_id", "elsewhere"},
			{"/devices?site_id=" + oven, "e", viewerToken, "device_id", "dev-0 dev-1 dev-2"},
		} {
			sign := "?"
			if strings.Contains(tt.path, "?") {
				sign = "&"
			}
			path := tt.path + sign + "limit=2&q=" + url.QueryEscape(tt.q)
			if got := strings.Join(c.values(path, tt.token, tt.field), " "); got != tt.want {
				c.Errorf("%s: %q, want %q", path, got, tt.want)
			}
		}
		// What is found changes with the object.
		c.call("PATCH", "/sites/"+oven, adminToken, object{"name": "renamed"}).Want(200)
		c.call("POST", "/heartbeat", agent, object{"labels": object{"zone": "beaten"}}).Want(200)
		c.call("POST", "/devices/register", agent, object{"device_id": "dev-0", "name": "new name"}).Want(200)
		for path, want := range map[string]int{
			"/sites?q=ofen": 0, "/sites?q=renamed": 1, "/sites?q=zone%3Dnorth": 0, "/sites?q=zone%3Dbeaten": 1,
			"/devices?q=new+name": 1, "/devices?q=m0": 0,
		} {
			if got := len(c.all(path, viewerToken)); got != want {
				c.Errorf("%s: %d, want %d", path, got, want)
			}
		}
		long := object{}
		for i := range 64 {
			long[fmt.Sprintf("%03d", i)+strings.Repeat("Ü", 60)] = strings.Repeat("€", 256)
		}
		c.call("PATCH", "/sites/"+oven, adminToken, object{"labels": long, "name": strings.Repeat("𝒳", 128)}).Want(200)
		if got := len(c.all("/sites?limit=1&sort=name&q="+url.QueryEscape("𝒳"), viewerToken)); got != 1 {
			c.Errorf("with long labels: %d sites", got)
		}
	})
}

func TestSitesAndDevicesCanBeSorted(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		org := c.org("a")
		var agent, site string
		for i := range 9 {
			enrollment := enrollmentToken
			if i%2 == 0 {
				enrollment = org.EnrollmentToken
			}
			site, agent = c.site(fmt.Sprintf("site-%d", i%3), enrollment)
			c.ahead(time.Second)
			if i == 4 || i == 5 {
				c.call("POST", "/sites/"+site+"/revoke", adminToken, nil).Want(200)
			}
		}
		for i := range 9 {
			c.device(agent, fmt.Sprintf("d-%d", (i*5)%9))
			c.call("POST", "/devices/register", agent, object{
				"device_id": fmt.Sprintf("d-%d", (i*5)%9), "name": fmt.Sprintf("n-%d", i%2),
			}).Want(200)
			c.ahead(time.Second)
		}
		sorted := func(a answer, id string) func(sort string) []string {
			var rows []map[string]any
			if err := json.Unmarshal([]byte(a.Body), &rows); err != nil {
				c.Fatal(err)
			}
			return func(sort string) (ids []string) {
				word, descending := strings.CutPrefix(sort, "-")
				rows := slices.SortedFunc(slices.Values(rows), func(x, y map[string]any) int {
					return cmp.Or(cmp.Compare(fmt.Sprint(x[word]), fmt.Sprint(y[word])), cmp.Compare(fmt.Sprint(x[id]), fmt.Sprint(y[id])))
				})
				if descending {
					slices.Reverse(rows)
				}
				for _, r := range rows {
					ids = append(ids, fmt.Sprint(r[id]))
				}
				return ids
			}
		}
		for _, who := range []string{viewerToken, org.ViewerToken} {
			sites := sorted(c.call("GET", "/sites", who, nil).Want(200), "id")
			for _, sort := range []string{"id", "-id", "name", "-name", "status", "-status", "last_seen_at", "-last_seen_at"} {
				for _, more := range []string{"", "&q=site"} {
					if got, want := c.values("/sites?limit=2&sort="+sort+more, who, "id"), sites(sort); !slices.Equal(got, want) {
						c.Errorf("sites by %s: %v, want %v", sort, got, want)
					}
				}
			}
			devices := sorted(c.call("GET", "/devices", who, nil).Want(200), "device_id")
			for _, sort := range []string{"device_id", "-device_id", "name", "-name", "last_seen_at", "-last_seen_at"} {
				for _, more := range []string{"", "&q=d-", "&site_id=" + site} {
					if got, want := c.values("/devices?limit=2&sort="+sort+more, who, "device_id"), devices(sort); !slices.Equal(got, want) {
						c.Errorf("devices by %s: %v, want %v", sort, got, want)
					}
				}
			}
		}
	})
}

func TestCursorsOfOtherListsAndOrdersAreRefused(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		_, agent := c.site("one", enrollmentToken)
		c.site("two", enrollmentToken)
		c.device(agent, "a")
		c.device(agent, "b")
		cursor := func(path string) string {
			link := c.call("GET", path, viewerToken, nil).Want(200).Header.Get("Link")
			_, rest, _ := strings.Cut(link, "cursor=")
			rest, _, _ = strings.Cut(rest, "&")
			if rest == "" {
				c.Fatalf("%s: Link: %q", path, link)
			}
			return rest
		}
		sites, byName := cursor("/sites?limit=1"), cursor("/sites?limit=1&sort=name")
		devices, bySeen := cursor("/devices?limit=1"), cursor("/devices?limit=1&sort=-last_seen_at")
		for _, path := range []string{
			"/sites?cursor=" + byName, "/sites?cursor=" + devices, "/sites?sort=-name&cursor=" + byName,
			"/sites?sort=name&cursor=" + sites, "/devices?cursor=" + sites, "/devices?cursor=" + bySeen,
			"/devices?sort=last_seen_at&cursor=" + bySeen, "/sites?cursor=" + list.EncodeCursor("plain"),
			"/sites?sort=last_seen_at&cursor=" + list.EncodeCursor(`["sites","last_seen_at","x","y"]`),
			"/deadletters?cursor=" + sites, "/events?cursor=" + sites, "/audit?cursor=" + devices,
		} {
			c.call("GET", path, viewerToken, nil).Refused(400, "invalid", "cursor")
		}
		for path, field := range map[string]string{
			"/sites?sort=price": "sort", "/devices?sort=name,name": "sort", "/devices?sort=": "sort",
			"/sites?q=" + strings.Repeat("x", 129): "q", "/devices?q=a%00b": "q", "/sites?q=%ff": "q", "/sites?q=": "q",
		} {
			c.call("GET", path, viewerToken, nil).Refused(400, "invalid", field)
		}
		c.call("GET", "/sites?limit=1&sort=-name&cursor="+cursor("/sites?limit=1&sort=-name"), viewerToken, nil).Want(200)
	})
}

// indexAlone finds plans that find a page in an index alone.
var indexAlone = regexp.MustCompile(`USING COVERING INDEX (sites_by|devices_by|sqlite_autoindex)|Index Only Scan (Backward )?using (sites|devices)_by`)

func TestNoListOfSitesOrDevicesReadsTheWholeTable(t *testing.T) {
	t.Parallel()
	planned(t, func(c *control, p *plans) {
		org := c.org("a")
		site, agent := c.site("plant", org.EnrollmentToken)
		c.device(agent, "d")
		watch := func(what string, err error) {
			c.Helper()
			if err != nil {
				c.Fatal(err)
			}
			for _, plan := range p.seen {
				// The page itself is read and sorted again. What counts is how it was found: a sort there
				// would not leave its index alone.
				found := plan
				if p.Engine() == db.SQLite {
					found = strings.NewReplacer("SCAN page", "", "USE TEMP B-TREE FOR ORDER BY", "").Replace(plan)
				}
				if wholeTable.MatchString(found) || !indexAlone.MatchString(plan) {
					c.Errorf("%s:\n%s", what, plan)
				}
			}
			p.seen = nil
		}
		for _, who := range []string{"", org.Id} {
			ctx := edge.As(c.Context(), who)
			for _, text := range []string{"", "nothing"} {
				for _, sort := range []string{"id", "-id", "name", "-name", "status", "-status", "last_seen_at", "-last_seen_at"} {
					f := edge.SiteFilter{Text: text, Sort: sort, Limit: 101}
					_, err := c.service.SitesFrom(ctx, p, f)
					watch(fmt.Sprintf("%+v for org %q", f, who), err)
				}
				for _, sort := range []string{"device_id", "-device_id", "name", "-name", "last_seen_at", "-last_seen_at"} {
					f := edge.DeviceFilter{Text: text, Sort: sort, Limit: 101}
					_, err := c.service.DevicesFrom(ctx, p, f)
					watch(fmt.Sprintf("%+v for org %q", f, who), err)
				}
				_, err := c.service.DevicesFrom(ctx, p, edge.DeviceFilter{Text: text, SiteID: site, Limit: 101})
				watch("devices of a site", err)
			}
		}
	})
}

// A database of the version before searches keeps its objects and events, and they are found.
// migrations are those of an older version.
func migrations(t *testing.T, pattern string) fstest.MapFS {
	t.Helper()
	files, err := filepath.Glob("migrations/" + pattern)
	if err != nil {
		t.Fatal(err)
	}
	older := fstest.MapFS{}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		older[filepath.Base(path)] = &fstest.MapFile{Data: text}
	}
	return older
}

// Older versions left a final sigma as it was.
func TestWhatAnOlderVersionStoredWithAFinalSigmaIsFound(t *testing.T) {
	t.Parallel()
	older := migrations(t, "000[1-7]_*.sql")
	test := func(t *testing.T, cfg db.Config, change func(*edge.Config)) {
		d, err := db.Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Migrate(t.Context(), "edge", older); err != nil {
			t.Fatal(err)
		}
		if err := d.Update(t.Context(), func(tx *db.Tx) error {
			return tx.Insert(t.Context(), "sites", edge.Site{
				ID: "s1", Name: "Οδος", Status: "online", EnrolledAt: db.At(time.Now()), LastSeenAt: db.At(time.Now()),
				Search: "s1\nοδος",
			})
		}); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		c := start(t, change)
		c.eventually("it is found", func() bool {
			return len(c.all("/sites?q="+url.QueryEscape("ΟΔΟΣ"), viewerToken)) == 1
		})
	}
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		test(t, db.Config{Path: edge.DatabaseFile(dir)}, func(cfg *edge.Config) { cfg.Data = dir })
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		address := dbtest.PostgresURL(t)
		test(t, db.Config{URL: address, Schema: "edge"}, func(cfg *edge.Config) { cfg.Database = address })
	})
}

func TestWhatAnOlderVersionStoredIsFound(t *testing.T) {
	t.Parallel()
	older := migrations(t, "000[1-4]_*.sql")
	test := func(t *testing.T, cfg db.Config, change func(*edge.Config)) {
		d, err := db.Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Migrate(t.Context(), "edge", older); err != nil {
			t.Fatal(err)
		}
		if err := d.Update(t.Context(), func(tx *db.Tx) error {
			run := func(query string, args ...any) {
				if _, err := tx.Exec(t.Context(), query, args...); err != nil {
					t.Fatal(err)
				}
			}
			run(`INSERT INTO sites VALUES ('s1', '', 'Öfen', 'online', '1', '{"zone":"North"}', NULL, 1, '', NULL)`)
			run(`INSERT INTO sites VALUES ('s2', '', 'Plain', 'online', '1', '{"a":"B=c","zone":"South"}', 2, 1, '', NULL)`)
			run(`INSERT INTO sites VALUES ('s3', '', 'Quoted', 'online', '1', '{"a":"\"{\\\u003c"}', 2, 1, '', NULL)`)
			run(`INSERT INTO sites VALUES ('s4', '', 'Bare', 'online', '1', 'null', 2, 1, '', NULL)`)
			run(`INSERT INTO devices VALUES ('d1', 's1', '', 'Pump', 'm1', '1', '{}', 1, 1, '{}', '{}', 0, 0, 1, '', '', '', '', 0, '', NULL)`)
			run(`INSERT INTO routes VALUES ('r1', '', 'ALARME', 's1', 'Tür.*', 'https://h.example/X', 'POST', TRUE, '', 5, 10, '', 1, 1, '')`)
			run(`INSERT INTO deployments VALUES ('x1', 's1', '', 'web', 'ghcr.io/acme/web:1', 'V1', 'running', '{}', '[]', 1, 1, '', '',
				'running', '', FALSE, 1, 1, 'missing', 'always', 'null', 'null')`)
			run(`INSERT INTO campaigns VALUES ('c1', '', 'Frühling', 'V2', 'https://f.example/Y', 'ab', 0, '{"site_ids":["s1"]}', '[100]',
				0.9, 0.1, 1, 0, 60, FALSE, FALSE, 'draft', -1, '', 'idle', 0, 0, 1, NULL, NULL, NULL, NULL)`)
			for _, seq := range []int{1, 8191, 8192, 30_000} {
				run(
					`INSERT INTO events VALUES (?, '', ?, 's1', 'rare', '1', '{}', 1, ?)`, seq, fmt.Sprint("e", seq),
					time.Now().UnixMicro(),
				)
			}
			run("INSERT INTO event_minutes VALUES (?, '', 4, 1, 100)", db.At(time.Now().Truncate(time.Minute)))
			for _, route := range []string{"r1", "r2"} {
				run("INSERT INTO route_minutes VALUES (?, ?, '', 3, 2, 1)", route, db.At(time.Now().Truncate(time.Minute)))
			}
			run("UPDATE counters SET value = 30000 WHERE name = 'event'")
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		c := start(t, change)
		c.eventually("all is prepared", func() bool {
			var first int
			if err := c.service.DB().Get(t.Context(), &first, "SELECT value FROM counters WHERE name = 'topics'"); err != nil {
				t.Fatal(err)
			}
			return first == 0 && len(c.all("/sites?q=zone%3Dnorth", viewerToken)) == 1 &&
				len(c.all("/ota/campaigns?q=FR%C3%9CHLING", viewerToken)) == 1
		})
		if got := sums(c.history(viewerToken, nil)); got != "4 6 4 2" {
			t.Errorf("its history: %s", got)
		}
		if got := c.found("/events?topic=r*", viewerToken); !slices.Equal(got, []string{"e30000", "e8192", "e8191", "e1"}) {
			t.Errorf("%v", got)
		}
		if got := contracttest.As[[]edgeapi.Device](c.call("GET", "/devices?q=pump", viewerToken, nil).Want(200)); len(got) != 1 {
			t.Errorf("%v", got)
		}
		if got := c.values("/sites?limit=1&sort=last_seen_at", viewerToken, "id"); len(got) != 4 {
			t.Errorf("a site that was never seen: %v", got)
		}
		for path, want := range map[string]string{
			"/routes?q=T%C3%9CR": "r1", "/routes?q=h.example": "r1", "/deployments?q=acme%2Fweb": "x1", "/deployments?q=v1": "x1",
			"/deployments?q=%C3%96fen": "x1", "/ota/campaigns?q=v2": "c1", "/ota/campaigns?q=Example%2FY": "c1", "/routes?q=v2": "",
		} {
			if got := strings.Join(c.values(path, viewerToken, "id"), " "); got != want {
				t.Errorf("%s: %q, want %q", path, got, want)
			}
		}
		// The migration and the service write the same.
		var sites []edge.Site
		if err := c.service.DB().Select(t.Context(), &sites, "SELECT * FROM sites ORDER BY id"); err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{
			"s1\nöfen\nzone=north", "s2\nplain\na=b=c\nzone=south", "s3\nquoted\na=\"{\\<", "s4\nbare",
		} {
			if sites[i].Search != want {
				t.Errorf("%q, want %q", sites[i].Search, want)
			}
		}
	}
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		test(t, db.Config{Path: edge.DatabaseFile(dir)}, func(cfg *edge.Config) {
			cfg.Data, cfg.ReplaceLostKeys = dir, true // the secret of the route was never sealed
		})
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		address := dbtest.PostgresURL(t)
		test(t, db.Config{URL: address, Schema: "edge"}, func(cfg *edge.Config) {
			cfg.Database, cfg.ReplaceLostKeys = address, true
		})
	})
}
