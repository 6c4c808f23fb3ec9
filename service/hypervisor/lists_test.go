//go:build linux

package hypervisor_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

// values are those of one field of all items of a list, on all of its pages.
func (d *daemon) values(path, token, field string) []string {
	d.Helper()
	values := []string{}
	for path != "" {
		a := d.call("GET", path, token, nil).Want(200)
		var items []map[string]any
		if err := json.Unmarshal([]byte(a.Body), &items); err != nil {
			d.Fatal(err)
		}
		for _, item := range items {
			values = append(values, fmt.Sprint(item[field]))
		}
		path = ""
		if link := a.Header.Get("Link"); link != "" {
			path = strings.TrimPrefix(link[1:strings.Index(link, ">")], d.url)
		}
	}
	return values
}

func TestVMsAndImagesAreFoundSortedAndSeenOnlyByTheirTenant(t *testing.T) {
	t.Parallel()
	d := start(t, usualDocument)
	for i, name := range []string{"web-1", "db", "web-0", "cache"} {
		d.call("POST", "/v1/vms", adminToken, object{
			"name": name, "memory_mib": 64, "tenant": []string{"acme", "other"}[i%2],
			"labels": object{"role": []string{"Küche", "100%", `a_\b`, "x"}[i]},
		}).Want(201)
	}
	// As an earlier version left them, which may have had images.
	d.restart(func() {
		tamper(t, d.cfg.Data, `UPDATE vms SET spec = REPLACE(spec, '"vcpus":', '"image":"Debian-12","vcpus":') WHERE name = 'db'`)
		tamper(t, d.cfg.Data, "UPDATE vms SET search = ''")
		for i, name := range []string{"ubuntu", "Alpine", "demo"} {
			tamper(t, d.cfg.Data, fmt.Sprintf(`INSERT INTO images (name, kind, source, sha256, kernel_args, size, virtual_size,
				read_only, locked, added_at) VALUES ('%s', 'disk', '/srv/Süd/%s', 'ab%d', '', 1, 1, FALSE, FALSE, %d)`, name, name, i, 9-i))
		}
	})
	id := d.values("/v1/vms?q=cache", adminToken, "id")[0]
	for _, tt := range []struct{ path, q, token, want string }{
		{"/v1/vms", "WEB", adminToken, "web-1 web-0"},
		{"/v1/vms", "web", acmeToken, "web-1 web-0"},
		{"/v1/vms", "web", otherToken, ""},
		{"/v1/vms", "a", otherToken, "db cache"},
		{"/v1/vms", "debian", adminToken, "db"},
		{"/v1/vms", "KÜCHE", adminToken, "web-1"},
		{"/v1/vms", "%", adminToken, "db"},
		{"/v1/vms", "_", adminToken, "web-0"},
		{"/v1/vms", `\`, adminToken, "web-0"},
		{"/v1/vms", "role=100%", adminToken, "db"},
		{"/v1/vms", "acme", adminToken, "web-1 web-0"},
		{"/v1/vms", id[9:30], adminToken, "cache"},
		{"/v1/vms", "' OR 1=1 --", adminToken, ""},
		{"/v1/vms?state=running", "web", adminToken, ""},
		{"/v1/vms?tenant=other", "e", adminToken, "db cache"},
		{"/v1/vms?tenant=other", "e", acmeToken, ""},
		{"/v1/vms?label=role=x", "cac", adminToken, "cache"},
		{"/v1/vms?sort=name", "-", adminToken, "cache db web-0 web-1"},
		{"/v1/vms?sort=-name", "web", acmeToken, "web-1 web-0"},
		{"/v1/vms?sort=-created_at", "e", adminToken, "cache web-0 db web-1"},
		{"/v1/vms?sort=state&label=role=x", "e", adminToken, "cache"},
		{"/v1/images/catalog", "ALPINE", acmeToken, "Alpine"},
		{"/v1/images/catalog", "süd", adminToken, "Alpine demo ubuntu"},
		{"/v1/images/catalog", "ab2", adminToken, "demo"},
		{"/v1/images/catalog?sort=-added_at", "disk", adminToken, "ubuntu Alpine demo"},
		{"/v1/images/catalog?sort=added_at", "/srv", adminToken, "demo Alpine ubuntu"},
		{"/v1/images/catalog?sort=-name", "/srv", adminToken, "ubuntu demo Alpine"},
		{"/v1/images/catalog", "%", adminToken, ""},
	} {
		sign := "?"
		if strings.Contains(tt.path, "?") {
			sign = "&"
		}
		for limit := 1; limit < 4; limit++ {
			path := fmt.Sprintf("%s%slimit=%d&q=%s", tt.path, sign, limit, url.QueryEscape(tt.q))
			if got := strings.Join(d.values(path, tt.token, "name"), " "); got != tt.want {
				t.Errorf("%s: %q, want %q", path, got, tt.want)
			}
		}
	}
	// What is found changes with the name of an image.
	d.call("POST", "/v1/images/catalog/demo/rename", adminToken, object{"name": "tour"}).Want(200)
	d.call("POST", "/v1/images/catalog/Alpine/clone", adminToken, object{"name": "second"}).Want(201)
	for q, want := range map[string]string{"tour": "tour", "second": "second", "alpine": "Alpine second"} {
		if got := strings.Join(d.values("/v1/images/catalog?q="+q, adminToken, "name"), " "); got != want {
			t.Errorf("%s: %q, want %q", q, got, want)
		}
	}
	d.call("DELETE", "/v1/vms/"+id, adminToken, nil).Want(204)
	if got := d.values("/v1/vms?q=cache", adminToken, "name"); len(got) != 0 {
		t.Errorf("a deleted VM is found: %v", got)
	}
	cursor := func(path string) string {
		link := d.call("GET", path, adminToken, nil).Want(200).Header.Get("Link")
		_, rest, _ := strings.Cut(link, "cursor=")
		end := strings.IndexAny(rest, "&>")
		if end < 0 {
			t.Fatalf("%s: Link: %q", path, link)
		}
		return rest[:end]
	}
	vms, images := cursor("/v1/vms?limit=1"), cursor("/v1/images/catalog?limit=1")
	for path, field := range map[string]string{
		"/v1/vms?sort=name&cursor=" + vms: "cursor", "/v1/vms?cursor=" + images: "cursor",
		"/v1/images/catalog?sort=-name&cursor=" + images: "cursor", "/v1/vms?sort=tenant": "sort", "/v1/vms?q=": "q",
		"/v1/vms?q=a%00": "q", "/v1/images/catalog?q=" + strings.Repeat("x", 129): "q", "/v1/images/catalog?sort=kind": "sort",
		"/v1/audit?q=a%00": "q",
	} {
		d.call("GET", path, adminToken, nil).Refused(400, "invalid", field)
	}
}

func TestASearchOfTheAuditLogReachesItsOldestEntries(t *testing.T) {
	t.Parallel()
	d := start(t, usualDocument)
	d.call("POST", "/v1/images/clean", adminToken, nil).Want(200)
	const more = 5_000 // a page of a search examines fewer
	d.restart(func() {
		tamper(t, d.cfg.Data, fmt.Sprintf(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
			INSERT INTO audit_entries (seq, id, time, actor, actor_type, action, target, tenant, site, result, message, detail, hash)
			SELECT 1000000 + i, 'e' || i, 1, 'admin', 'admin', 'vm.start', 'x', CASE i %% 2 WHEN 0 THEN 'acme' ELSE '' END, '', 'ok', 'm', '{}', ''
			FROM n`, more))
	})
	a := d.call("GET", "/v1/audit?q=IMAGE.clean", adminToken, nil).Want(200)
	if got := contracttest.As[[]hypervisorapi.AuditEntry](a); len(got) != 0 || a.Header.Get("Link") == "" {
		t.Errorf("the first page has %d entries and the link %q", len(got), a.Header.Get("Link"))
	}
	if got := d.values("/v1/audit?q=IMAGE.clean", adminToken, "action"); !slices.Equal(got, []string{"image.clean"}) {
		t.Errorf("%v", got)
	}
	if got := len(d.values("/v1/audit?q=vm.START&tenant=acme&limit=1000", adminToken, "seq")); got != more/2 {
		t.Errorf("%d entries of the tenant", got)
	}
}
