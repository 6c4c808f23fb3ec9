package edge_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/service/edge"
)

// letters stores dead letters of a route: number i is of the second i, and has the topic that topic
// says.
func (c *control) letters(org, route, site string, from, to int, topic func(i int) string) {
	c.Helper()
	if err := c.service.DB().Update(c.Context(), func(tx *db.Tx) error {
		for i := from; i < to; i++ {
			if _, err := tx.Exec(
				c.Context(), `INSERT INTO deadletters (id, org_id, route_id, event_seq, event_org_id, event_id, site_id,
				topic, payload, headers, event_time, received_at, attempts, last_status, last_error, reason, status, created_at,
				replay_count) VALUES (?, ?, ?, ?, ?, ?, ?, ?, '1', '{}', 1, 1, 1, 500, ?, ?, 'dead', ?, 0)`,
				fmt.Sprintf("%s-%06d", route, i), org, route, i, org, fmt.Sprint("event", i), site, topic(i),
				fmt.Sprint("Error 100% of ", i%10), []string{"exhausted", "permanent"}[i%2], 2_000_000_000_000_000+int64(i/2)*1_000_000,
			); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		c.Fatal(err)
	}
}

func TestDeadLettersAreFoundByTheirTexts(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		org := c.org("a")
		site, _ := c.site("one", enrollmentToken)
		topic := func(i int) string { return fmt.Sprintf("Temp.%d_x", i%5) }
		c.letters("", "r1", site, 0, 40, topic)
		c.letters(org.Id, "r2", site, 40, 60, topic)
		for _, tt := range []struct {
			query, token string
			want         int
		}{
			{"", viewerToken, 60}, {"", org.ViewerToken, 20}, {"topic=Temp.3_x", viewerToken, 12}, {"topic=temp.*", viewerToken, 0},
			{"topic=Temp.*", org.ViewerToken, 20}, {"q=TEMP.3_X", viewerToken, 12}, {"q=3_", org.ViewerToken, 4},
			{"q=100%25+of+7", viewerToken, 6}, {"q=event33", viewerToken, 1}, {"q=nothing", viewerToken, 0},
			{"q=%25", viewerToken, 60}, {"q=" + url.QueryEscape(`\`), viewerToken, 0}, {"q=" + url.QueryEscape("' OR 1=1"), viewerToken, 0},
			{"route_id=r2", viewerToken, 20}, {"route_id=r1", org.ViewerToken, 0}, {"route_id=r2", org.ViewerToken, 20},
			{"route_id=r1&q=event33", org.ViewerToken, 0}, {"site_id=" + site, org.ViewerToken, 20}, {"site_id=" + site, viewerToken, 60},
			{"reason=permanent", viewerToken, 30}, {"reason=permanent&route_id=r2&site_id=" + site, viewerToken, 10},
			{"route_id=nowhere", viewerToken, 0}, {"topic=*a*a*a*a*", viewerToken, 0},
		} {
			if got := len(c.all("/deadletters?limit=7&"+tt.query, tt.token)); got != tt.want {
				c.Errorf("%s: %d dead letters, want %d", tt.query, got, tt.want)
			}
		}
		for query, field := range map[string]string{
			"q=" + strings.Repeat("x", 129): "q", "q=a%00": "q", "topic=%00": "topic", "q=": "q", "cursor=YQ": "cursor",
		} {
			c.call("GET", "/deadletters?"+query, viewerToken, nil).Refused(400, "invalid", field)
		}
	})
}

func TestASearchOfManyDeadLettersGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		c.letters("", "r1", "s", 0, 10_050, func(i int) string {
			if i == 3 || i == 10_001 {
				return "rare"
			}
			return "common"
		})
		first := c.call("GET", "/deadletters?topic=rare", viewerToken, nil).Want(200)
		if strings.Count(first.Body, `"topic":"rare"`) != 1 || first.Header.Get("Link") == "" {
			c.Errorf("the first page looks at more than it may, or does not say so: %s %s", first.Header.Get("Link"), first.Body)
		}
		if got := len(c.all("/deadletters?topic=rare", viewerToken)); got != 2 {
			c.Errorf("%d dead letters", got)
		}
	})
}

func TestNoListOfDeadLettersReadsTheWholeTable(t *testing.T) {
	t.Parallel()
	planned(t, func(c *control, p *plans) {
		c.letters("a", "r", "s", 0, 3, func(int) string { return "t" })
		for _, who := range []string{"", "a"} {
			for _, f := range []edge.DeadLetterFilter{
				{After: "3000000000000000 x"}, {SiteID: "s"}, {RouteID: "r"}, {Reason: "permanent"}, {Topic: "x"}, {Text: "x"}, {RouteID: "r", Text: "x"},
				{SiteID: "s", RouteID: "r"}, {After: "2000000000000000 x"}, {After: "2000000000000000 x", Text: "x"},
			} {
				f.Limit = 101
				p.seen = nil
				if _, err := c.service.DeadLettersFrom(edge.As(c.Context(), who), p, f); err != nil {
					c.Fatal(err)
				}
				for _, plan := range p.seen {
					found := strings.Replace(plan, "SCAN page", "", 1)
					if strings.Contains(plan, "CROSS JOIN") { // what was found is sorted again
						found = strings.Replace(found, "USE TEMP B-TREE FOR ORDER BY", "", 1)
						if !strings.Contains(plan, "COVERING INDEX deadletters_by") && !strings.Contains(plan, "Index Only Scan") {
							c.Errorf("%+v reads more than an index:\n%s", f, plan)
						}
					}
					if wholeTable.MatchString(found) {
						c.Errorf("%+v for org %q:\n%s", f, who, plan)
					}
				}
			}
		}
	})
}
