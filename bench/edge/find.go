package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// findPaths are the lists and searches, and a POST with its body. SITE is a site that the caller
// sees, and SINCE was two days ago.
var findPaths = []string{
	"/sites", "/sites?sort=name", "/sites?sort=-last_seen_at", "/sites?sort=status", "/sites?status=revoked",
	"/sites?q=city+42", "/sites?q=nothing", "/sites?q=nothing&sort=name",
	"/devices", "/devices?sort=name", "/devices?sort=-last_seen_at", "/devices?q=pump", "/devices?q=pump+4711",
	"/devices?q=hall%3D3&sort=name", "/devices?q=nothing", "/devices?q=nothing&sort=-last_seen_at",
	"/devices?site_id=SITE", "/devices?site_id=SITE&q=nothing",
	"/devices?ota_state=failed&ota_state=timed_out", "/devices?ota_state=failed&sort=-last_seen_at",
	"/devices?ota_state=succeeded&sort=name", "/devices?ota_state=succeeded&q=nothing", "/devices?ota_state=rejected&q=nothing",
	"/routes", "/routes?sort=-updated_at", "/routes?status=failing", "/routes?status=disabled&sort=name", "/routes?q=hook+4711",
	"/routes?q=nothing", "/routes?q=nothing&sort=-updated_at",
	"/deployments", "/deployments?sort=-name", "/deployments?status=failed&status=denied", "/deployments?status=unknown",
	"/deployments?status=running", "/deployments?status=running&q=nothing&sort=name", "/deployments?status=rolled_back",
	"/deployments?q=camera-4711", "/deployments?q=city+42", "/deployments?q=nothing", "/deployments?q=nothing&sort=name",
	"/deployments?site_id=SITE&q=nothing",
	"/ota/campaigns", "/ota/campaigns?sort=name", "/ota/campaigns?paused=true", "/ota/campaigns?q=release+471",
	"/ota/campaigns?q=nothing", "/overview",
	`POST /ota/campaigns/count-targets {"labels":{"hall":"3"}}`, `POST /ota/campaigns/count-targets {"labels":{"hall":"none"}}`,
	"/history", "/history?since=SINCE&points=200", "/history?since=SINCE&points=200&route_id=route-000001",
	"/events", "/events?minutes=60", "/events?minutes=8000", "/events?topic=line/7/temperature",
	"/events?topic=line/7/*", "/events?topic=alarm/seldom", "/events?topic=alarm/once", "/events?topic=*seldom*",
	"/events?topic=nothing", "/events?topic=*nothing*", "/events?topic=*a*a*a*a*", "/events?q=nothing", "/events?q=SELDOM",
	"/events?site_id=SITE", "/events?site_id=SITE&topic=line/7/temperature", "/events?site_id=SITE&topic=nothing",
	"/events?topic=nothing&minutes=60", "/events?topic=line/7/temperature&limit=1000",
	"/deadletters", "/deadletters?route_id=route-7", "/deadletters?site_id=SITE", "/deadletters?reason=permanent",
	"/deadletters?route_id=route-7&reason=permanent", "/deadletters?topic=nothing", "/deadletters?q=nothing",
	"/deadletters?q=503", "/deadletters?route_id=route-7&q=nothing", "/deadletters?site_id=SITE&q=nothing",
	"/audit", "/audit?actor=operator", "/audit?action=site.enroll", "/audit?actor=operator&action=nothing",
	"/audit?result=denied", "/audit?actor=operator&result=ok&site_id=SITE", "/audit?q=registered", "/audit?q=nothing",
	"/audit?q=nothing&action=site.enroll", "/audit?without_action=device.register",
	"/audit?to=2020-01-01T00:00:00Z", "/audit?from=2040-01-01T00:00:00Z",
}

// findSection measures lists and searches at a size, on both engines.
func findSection(ctx context.Context, o options, r *report) error {
	r.section("8. Lists and searches")
	for engine := range strings.SplitSeq(o.engines, ",") {
		if err := measureFind(ctx, o, r, engine); err != nil {
			return fmt.Errorf("%s: %w", engine, err)
		}
	}
	return nil
}

func measureFind(ctx context.Context, o options, r *report, engine string) (err error) {
	dir, err := os.MkdirTemp(o.dir, "find-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// The secrets of the routes were never sealed.
	flags, address := []string{
		"--heartbeat-interval=1h", "--retention-size=1TiB", "--pki=false", "--replace-lost-keys",
	}, ""
	switch engine {
	case "sqlite":
	case "postgres":
		server, err := startPostgres(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, server.stop()) }()
		address = server.url
		flags = append(flags, "--database="+address)
	default:
		return errors.New("there are the engines sqlite and postgres")
	}
	orgs, filled, err := fillStopped(ctx, o, dir, address)
	if err != nil {
		return err
	}
	p, err := startProduct(ctx, o, dir, flags...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	begin := time.Now()
	if err := p.prepared(ctx, o.sizes); err != nil {
		return err
	}
	n := o.sizes
	r.say("### %s\n", engine)
	r.say(
		"%d sites, %d devices, %d routes, %d deployments, %d campaigns, %d events with %d topics, %d dead letters and %d audit entries, half of them without an org, "+
			"the others of %d orgs; filled in %s. The service took %s to prepare them for searches, as after an upgrade. "+
			"%d requests each, one after the other. + means that the answer links to more.\n",
		n.sites, n.devices, n.routes, n.deployments, n.campaigns, n.events, n.topics, n.letters, n.audit, n.orgs, filled.Round(time.Second),
		time.Since(begin).Round(time.Second), o.requests,
	)
	var rows [][]string
	slowest := time.Duration(0)
	for _, path := range findPaths {
		if !o.paths.MatchString(path) {
			continue
		}
		row := []string{"`" + path + "`"}
		for i, token := range []string{adminToken, orgs[0].viewer} {
			// Site 0 is of no org, and site 1 of the first.
			given := strings.NewReplacer(
				"SITE", fmt.Sprintf("0199d3b0-7e8a-7abc-9def-%012d", i),
				"SINCE", begin.Add(-historySpan).UTC().Format(time.RFC3339),
			).Replace(path)
			items, times, err := p.ask(ctx, given, token, o.requests)
			if err != nil {
				return err
			}
			slowest = max(slowest, times[len(times)/2])
			row = append(row, items, ms(times[len(times)/2]), ms(times[len(times)-1]))
		}
		rows = append(rows, row)
	}
	r.table([]string{"list", "items, all", "median", "worst", "items, one org", "median", "worst"}, rows)
	r.say("The slowest median is %s. Aim: at most 50 ms.\n", ms(slowest))
	return nil
}

// fillStopped fills the database of a server that does not run yet.
func fillStopped(ctx context.Context, o options, dir, address string) (_ []org, took time.Duration, err error) {
	progress("find: filling")
	begin := time.Now()
	d, err := openMigrated(ctx, dir, address)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	orgs, err := fillFleet(ctx, d, o.sizes)
	return orgs, time.Since(begin), err
}

// prepared waits until the product has prepared for searches what it found in the database: until
// the last device is found, and a search for no topic of the events ends at once.
func (p *process) prepared(ctx context.Context, n fleetSizes) error {
	for ctx.Err() == nil {
		devices, _, err := p.ask(ctx, fmt.Sprintf("/devices?q=device-%06d", n.devices), adminToken, 1)
		if err != nil {
			return err
		}
		events, _, err := p.ask(ctx, "/events?topic=nothing", adminToken, 1)
		if err != nil {
			return err
		}
		if devices == "1" && events == "0" {
			return nil
		}
		time.Sleep(time.Second)
	}
	return ctx.Err()
}

// ask requests a list, or what "POST PATH BODY" says, and returns how many items it has, with a + if
// there are more, and the sorted times of the answers.
func (p *process) ask(
	ctx context.Context, path, token string, n int,
) (items string, times []time.Duration, err error) {
	const unmeasured = 3 // the first ones fill caches
	method, body := "GET", ""
	if rest, is := strings.CutPrefix(path, "POST "); is {
		method = "POST"
		path, body, _ = strings.Cut(rest, " ")
	}
	for i := range n + unmeasured {
		req, err := http.NewRequestWithContext(ctx, method, "http://"+p.addr+"/api/v1"+path, strings.NewReader(body))
		if err != nil {
			return "", nil, err
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+token)
		begin := time.Now()
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return "", nil, err
		}
		answer, err := io.ReadAll(res.Body)
		if err = errors.Join(err, res.Body.Close()); err != nil {
			return "", nil, err
		}
		took := time.Since(begin)
		if res.StatusCode != http.StatusOK {
			return "", nil, fmt.Errorf("%s %s: %s: %.300s", method, path, res.Status, answer)
		}
		if i < unmeasured {
			continue
		}
		times = append(times, took)
		items = strconv.Itoa(strings.Count(string(answer), `"org_id":`))
		if res.Header.Get("Link") != "" {
			items += "+"
		}
	}
	slices.Sort(times)
	return items, times, nil
}

// beforeSection compares how many events this version and an older one accept, in turns. Each
// connection sends events of a site and topic of its own.
func beforeSection(ctx context.Context, o options, r *report) error {
	if o.before == "" {
		return errors.New("-before names no program to compare with")
	}
	const connections = 64
	r.section("9. Ingest before and after")
	programs := []string{o.before, o.product}
	var rates, cpu [2][]float64
	for round := range o.rounds {
		for k := range programs {
			which := (k + round) % 2 // nobody always goes first
			progress("before: round %d of %d, %s", round+1, o.rounds, filepath.Base(programs[which]))
			m, err := o.with(programs[which]).ingestOfMany(ctx, connections)
			if err != nil {
				return err
			}
			rates[which] = append(rates[which], m.rate())
			cpu[which] = append(cpu[which], float64(m.perRequest())/1e3)
		}
	}
	var rows [][]string
	var ratios []float64
	for round := range o.rounds {
		ratios = append(ratios, cpu[1][round]/cpu[0][round])
		rows = append(rows, []string{
			strconv.Itoa(round + 1), fmt.Sprintf("%.0f", rates[0][round]), fmt.Sprintf("%.0f", rates[1][round]),
			ratio(rates[1][round], rates[0][round]), fmt.Sprintf("%.1f us", cpu[0][round]),
			fmt.Sprintf("%.1f us", cpu[1][round]), ratio(cpu[1][round], cpu[0][round]),
		})
	}
	r.say("%d connections, each with a site and a topic of its own; %d rounds of %s in turns.\n", connections, o.rounds, o.duration)
	r.table([]string{"round", "before, events/s", "after", "ratio", "before, CPU an event", "after", "ratio"}, rows)
	for i := range rates {
		slices.Sort(rates[i])
		slices.Sort(cpu[i])
	}
	slices.Sort(ratios)
	middle := o.rounds / 2
	r.say(
		"Medians: %.0f and %.0f events/s, which is %s; %.1f and %.1f us of processor time an event, which is %.3f "+
			"(median of the rounds' ratios %.3f). Aim: at most 3 %% slower.\n",
		rates[0][middle], rates[1][middle], ratio(rates[1][middle], rates[0][middle]), cpu[0][middle], cpu[1][middle],
		cpu[1][middle]/cpu[0][middle], ratios[middle],
	)
	return nil
}

// with returns the options for another program.
func (o options) with(product string) options {
	o.product = product
	return o
}

// ingestOfMany measures a new server under events of many sites and topics.
func (o options) ingestOfMany(ctx context.Context, connections int) (_ measurement, err error) {
	dir, err := os.MkdirTemp(o.dir, "before-")
	if err != nil {
		return measurement{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	p, err := startProduct(ctx, o, dir)
	if err != nil {
		return measurement{}, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	sites := make([]site, connections)
	for i := range sites {
		if sites[i], err = p.enroll(ctx, fmt.Sprintf("site-%d", i)); err != nil {
			return measurement{}, err
		}
	}
	var used time.Duration
	l := load{addr: p.addr, connections: connections, want: 202, warmup: o.warmup, duration: o.duration,
		started: func() { used = p.cpu() },
		request: func(i int) request {
			body := fmt.Sprintf(`{"site_id":%q,"topic":"line/%d/temperature","payload":%s}`, sites[i].id, i, payload())
			return post(p.addr, eventsPath, sites[i].token, body)
		}}
	res, err := l.run(ctx)
	return measurement{res, p.cpu() - used}, err
}
