package edge_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/cli"
	"github.com/mainstay-infra/mainstay/kit/webhook"
)

// firstLine passes on the address that the command prints.
type firstLine struct {
	url  chan string
	once sync.Once
}

func (f *firstLine) Write(b []byte) (int, error) {
	if m := regexp.MustCompile(`http://\S+/`).Find(b); m != nil {
		f.once.Do(func() { f.url <- string(m) })
	}
	return len(b), nil
}

func TestListenPrintsDeliveriesAndRefusesForgedOnes(t *testing.T) {
	t.Parallel()
	secret := webhook.NewSecret()
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	started := &firstLine{url: make(chan string, 1)}
	code := make(chan int, 1)
	go func() {
		code <- cli.Main(ctx, []string{"edge", "route", "listen", "--address", "127.0.0.1:0", "--secret", secret}, cli.IO{In: http.NoBody, Out: &out, Err: io.MultiWriter(started), Getenv: func(string) string { return "" }})
	}()
	url := <-started.url
	client := webhook.NewClient(webhook.Guard{AllowPrivate: true}, webhook.Options{})
	for text, want := range map[string]int{secret: 200, webhook.NewSecret(): 401} {
		s, err := webhook.ParseSecret(text)
		if err != nil {
			t.Fatal(err)
		}
		if res := client.Send(
			t.Context(),
			webhook.Request{URL: url, Body: []byte(`{"event_id":"e1"}`), ID: "e1", Secret: s, Timestamp: time.Now()},
		); res.Status != want {
			t.Errorf("%d, want %d: %v", res.Status, want, res.Err)
		}
	}
	cancel()
	if c := <-code; c != 0 {
		t.Errorf("exit code %d", c)
	}
	for _, want := range []string{"POST e1 signed {\"event_id\"", "NOT SIGNED BY THE SECRET"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("printed %q", out.String())
		}
	}
}
