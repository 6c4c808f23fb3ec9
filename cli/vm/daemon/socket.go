package daemon

import (
	"context"
	"crypto/tls"
	"net/http"

	"github.com/coder/websocket"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/client"
)

// largestMessage is the largest message accepted on a socket, in bytes. The first message of a
// console holds the earlier output.
const largestMessage = 1 << 20

// Socket opens the WebSocket at a path of the API, such as a VM's console.
func Socket(ctx context.Context, c *Call, path string) (*websocket.Conn, error) {
	conn, r, err := dial(ctx, c, path)
	if err == nil {
		return conn, nil
	}
	if r != nil && r.StatusCode >= 400 {
		_, err = Service.Open(r, nil) // the library keeps the body's first KiB
		return nil, err
	}
	return nil, Service.Explain(err)
}

func dial(ctx context.Context, c *Call, path string) (*websocket.Conn, *http.Response, error) {
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
		c.Reach.Server.JoinPath(hypervisorapi.BasePath, path).String(),
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
