package lb

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/mainstay-infra/mainstay/api/lb"
	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

// Service describes the load balancer to package client.
var Service = client.Service{
	Unit: "lb", Credential: "api_key",
	Name: "the load balancer", Kind: "a load balancer", Title: "Mainstay load balancer",
	Flag: "--server", Start: "'mainstay serve lb'",
	Hints: map[int]string{
		http.StatusNotFound:           "'mainstay lb backend list' shows what there is",
		http.StatusUnauthorized:       "give a key with --token, --token-file or LB_API_KEY; or log in with 'mainstay login lb'",
		http.StatusForbidden:          "the key is a read-only one; changes need an admin key",
		http.StatusServiceUnavailable: "'mainstay lb node' says what is wrong",
	},
}

var api = verb.API[*lbapi.Client]{
	Service: &Service, New: lbapi.NewClient, BasePath: lbapi.BasePath, Default: "http://127.0.0.1:9870",
	ServerEnv: []string{"LB_SERVER"}, TokenEnv: []string{"LB_API_KEY"}, OldTokenFileFlag: "api-key-file", Token: plainKey,
	Kinds:  kinds,
	Header: http.Header{"Content-Type": {"application/json"}}, // changes require it, even without a body
}

type call = verb.Call[*lbapi.Client]

// kinds are what arguments name.
var kinds = map[string]*verb.Kind[*lbapi.Client]{
	"BACKEND": {
		What: "backend", Listed: "mainstay lb backend list", AsTyped: true,
		List: func(ctx context.Context, c *call, _ verb.Page) (*http.Response, error) {
			return c.API.ListBackends(ctx)
		},
		Object: verb.As(&Service, func(b lbapi.BackendRow) verb.Object {
			return verb.Object{ID: strconv.Itoa(b.Id), Name: net.JoinHostPort(b.Address, strconv.Itoa(b.Port))}
		}),
	},
	"VIP": {
		What: "VIP", Listed: "mainstay lb vip list", Flags: []string{"vip"}, AsTyped: true,
		List:   func(ctx context.Context, c *call, _ verb.Page) (*http.Response, error) { return c.API.ListVIPs(ctx) },
		Object: verb.As(&Service, func(v lbapi.VIP) verb.Object { return verb.Object{Name: v.Name} }),
	},
}

const keysHelp = `
The key is the one of --token, else the one in the file of --token-file, else the first of LB_API_KEY, else, when the
server runs on this machine, the one in .mainstay/credentials.json below the working directory, where "mainstay dev"
leaves it.`

// plainKey returns the first key of a value of the server's setting: KEY or id:NAME=KEY, several
// separated by commas.
func plainKey(setting string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(setting), ",")
	if named, ok := strings.CutPrefix(first, "id:"); ok {
		_, first, _ = strings.Cut(named, "=")
	}
	return strings.TrimSpace(first)
}

// read reads a response. It takes the results of a generated client's method.
func read(r *http.Response, err error) (client.Answer, error) { return Service.Read(r, err) }

// decode decodes a response.
func decode[T any](a client.Answer, err error) (T, error) { return client.Decode[T](&Service, a, err) }
