package hypervisor

import (
	"context"
	"reflect"
	"slices"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/configfile"
	"github.com/mainstay-infra/mainstay/service/hypervisor/httpapi"
)

// keepReloading reloads the credentials whenever a reload is requested.
func (s *Service) keepReloading(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.reloading:
		}
		if err := routine.Call(s.log, "reload", s.reload); err != nil {
			s.log.Error("nothing is reloaded; what was in force stays so", "error", err)
		}
	}
}

// reload applies the current token from the settings and the credentials from the document, and
// logs other changes, which require a restart. Open connections are kept.
func (s *Service) reload() error {
	cfg, err := s.settings()
	if err != nil {
		return err
	}
	doc, err := configfile.Load(cfg.ConfigFile)
	if err != nil {
		return err
	}
	if err := cfg.Validate(doc); err != nil {
		return err
	}
	waiting := changed(reflect.ValueOf(s.begun), reflect.ValueOf(withoutCredentials(cfg, doc)))
	warnings := cfg.warnings(doc)
	// Registry and reporter keep the fleet token from the start; what remains are names.
	before, adopted := s.api.Gate(), s.cfg
	adopted.Token = cfg.Token
	g := httpapi.NewGate(adopted.credentials(doc), s.now)
	g.KeepDaemons(before)
	if g.Open() && !before.Open() {
		return fault.New(fault.Invalid,
			"no credentials would be left, and everybody would be an admin; give some, or restart")
	}
	for _, warning := range warnings {
		s.log.Warn(warning)
	}
	s.api.SetGate(g)
	callers, oidc := g.Callers()
	s.log.Info("credentials are reloaded", "callers", callers, "oidc", oidc)
	if len(waiting) > 0 {
		s.log.Warn("what else has changed takes a restart", "changed", strings.Join(waiting, ", "))
	}
	return nil
}

// restartable holds what only a restart can change. Secrets in it are hashed.
type restartable struct {
	Setting  Config
	Document configfile.Config
}

func withoutCredentials(cfg Config, doc *configfile.Config) restartable {
	d := *doc
	d.Auth.Tokens, d.Auth.OIDC, d.Auth.ClientCertificates, d.Warnings = nil, configfile.OIDC{}, nil, nil
	cfg.Token = ""
	for _, secret := range []*string{&cfg.SecretKey, &cfg.AcceptedSecretKey, &cfg.FleetToken} {
		if *secret != "" {
			*secret = auth.HashToken(*secret)
		}
	}
	return restartable{cfg, d}
}

// changed returns the names of the settings and document tables that differ, sorted.
func changed(before, now reflect.Value) (names []string) {
	for i := range before.NumField() {
		field := before.Type().Field(i)
		name := field.Tag.Get("key")
		if tables := field.Tag.Get("toml"); tables != "" {
			name = "table " + tables
		}
		switch {
		case reflect.DeepEqual(before.Field(i).Interface(), now.Field(i).Interface()):
		case name == "":
			names = append(names, changed(before.Field(i), now.Field(i))...)
		default:
			names = append(names, name)
		}
	}
	return slices.Sorted(slices.Values(names))
}
