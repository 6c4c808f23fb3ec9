//go:build linux

package sockettest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// Refusal is what a fake says that was told to refuse a call.
const Refusal = "refused as the test wants it"

// Serve serves a fake's API until it ends, as well as its settings let it. Refuse answers
// a call with 400 and a text, as the real program does.
func (g *Guest) Serve(socket string, api http.Handler, refuse func(w http.ResponseWriter, text string)) error {
	if g.Settings.Mode == "deaf" {
		select {}
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == g.Settings.Refuse:
				refuse(w, Refusal)
			case g.Settings.Mode == "silent":
				<-r.Context().Done()
			case g.Settings.Mode != "" && r.Method == http.MethodGet:
				misbehave(w, r, g.Settings.Mode)
			default:
				api.ServeHTTP(w, r)
			}
		}),
	}
	return server.Serve(l)
}

func misbehave(w http.ResponseWriter, r *http.Request, mode string) {
	switch mode {
	case "garbage":
		_, _ = io.WriteString(w, "\x00\xff\x1b[2J{")
	case "huge":
		_, _ = w.Write(bytes.Repeat([]byte(" "), 8<<20))
	case "endless":
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, " ")
			w.(http.Flusher).Flush()
			time.Sleep(time.Millisecond)
		}
	}
}

// Decode decodes the body of a call into what is documented, and nothing else.
func Decode(r *http.Request, into any) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("an error occurred when deserializing the json body of a request: %w", err)
	}
	return nil
}
