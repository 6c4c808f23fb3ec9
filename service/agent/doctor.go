package agent

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	agentapi "github.com/mainstay-infra/mainstay/api/agent"
	"github.com/mainstay-infra/mainstay/kit/config"
	"github.com/mainstay-infra/mainstay/kit/rest"
	"github.com/mainstay-infra/mainstay/service/agent/answer"
	"github.com/mainstay-infra/mainstay/service/agent/store"
)

// Verdict is the result of a check.
type Verdict string

// The verdicts.
const (
	Good    Verdict = "ok"
	Warning Verdict = "warning" // something does not work, or soon will not
	Problem Verdict = "problem" // the agent cannot do its work
)

// Check is one check with its result.
type Check struct {
	Name    string  `json:"name"`
	Verdict Verdict `json:"verdict"`
	Detail  string  `json:"detail"`
	// Next tells the operator what to do. It is empty if the verdict is Good.
	Next string `json:"next,omitempty"`
}

const (
	doctorTimeout = 10 * time.Second
	minFree       = 64 << 20 // bytes free on disk, in addition to the outbox
	expiryWarning = 14 * 24 * time.Hour
)

// Diagnose checks everything that the agent needs with these settings. It changes nothing, except
// that it creates the data folder. It works whether or not the agent is running.
func Diagnose(ctx context.Context, cfg Config, now func() time.Time) []Check {
	if cfg.Name == "" {
		cfg.Name, _ = os.Hostname() // if that fails, Validate reports it
	}
	checks := []Check{}
	add := func(name string, v Verdict, next, detail string, args ...any) {
		if v == Good {
			next = ""
		}
		checks = append(checks, Check{Name: name, Verdict: v, Detail: fmt.Sprintf(detail, args...), Next: next})
	}
	if err := cfg.Validate(); err != nil {
		add("settings", Problem, "set it by flag, by environment (AGENT_...) or in the file of --config", "%v", err)
		return checks
	}
	add("settings", Good, "", "fit together")
	if err := checkFolder(cfg.Data); err != nil {
		// The other checks would follow the link or wait for the pipe.
		add("data folder", Problem, "move it away; the agent makes what belongs there by itself", "%v", err)
		return checks
	}
	diagnoseFolder(cfg, add)
	diagnoseDatabase(cfg, add)
	diagnoseRunning(ctx, cfg, add)
	id := diagnoseIdentity(cfg, now(), add)
	diagnoseServer(ctx, cfg, id, now, add)
	diagnosePodman(ctx, cfg, add)
	diagnoseHook(cfg, add)
	return checks
}

type adder func(name string, v Verdict, next, detail string, args ...any)

func diagnoseFolder(cfg Config, add adder) {
	if err := os.MkdirAll(cfg.Data, 0o750); err != nil {
		add(
			"data folder", Problem,
			"choose another folder with --data, or make it as root and give it to the agent's user", "%v", err,
		)
		return
	}
	f, err := os.CreateTemp(cfg.Data, ".doctor-*")
	if err != nil {
		add("data folder", Problem, "make "+cfg.Data+" writable for the agent's user", "%v", err)
		return
	}
	_ = f.Close() // nothing was written
	if err := os.Remove(f.Name()); err != nil {
		add("data folder", Warning, "look at the mode of "+cfg.Data, "%v", err)
	} else {
		add("data folder", Good, "", "%s can be written", cfg.Data)
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(cfg.Data, &fs); err != nil {
		add("disk space", Warning, "", "cannot be told: %v", err)
		return
	}
	// The types of its fields differ between systems. No disk has 8 EiB.
	free := int64(fs.Bavail) * int64(fs.Bsize) //nolint:gosec,unconvert // see above
	taken := int64(0)
	if info, err := os.Stat(filepath.Join(cfg.Data, "agent.db")); err == nil {
		taken = info.Size()
	}
	need := max(0, int64(cfg.OutboxMaxSize)-taken) + minFree
	switch {
	case free < minFree:
		add("disk space", Problem, "make room; events are refused when the disk is full", "%s free", mebibytes(free))
	case free < need:
		add(
			"disk space", Warning, "make room, or lower --outbox-max-size",
			"%s free, but the outbox may grow to %s", mebibytes(free), cfg.OutboxMaxSize,
		)
	default:
		add("disk space", Good, "", "%s free", mebibytes(free))
	}
}

func diagnoseDatabase(cfg Config, add adder) {
	aside, missing := store.SetAside(cfg.Data), store.Missing(cfg.Data)
	if len(aside) > 0 {
		add(
			"database", Warning, "rescue what it holds as the runbook says, or remove it",
			"a damaged one was set aside: %s", strings.Join(aside, ", "),
		)
	}
	if len(missing) > 0 {
		add(
			"database", Warning, "find out what removed it, then remove the files that record it",
			"it was missing or empty at a start, and what was not sent is lost: %s", strings.Join(missing, ", "),
		)
	}
	if len(aside)+len(missing) == 0 {
		add("database", Good, "", "none was found damaged or missing")
	}
}

// diagnoseRunning adds the alerts of the running agent.
func diagnoseRunning(ctx context.Context, cfg Config, add adder) {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(cfg.Data, agentapi.Socket))
	}}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	client, err := agentapi.NewClient(
		"http://localhost"+agentapi.BasePath,
		rest.WithHTTPClient(&http.Client{Transport: transport}),
	)
	if err != nil {
		return // the URL is always valid
	}
	s, err := answer.Decode[agentapi.Status](answer.Read(client.GetStatus(ctx)))
	switch {
	case err != nil:
		add("agent", Warning, "start it, if it is not meant to be stopped", "no agent answers at its socket: %v", err)
	case len(s.Alerts) == 0:
		add("agent", Good, "", "runs, and is %s", s.Link.State)
	default:
		for _, alert := range s.Alerts {
			if alert.Code != "database_damaged" && alert.Code != "database_missing" { // an earlier check has reported it
				add("agent", Problem, "see `mainstay agent status` and the runbook", "%s", alert.Message)
			}
		}
	}
}

func mebibytes(n int64) string { return (config.Bytes(n>>20) << 20).String() }

func diagnoseIdentity(cfg Config, now time.Time, add adder) *Identity {
	k, err := openKeeper(cfg.Data)
	if err != nil {
		add("identity", Problem, "restore identity.json from a backup, or remove it to enroll a new site", "%v", err)
		return nil
	}
	id := k.get()
	switch {
	case id == nil && cfg.EnrollmentToken == "":
		add(
			"identity", Problem, "make a token on the control plane and set AGENT_ENROLLMENT_TOKEN",
			"the site is not enrolled, and there is no enrollment token",
		)
	case id == nil:
		add("identity", Good, "", "not enrolled yet; there is an enrollment token")
	case id.Refused != "":
		add(
			"identity", Problem,
			"it is asked every hour whether it still is; to make a new site, start the agent with --enroll-again and an enrollment token",
			"site %s was revoked: %s", id.SiteID, id.Refused,
		)
	case id.certificate == nil:
		add("identity", Good, "", "site %s, without a certificate", id.SiteID)
	case now.After(id.notAfter()):
		add(
			"identity", Warning,
			"have the agent reach the control plane within 30 days of that date; later, enroll again",
			"site %s; its certificate ended %s", id.SiteID, id.notAfter().Format(time.RFC3339),
		)
	case id.notAfter().Sub(now) < expiryWarning:
		add(
			"identity", Warning, "have the agent reach the control plane; it renews the certificate by itself",
			"site %s; its certificate ends %s", id.SiteID, id.notAfter().Format(time.RFC3339),
		)
	default:
		add("identity", Good, "", "site %s, certificate until %s", id.SiteID, id.notAfter().Format(time.RFC3339))
	}
	return id
}

func diagnoseServer(ctx context.Context, cfg Config, id *Identity, now func() time.Time, add adder) {
	a := &Agent{cfg: cfg, now: now, link: newLink(now)}
	transport, err := a.newTransport(id)
	if err != nil {
		add("control plane", Problem, "mend --ca", "%v", err)
		return
	}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	server, err := cfg.serverURL()
	if err != nil {
		return // Validate has checked it
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.String()+"/healthz", nil)
	if err != nil {
		return // the URL was parsed
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		add(
			"control plane", Problem, "is --server right, the network up, and the control plane running?", "%s: %s",
			cfg.Server, explain(err),
		)
		return
	}
	text, readErr := io.ReadAll(io.LimitReader(res.Body, 1<<10))
	_ = res.Body.Close()
	switch {
	case readErr == nil && res.StatusCode == http.StatusOK && string(text) != "ok\n":
		add(
			"control plane", Problem,
			"is --server the edge control plane, or is a proxy, a login page or a maintenance page in between?",
			"%s/healthz answers, but not as the control plane does", cfg.Server,
		)
	case readErr != nil || res.StatusCode != http.StatusOK:
		add(
			"control plane", Problem, "is --server the edge control plane, or is a proxy in between?",
			"%s/healthz answers %s", cfg.Server, res.Status,
		)
	default:
		add("control plane", Good, "", "%s answers", cfg.Server)
	}
	at, err := http.ParseTime(res.Header.Get("Date"))
	if err != nil {
		return
	}
	if skew := at.Sub(now()).Round(time.Second); skew.Abs() > notableSkew {
		add("clock", Warning, "set this machine's clock; does NTP run?", "the control plane is %s ahead", skew)
	} else {
		add("clock", Good, "", "agrees with the control plane's")
	}
}

func diagnosePodman(ctx context.Context, cfg Config, add adder) {
	if cfg.PodmanSocket == "" {
		add("podman", Good, "", "switched off; the site runs no deployments")
		return
	}
	dialer := net.Dialer{Timeout: doctorTimeout}
	conn, err := dialer.DialContext(ctx, "unix", cfg.PodmanSocket)
	if err != nil {
		add(
			"podman", Warning,
			"apt-get install podman, then systemctl enable --now podman.socket; without deployments, set --podman-socket ''",
			"%v", err,
		)
		return
	}
	_ = conn.Close() // nothing was written
	add("podman", Good, "", "%s can be reached", cfg.PodmanSocket)
}

func diagnoseHook(cfg Config, add adder) {
	if cfg.OTAHook == "" {
		add("update hook", Good, "", "none; updates of devices are rejected")
		return
	}
	info, err := os.Stat(cfg.OTAHook)
	switch {
	case err != nil:
		add("update hook", Problem, "put the program there, or change --ota-hook", "%v", err)
	case info.IsDir() || info.Mode()&0o111 == 0:
		add("update hook", Problem, "chmod +x "+cfg.OTAHook, "%s is not executable", cfg.OTAHook)
	default:
		add("update hook", Good, "", "%s is executable", cfg.OTAHook)
	}
}
