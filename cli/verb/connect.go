package verb

import (
	"context"
	"net/http"
	"time"

	"github.com/mainstay-infra/mainstay/cli/client"
)

// connectTime limits the requests of Connect's client.
const connectTime = 30 * time.Second

// Send sends a request and reads the response. It names a server that is not the one meant.
type Send func(ctx context.Context, r *http.Response, err error) (client.Answer, error)

// Connect returns a client for a place, which flags and the environment do not change.
func (a *API[A]) Connect(p client.Place) (api A, send Send, err error) {
	server, err := client.ServerURL("the server", p.Server, a.Default, a.BasePath)
	if err != nil {
		return api, nil, err
	}
	transport, err := client.Transport(p.CAFile)
	if err != nil {
		return api, nil, err
	}
	reach := &Access{Server: server, Token: p.Token, Transport: transport, Header: a.Header, root: server}
	api, err = a.New(reach.Server.String()+a.BasePath, reach.options(connectTime)...)
	return api, func(ctx context.Context, r *http.Response, err error) (client.Answer, error) {
		answer, err := a.Service.Read(r, err)
		if err != nil {
			err = identify(ctx, a.Service, reach, err)
		}
		return answer, err
	}, err
}
