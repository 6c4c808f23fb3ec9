package agent

import (
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/config"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/text"
)

// EnvPrefix is the prefix of the agent's environment variables.
const EnvPrefix = "AGENT"

// Config holds the settings of the agent.
type Config struct {
	Server          string        `key:"server" help:"URL of the edge control plane."`
	EnrollmentToken string        `key:"enrollment-token" secret:"true" help:"Token that enrolls this site; needed until it is enrolled."`
	Name            string        `key:"name" help:"Name of the site. Default: the name of this machine."`
	Data            string        `key:"data" default:"/var/lib/mainstay-agent" help:"Folder for identity, database, twins and artifacts."`
	CA              string        `key:"ca" help:"Certificate file of authorities to trust besides the system's and the one that enrollment named."`
	AllowHTTP       bool          `key:"allow-http" help:"Speak plain HTTP to a server that is not on this machine. Anybody on the way can read the agent's token."`
	EnrollAgain     bool          `key:"enroll-again" help:"Enroll a new site when the control plane has revoked this one, or has not known it for ten minutes. What is kept goes to the new site."`
	Listen          string        `key:"listen" default:"127.0.0.1:8081" help:"Loopback address to serve the local API on, besides the socket; empty: the socket only."`
	OutboxMaxSize   config.Bytes  `key:"outbox-max-size" default:"256MiB" min:"1MiB" help:"How much room events may take until they are sent."`
	OutboxFull      string        `key:"outbox-full" default:"refuse" help:"What happens to events when there is no room: refuse (the new ones, with 507) or drop-oldest."`
	RetryMax        time.Duration `key:"retry-max" default:"5m" min:"1s" max:"1h" help:"Longest wait between two attempts to reach the control plane."`
	RetryAfterMax   time.Duration `key:"retry-after-max" default:"15m" min:"1s" max:"1h" help:"Longest wait that a server may ask for with Retry-After."`

	OTAHook            string        `key:"ota-hook" help:"Absolute path of the program that installs updates of devices. Without one, updates are rejected."`
	OTAMaxSize         config.Bytes  `key:"ota-max-size" default:"2GiB" min:"1KiB" help:"Largest artifact of an update."`
	OTAParallel        int           `key:"ota-parallel" default:"1" min:"1" max:"16" help:"Devices that are updated at once."`
	OTAHookTimeout     time.Duration `key:"ota-hook-timeout" default:"15m" min:"1s" max:"24h" help:"How long one call of the hook may take."`
	OTARebootWait      time.Duration `key:"ota-reboot-wait" default:"1m" min:"0s" max:"1h" help:"How long a device is given to reboot before it is verified, unless it is this machine."`
	OTADownloadTimeout time.Duration `key:"ota-download-timeout" default:"24h" min:"1m" max:"720h" help:"How long the download of an update may take in all."`

	PodmanSocket string `key:"podman-socket" default:"/run/podman/podman.sock" help:"Socket of Podman, which runs the site's deployments; empty: the site runs none."`

	AccessLog string `key:"access-log" default:"errors" help:"Local requests to log: all, errors or off."`
}

// The values of OutboxFull.
const (
	fullRefuse     = "refuse"
	fullDropOldest = "drop-oldest"
)

// Validate returns an error for the first invalid setting.
func (c Config) Validate() error {
	if _, err := c.serverURL(); err != nil {
		return err
	}
	if c.Name == "" || len(c.Name) > 128 {
		return fault.InvalidField("name", "must have 1 to 128 bytes")
	}
	if err := text.Check("name", c.Name); err != nil {
		return err
	}
	if c.Data == "" {
		return fault.InvalidField("data", "is required")
	}
	if c.OutboxFull != fullRefuse && c.OutboxFull != fullDropOldest {
		return fault.InvalidField("outbox-full", "must be %s or %s, not %q", fullRefuse, fullDropOldest, c.OutboxFull)
	}
	if c.OTAHook != "" && !filepath.IsAbs(c.OTAHook) {
		return fault.InvalidField(
			"ota-hook", "must be an absolute path, such as /usr/local/bin/update-device, not %q", c.OTAHook,
		)
	}
	if c.PodmanSocket != "" && !filepath.IsAbs(c.PodmanSocket) {
		return fault.InvalidField(
			"podman-socket", "must be an absolute path, such as /run/podman/podman.sock, not %q", c.PodmanSocket,
		)
	}
	if _, err := httpserve.ParseLogMode(c.AccessLog); err != nil {
		return err
	}
	if c.Listen == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return fault.InvalidField("listen", "must be host:port, for example 127.0.0.1:8081, not %q", c.Listen)
	}
	if !httpserve.Loopback(host) {
		return fault.InvalidField(
			"listen", "must be a loopback address, since the local API asks for no credentials; not %q", c.Listen,
		)
	}
	return nil
}

// checkHook returns an error if the hook's program cannot be run.
func (c Config) checkHook() error {
	if c.OTAHook == "" {
		return nil
	}
	info, err := os.Stat(c.OTAHook)
	switch {
	case err != nil:
		return fault.InvalidField(
			"ota-hook", "there is no program at %s (%v); put it there, or change the setting", c.OTAHook, err,
		)
	case info.IsDir() || info.Mode()&0o111 == 0:
		return fault.InvalidField("ota-hook", "%s is not executable; chmod +x it, or change the setting", c.OTAHook)
	}
	return nil
}

// serverURL returns the root URL of the control plane. Plain HTTP is allowed only to this machine,
// or with AllowHTTP.
func (c Config) serverURL() (*url.URL, error) {
	if c.Server == "" {
		return nil, fault.InvalidField(
			"server",
			"is required: the URL of the edge control plane, for example https://edge.example.com:8080",
		)
	}
	u, err := url.Parse(strings.TrimRight(c.Server, "/"))
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || u.User != nil || u.RawQuery != "" ||
		u.Fragment != "" {
		return nil, fault.InvalidField("server", "must be a URL such as https://edge.example.com:8080")
	}
	if u.Scheme == "http" && !httpserve.Loopback(u.Hostname()) && !c.AllowHTTP {
		return nil, fault.InvalidField(
			"server",
			"speaks plain HTTP and is not on this machine; use https, or set --allow-http if the network is trusted",
		)
	}
	return u, nil
}
