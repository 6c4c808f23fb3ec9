package guest

import (
	"context"
	"crypto/tls"
	"net/http"

	"github.com/coder/websocket"

	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

// largestMessage is the largest message accepted on a socket, in bytes. The first message of a
// console holds the earlier output.
const largestMessage = 1 << 20

// socket opens the WebSocket to a VM's console or screen.
func (t Reach[A]) socket(ctx context.Context, c *verb.Call[A], vm, channel string) (*websocket.Conn, error) {
	path, query, err := t.At(ctx, c, vm)
	if err != nil {
		return nil, err
	}
	to := c.Reach.Server.JoinPath(path, channel)
	to.RawQuery = query.Encode()
	conn, r, err := dial(ctx, c, to.String())
	if err == nil {
		return conn, nil
	}
	if r != nil && r.StatusCode >= 400 {
		_, err = t.Service.Open(r, nil) // the library keeps the body's first KiB
		return nil, err
	}
	return nil, t.Service.Explain(err)
}

func dial[A any](ctx context.Context, c *verb.Call[A], to string) (*websocket.Conn, *http.Response, error) {
	transport := c.Reach.Transport.Clone()
	// A WebSocket requires HTTP/1.1.
	transport.ForceAttemptHTTP2 = false
	transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	if transport.TLSClientConfig != nil {
		transport.TLSClientConfig.NextProtos = nil
	}
	header := http.Header{}
	c.Reach.SetHeaders(header)
	ctx, cancel := context.WithTimeout(ctx, c.Timeout()) // limits only the handshake
	defer cancel()
	conn, answer, err := websocket.Dial(
		ctx,
		to,
		&websocket.DialOptions{
			HTTPClient:      client.HTTP(transport, 0),
			HTTPHeader:      header,
			CompressionMode: websocket.CompressionDisabled,
		},
	)
	if err != nil {
		return nil, answer, err
	}
	conn.SetReadLimit(largestMessage)
	return conn, answer, nil
}
