package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// call sends a request to the product's API. It is for everything except load.
func (p *process) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+p.addr+"/api/v1"+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s: %.300s", method, path, res.Status, b)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(b, out)
}

// object is a JSON object under construction.
type object = map[string]any

// site holds the credentials of a site in the load.
type site struct{ id, token string }

// enroll creates a site through the API.
func (p *process) enroll(ctx context.Context, name string) (site, error) {
	var e struct {
		SiteID     string `json:"site_id"`
		AgentToken string `json:"agent_token"`
	}
	err := p.call(ctx, "POST", "/enroll", object{"name": name, "enrollment_token": enrollmentToken}, &e)
	return site{e.SiteID, e.AgentToken}, err
}

const eventsPath = "/api/v1/events"

// eventBody returns an event with a payload of 200 bytes.
func eventBody(siteID string) string {
	return fmt.Sprintf(`{"site_id":%q,"topic":"line/temperature","payload":%s}`, siteID, payload())
}

// payload returns a JSON object of 200 bytes with the time at which it was sent.
func payload() string {
	head, tail := `{`+stampMark+noStamp+`,"text":"`, `"}`
	return head + strings.Repeat("x", 200-len(head)-len(tail)) + tail
}
