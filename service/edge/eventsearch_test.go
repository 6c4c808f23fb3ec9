package edge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/service/edge"
	"github.com/mainstay-infra/mainstay/service/edge/topicmap"
)

// change runs a statement behind the service's back.
func (c *control) change(query string, args ...any) {
	c.Helper()
	if err := c.service.DB().Update(c.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(c.Context(), query, args...)
		return err
	}); err != nil {
		c.Fatalf("%s: %v", query, err)
	}
}

// skipTo makes the next event get a number. So a few events lie in many blocks.
func (c *control) skipTo(seq int64) {
	c.Helper()
	c.change("UPDATE counters SET value = ? WHERE name = 'event'", seq-1)
}

// sent is an event that a test has sent.
type sent struct{ ID, Site, Org, Topic string }

// sendTopics sends events of one site in one batch.
func (c *control) sendTopics(token, site, org string, topics ...string) (all []sent) {
	c.Helper()
	var events []any
	for i, topic := range topics {
		e := sent{fmt.Sprintf("%s-%d-%d", site, time.Now().UnixNano(), i), site, org, topic}
		all = append(all, e)
		events = append(events, object{"event_id": e.ID, "site_id": site, "topic": topic, "payload": 1})
	}
	c.call("POST", "/events/batch", token, object{"events": events}).Want(202)
	return all
}

// found are the ids of the events that a search finds, on all of its pages.
func (c *control) found(path, token string) (ids []string) {
	c.Helper()
	for _, raw := range c.all(path, token) {
		var e struct {
			ID string `json:"event_id"`
		}
		if err := json.Unmarshal(raw, &e); err != nil {
			c.Fatal(err)
		}
		ids = append(ids, e.ID)
	}
	return ids
}

// like reports whether a topic matches a pattern.
func like(pattern, topic string) bool {
	parts := strings.Split(pattern, "*")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("(?s)^" + strings.Join(parts, ".*") + "$").MatchString(topic)
}

func lowerASCII(s string) string {
	return regexp.MustCompile("[A-Z]+").ReplaceAllStringFunc(s, strings.ToLower)
}

// A search finds what a reader of all events finds, in the same order, however the events lie in the
// blocks of the topic map, and also while older events are not described yet.
func TestASearchFindsExactlyTheEventsThatMatch(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		a, b := c.org("a"), c.org("b")
		type sender struct{ site, token, org, viewer string }
		var senders []sender
		for i, o := range []struct{ id, enrollment, viewer string }{
			{"", enrollmentToken, viewerToken}, {a.Id, a.EnrollmentToken, a.ViewerToken},
			{b.Id, b.EnrollmentToken, b.ViewerToken}, {a.Id, a.EnrollmentToken, a.ViewerToken},
		} {
			site, token := c.site(fmt.Sprint("site-", i), o.enrollment)
			senders = append(senders, sender{site, token, o.id, o.viewer})
		}
		topics := []string{"common", "Common", "temp.1", "temp.2", "alarm%_x", `back\slash`, "öfen/Ä", "a'b\"c"}
		rnd := rand.New(rand.NewPCG(1, 2))
		var all []sent
		for i, seq := range []int64{5, 8100, 8180, 20_000, 24_550, 60_000, 65_440, 65_520} {
			c.skipTo(seq)
			for range 3 {
				from := senders[rnd.IntN(len(senders))]
				var batch []string
				for range 1 + rnd.IntN(25) {
					topic := topics[min(rnd.IntN(len(topics)), rnd.IntN(len(topics)))]
					if topic == "temp.2" && i%3 > 0 {
						topic = "common"
					}
					batch = append(batch, topic)
				}
				all = append(all, c.sendTopics(from.token, from.site, from.org, batch...)...)
			}
		}
		slices.Reverse(all)

		compare := func(state string) {
			c.Helper()
			for _, who := range senders[:3] {
				for _, q := range []struct{ topic, text, site string }{
					{"nothing", "", ""}, {"*nothing*", "", ""}, {"common", "", ""}, {"", "COMMON", ""}, {"temp.*", "", ""},
					{"temp.2", "", ""}, {"*", "", ""}, {"*a*a*a*a*", "", ""}, {"alarm%_*", "", ""}, {`*\*`, "", ""},
					{"öfen/*", "", ""}, {"", "%_", ""}, {"", `\`, ""}, {"", "'b\"", ""}, {"temp.*", "2", ""},
					{"common", "", who.site}, {"temp.2", "", who.site}, {"nothing", "", who.site}, {"", "O", who.site},
					{"", "Ä", ""}, {"", "ä", ""}, {"", "öFEN", ""}, {"", "ÖFEN", ""},
				} {
					values := url.Values{"limit": {"29"}}
					var want []string
					for key, value := range map[string]string{"topic": q.topic, "q": q.text, "site_id": q.site} {
						if value != "" {
							values.Set(key, value)
						}
					}
					for _, e := range all {
						if (q.topic == "" || like(q.topic, e.Topic)) && (q.site == "" || e.Site == q.site) &&
							strings.Contains(lowerASCII(e.Topic), lowerASCII(q.text)) &&
							(who.org == "" || who.org == e.Org) {
							want = append(want, e.ID)
						}
					}
					if got := c.found("/events?"+values.Encode(), who.viewer); !slices.Equal(got, want) {
						c.Errorf("%s: %+v for org %q: %d events, want %d", state, q, who.org, len(got), len(want))
					}
				}
			}
		}
		compare("described when they came")
		c.change("DELETE FROM event_topics")
		c.change("UPDATE counters SET value = 9 WHERE name = 'topics'")
		compare("not described")
		for i := 0; ; i++ {
			more, err := topicmap.Fill(c.Context(), c.service.DB())
			if err != nil {
				c.Fatal(err)
			}
			if i == 2 {
				compare("half described")
			}
			if !more {
				break
			}
		}
		compare("described later")
		c.skipTo(66_000)
		all = append(c.sendTopics(senders[0].token, senders[0].site, "", "common", "after"), all...)
		all[0], all[1] = all[1], all[0]
		compare("continued")
	})
}

// Both engines ignore the case of the letters that the contract names, and of no others.
func TestSearchesOfWhatHappenedIgnoreOnlyTheCaseOfASCIILetters(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.site("plant", enrollmentToken)
		names := []string{"t/CAFÉ", "t/café", "t/Σ", "t/σ", "t/ΟΔΟΣ", "t/οδος", "t/ẞ", "t/ß", "t/İI", "t/ıi"}
		c.sendTopics(agent, site, "", names...)
		c.letters("", "r1", site, 0, len(names), func(i int) string { return names[i] })
		for _, name := range names {
			body := artifact("9")
			body["name"], body["targets"] = name, object{"labels": object{"a": "b"}}
			c.call("POST", "/ota/campaigns", adminToken, body).Want(201)
		}
		for q, want := range map[string][]string{
			"CAFÉ": {"t/CAFÉ"}, "T/cafÉ": {"t/CAFÉ"}, "É": {"t/CAFÉ"}, "é": {"t/café"}, "T/caf": {"t/CAFÉ", "t/café"},
			"Σ": {"t/Σ", "t/ΟΔΟΣ"}, "σ": {"t/σ"}, "ς": {"t/οδος"}, "T/ΟΔΟΣ": {"t/ΟΔΟΣ"}, "οδοσ": {},
			"ẞ": {"t/ẞ"}, "ß": {"t/ß"}, "SS": {}, "İ": {"t/İI"}, "İi": {"t/İI"}, "ıI": {"t/ıi"}, "T/I": {},
		} {
			slices.Sort(want)
			for _, path := range []string{"/events?q=", "/deadletters?q=", "/audit?action=campaign.create&q="} {
				got := []string{}
				for _, found := range c.all(path+url.QueryEscape(q), viewerToken) {
					var row struct {
						Topic, Message string
						Event          struct{ Topic string }
					}
					if err := json.Unmarshal(found, &row); err != nil {
						c.Fatal(err)
					}
					name := strings.TrimSuffix(strings.TrimPrefix(row.Message, "campaign "), " drafted")
					got = append(got, row.Topic+row.Event.Topic+name)
				}
				if slices.Sort(got); !slices.Equal(got, want) {
					c.Errorf("%s%s: %q, want %q", path, q, got, want)
				}
			}
		}
	})
}

func TestEventsWithATopicEachAreStillFound(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.site("plant", enrollmentToken)
		var all []sent
		for i := range 3 {
			var topics []string
			for k := range 1000 {
				topics = append(topics, fmt.Sprintf("order.%d", i*1000+k))
			}
			all = append(all, c.sendTopics(agent, site, "", topics...)...)
		}
		for _, n := range []int{0, 1500, 2047, 2048, 2500, 2999} {
			if got := c.found(fmt.Sprintf("/events?topic=order.%d", n), viewerToken); len(got) != 1 || got[0] != all[n].ID {
				c.Errorf("order.%d: %v", n, got)
			}
		}
		if got := c.found("/events?limit=1000&topic=order.*", viewerToken); len(got) != 3000 {
			c.Errorf("%d events", len(got))
		}
		var rows int
		if err := c.service.DB().Get(c.Context(), &rows, "SELECT count(*) FROM event_topics"); err != nil {
			c.Fatal(err)
		}
		if rows > topicmap.MaxTopics+1 {
			c.Errorf("%d rows describe one block", rows)
		}
	})
}

func TestTheTopicMapForgetsEventsThatWereDeleted(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.site("plant", enrollmentToken)
		c.sendTopics(agent, site, "", "old")
		c.skipTo(20_000)
		c.ahead(8 * 24 * time.Hour)
		c.sendTopics(agent, site, "", "new")
		c.maintain()
		var topics []string
		if err := c.service.DB().Select(c.Context(), &topics, "SELECT topic FROM event_topics"); err != nil {
			c.Fatal(err)
		}
		if !slices.Equal(topics, []string{"new"}) {
			c.Errorf("%v", topics)
		}
	})
}

func TestHostileSearchesAreRefusedOrFindNothing(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.site("plant", enrollmentToken)
		c.sendTopics(agent, site, "", strings.Repeat("a", 256))
		for query, field := range map[string]string{
			"q=" + strings.Repeat("x", 129):       "q",
			"q=":                                  "q",
			"q=a%00b":                             "q",
			"q=%1b":                               "q",
			"topic=a%00b":                         "topic",
			"topic=" + strings.Repeat("x", 257):   "topic",
			"cursor=" + strings.Repeat("x", 5000): "cursor",
			"cursor=WyJkZXZpY2VzIiwiaWQiLCJhIiwiYSJd": "cursor",
			"cursor=MQ": "cursor",
		} {
			c.call("GET", "/events?"+query, viewerToken, nil).Refused(400, "invalid", field)
		}
		for _, query := range []string{
			"topic=" + strings.Repeat("*a", 120) + "*b", "q=" + url.QueryEscape("' OR 1=1 --"), "q=%25", "q=_",
			"q=" + url.QueryEscape(`\`), "topic=%F0%9D%92%B3",
		} {
			if got := c.found("/events?"+query, viewerToken); len(got) != 0 {
				c.Errorf("%s: %v", query, got)
			}
		}
		if got := c.found("/events?topic="+strings.Repeat("*a", 120)+"*", viewerToken); len(got) != 1 {
			c.Errorf("%v", got)
		}
	})
}

// plans is a reader that also asks the database how it will read.
type plans struct {
	*testing.T
	*db.DB
	seen []string
}

func (p *plans) explain(query string, args []any) {
	prefix := "EXPLAIN QUERY PLAN "
	if p.Engine() == db.Postgres {
		prefix = "EXPLAIN "
		var lines []string
		if err := p.DB.Select(p.Context(), &lines, prefix+query, args...); err != nil {
			p.Fatal(err)
		}
		p.seen = append(p.seen, query+"\n"+strings.Join(lines, "\n"))
		return
	}
	var rows []struct {
		ID      int    `db:"id"`
		Parent  int    `db:"parent"`
		NotUsed int    `db:"notused"`
		Detail  string `db:"detail"`
	}
	if err := p.DB.Select(p.Context(), &rows, prefix+query, args...); err != nil {
		p.Fatal(err)
	}
	for _, r := range rows {
		query += "\n" + r.Detail
	}
	p.seen = append(p.seen, query)
}

func (p *plans) Get(ctx context.Context, dest any, query string, args ...any) error {
	p.explain(query, args)
	return p.DB.Get(ctx, dest, query, args...)
}

func (p *plans) Select(ctx context.Context, dest any, query string, args ...any) error {
	p.explain(query, args)
	return p.DB.Select(ctx, dest, query, args...)
}

// wholeTable finds plans that read all rows of a table, or sort more than a page.
var wholeTable = regexp.MustCompile(
	`(?m)Seq Scan on (\w+)|^SCAN (events|event_\w+|sites|devices|deadletters|t|whole)( USING INDEX \w+)?$|USE TEMP B-TREE FOR ORDER BY|USE TEMP B-TREE FOR LAST`,
)

// planned runs a test on both engines. On PostgreSQL an index is used wherever one can be, since the
// tables of tests are so small that it would read them whole.
func planned(t *testing.T, test func(c *control, p *plans)) {
	t.Helper()
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		c := start(t)
		test(c, &plans{T: t, DB: c.service.DB()})
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		address := dbtest.PostgresURL(t) + "&options=-c%20enable_seqscan%3Doff%20-c%20enable_sort%3Doff"
		c := start(t, func(cfg *edge.Config) { cfg.Database = address })
		test(c, &plans{T: t, DB: c.service.DB()})
	})
}

func TestNoListOfEventsReadsTheWholeTable(t *testing.T) {
	t.Parallel()
	planned(t, func(c *control, p *plans) {
		org := c.org("a")
		site, agent := c.site("plant", org.EnrollmentToken)
		c.sendTopics(agent, site, org.Id, "common", "rare")
		for range 20 {
			c.sendTopics(agent, site, org.Id, "common")
		}
		for _, described := range []int64{0, 1} {
			c.change("UPDATE counters SET value = ? WHERE name = 'topics'", described)
			for _, who := range []string{"", org.Id} {
				for _, f := range []edge.EventFilter{
					{}, {SiteID: site}, {Minutes: 5}, {Minutes: 5, SiteID: site}, {Topic: "nothing"}, {Topic: "rare"},
					{Topic: "common"}, {Topic: "*o*"}, {Text: "O"}, {Topic: "common", SiteID: site}, {Topic: "common", Minutes: 5},
					{Topic: "nothing", SiteID: site, Minutes: 5},
				} {
					f.Limit, f.Before = 101, 1000
					p.seen = nil
					if _, _, err := c.service.EventsFrom(edge.As(c.Context(), who), p, f); err != nil {
						c.Fatal(err)
					}
					for _, plan := range p.seen {
						if strings.Contains(plan, "UNION ALL") { // some rows of a few topics are sorted together
							plan = strings.Replace(plan, "USE TEMP B-TREE FOR ORDER BY", "", 1)
						}
						if strings.Contains(plan, "RECURSIVE") && p.Engine() == db.SQLite &&
							!strings.Contains(plan, "event_topics_by_topic (org_id=? AND topic>?)") {
							c.Errorf("topics are not found one after the other:\n%s", plan)
						}
						if wholeTable.MatchString(plan) && !strings.Contains(plan, "FROM counters") {
							c.Errorf("%+v for org %q:\n%s", f, who, plan)
						}
					}
				}
			}
		}
	})
}
