package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/nats-io/nats-server/v2/server"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/problem"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
	"github.com/mainstay-infra/mainstay/service/edge"
	"github.com/mainstay-infra/mainstay/service/edge/topic"
)

// The references that this program can run as.
const (
	referenceStack = "stack" // the product's HTTP handler without storage
	referenceBare  = "bare"  // net/http and encoding/json
	referenceNATS  = "nats"  // JetStream that syncs every message
)

// Fixed credentials of the stack reference, which has no database.
const (
	referenceSite  = "0199a000-0000-7000-8000-000000000000"
	referenceToken = "mag_0123456789012345678901234567890123456789012"
)

func serveReference(ctx context.Context, kind, dir string) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	switch kind {
	case referenceStack:
		return serveStack(ctx, log)
	case referenceBare:
		return serveBare(ctx, log)
	case referenceNATS:
		return serveNATS(ctx, log, dir)
	}
	return fmt.Errorf("there is no reference %q", kind)
}

// dropper answers events as if it had stored them. All other operations are nil and never called.
type dropper struct{ edgeapi.Server }

func (dropper) IngestEvent(
	_ context.Context, req edgeapi.IngestEventRequestObject,
) (edgeapi.IngestEventResponseObject, error) {
	e := req.Body
	if e.SiteId != referenceSite {
		return nil, fault.New(fault.Denied, "site_id: another site")
	}
	if err := topic.Check("topic", e.Topic); err != nil {
		return nil, err
	}
	if len(e.Payload) == 0 || !utf8.Valid(e.Payload) {
		return nil, fault.InvalidField("payload", "is required")
	}
	id := ""
	if e.EventId != nil {
		id = *e.EventId
	} else {
		id = uuid.Must(uuid.NewV7()).String()
	}
	return edgeapi.IngestEvent202JSONResponse{EventId: id}, nil
}

// serveStack assembles the product's handler from the same parts as the product.
func serveStack(ctx context.Context, log *slog.Logger) error {
	c, err := edge.Contract()
	if err != nil {
		return err
	}
	render := httpserve.JSONErrors(log, problem.Nested)
	known := auth.HashToken(referenceToken)
	guard := func(op *contract.Operation, next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			token, ok := auth.Bearer(r)
			if !ok || !auth.EqualHash(auth.HashToken(token), known) {
				render(w, r, fault.New(fault.Unauthenticated, "bad token"))
				return
			}
			r = r.WithContext(context.WithValue(r.Context(), callKey{}, w))
			r.Body = http.MaxBytesReader(w, r.Body, 1<<20)
			if !op.HandlerValidates {
				if err := op.CheckRequest(r); err != nil {
					render(w, r, err)
					return
				}
			}
			next.ServeHTTP(w, r)
		})
	}
	router := contract.NewRouter(c, render, guard)
	edgeapi.Register(router, edgeapi.BasePath, dropper{}, render)
	handler := httpserve.Chain(router,
		httpserve.RequestID,
		httpserve.AccessLog(log, httpserve.LogErrors),
		httpserve.Metrics(telemetry.NewRegistry(), "edge"),
		httpserve.Recover(render, log),
		httpserve.LimitInFlight(2048, render),
	)
	cfg := httpserve.Config{Listen: "127.0.0.1:0"}
	cfg.Defaults()
	srv, err := httpserve.Listen(cfg, handler, log)
	if err != nil {
		return err
	}
	log.Info("listening", "url", srv.URL())
	return srv.Run(ctx)
}

// callKey stands in for the product's context key, so that requests carry a value as in the
// product.
type callKey struct{}

// serveBare decodes an event and accepts it: about the minimum that Go needs.
func serveBare(ctx context.Context, log *slog.Logger) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var e struct {
				SiteID  string          `json:"site_id"`
				Topic   string          `json:"topic"`
				Payload json.RawMessage `json:"payload"`
			}
			if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
				http.Error(w, "bad JSON", http.StatusBadRequest)
				return
			}
			w.WriteHeader(http.StatusAccepted)
		}),
	}
	log.Info("listening", "url", "http://"+listener.Addr().String())
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// serveNATS runs JetStream with the durability that the product promises: messages are on disk
// before they are acknowledged.
func serveNATS(ctx context.Context, log *slog.Logger, dir string) error {
	srv, err := server.NewServer(&server.Options{
		Host:       "127.0.0.1",
		Port:       server.RANDOM_PORT,
		JetStream:  true,
		StoreDir:   dir,
		SyncAlways: true,
		NoSigs:     true,
		NoLog:      true,
	})
	if err != nil {
		return err
	}
	go srv.Start()
	if !srv.ReadyForConnections(20 * time.Second) {
		return errors.New("NATS does not get ready")
	}
	log.Info("listening", "url", "nats://"+strings.TrimPrefix(srv.ClientURL(), "nats://"))
	<-ctx.Done()
	srv.Shutdown()
	srv.WaitForShutdown()
	return nil
}
