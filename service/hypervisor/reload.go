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

// keepReloading reads credentials again whenever it is asked to.
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

// reload puts the settings' token and the document's credentials into force as they are now, and
// tells what else has changed, which takes a restart. Who holds a connection keeps it.
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
	// Registry and reporter have the fleet's token from the start; the rest is names.
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

// restartable is what takes a restart to change; secrets in it are hashed.
type restartable struct {
	Setting  Config
	Document configfile.Config
}

func withoutCredentials(cfg Config, doc *configfile.Config) restartable {
	d := *doc
	d.Auth.Tokens, d.Auth.OIDC, d.Auth.ClientCertificates, d.Warnings = nil, configfile.OIDC{}, nil, nil
	cfg.Token = ""
	for _, secret := range []*string{&cfg.SecretKey, &cfg.FleetToken} {
		if *secret != "" {
			*secret = auth.HashToken(*secret)
		}
	}
	return restartable{cfg, d}
}

// changed are the names of the settings and of the document's tables that differ.
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
