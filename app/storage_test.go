package app

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/session"
)

func TestDevModeMakesATokenThatTheStorageGatewayAccepts(t *testing.T) {
	t.Parallel()
	made := newStorageCredentials()
	tokens, err := auth.NewVerifier(time.Now, []byte(made["jwt_secret"]))
	if err != nil {
		t.Fatal(err)
	}
	claims, err := tokens.Check(made["token"])
	if err != nil || claims.Subject != "admin" || claims.Role != "admin" || claims.Tenant != "" {
		t.Errorf("%+v, %v", claims, err)
	}
	if other := newStorageCredentials(); other["jwt_secret"] == made["jwt_secret"] || other["token"] == made["token"] {
		t.Error("two installations have the same credentials")
	}
}

func TestDevModeCompletesTheSettingsOfTheStorageGateway(t *testing.T) {
	t.Parallel()
	secret := "a secret of the environment, long enough"
	for name, tt := range map[string]struct {
		environ                      []string
		listen, data, secret, signIn string
	}{
		"nothing is set": {nil, "127.0.0.2:5110", filepath.Join("state", "storage"), "of dev mode", "the token from the file"},
		"all is set": {
			[]string{"STORE_LISTEN=127.0.0.1:1", "STORE_DATA=/d", "STORE_JWT_SECRET=" + secret},
			"127.0.0.1:1", "/d", secret, "a token signed with STORE_JWT_SECRET",
		},
		"nobody is asked": {
			[]string{"STORE_AUTH_REQUIRED=false"}, "127.0.0.2:5110", filepath.Join("state", "storage"), "of dev mode",
			"nobody is asked",
		},
	} {
		mode := devMode{
			environ: tt.environ, data: "state", host: "127.0.0.2", credentialsFile: "the file",
			credentials: map[string]string{"jwt_secret": "of dev mode"},
		}
		cfg, err := devStorageConfig(mode)
		if err != nil || cfg.Listen != tt.listen || cfg.Data != tt.data || cfg.JWTSecret != tt.secret ||
			cfg.AuthRequired == (name == "nobody is asked") {
			t.Errorf("%s: %+v, %v", name, cfg, err)
		}
		if part, err := devStorage(mode); err != nil || part.signIn != tt.signIn {
			t.Errorf("%s: %s, %v", name, part.signIn, err)
		}
	}
	if _, err := devStorage(devMode{environ: []string{"STORE_LISEN=x"}}); err == nil {
		t.Error("an unknown variable is accepted")
	}
}

func TestOtherConsolesOfDevModeSignInToTheStorageGatewayWithTheirRole(t *testing.T) {
	t.Parallel()
	mode := devMode{credentials: newStorageCredentials()}
	cfg, err := devStorageConfig(mode)
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := auth.NewVerifier(time.Now, []byte(cfg.JWTSecret))
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{session.RoleAdmin, session.RoleViewer} {
		token, err := devStorageTokens(cfg)[role](t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if claims, err := tokens.Check(token); err != nil || claims.Role != role || claims.Tenant != "" {
			t.Errorf("%s: %+v, %v", role, claims, err)
		}
	}
	cfg.AuthRequired = false
	if n := len(devStorageTokens(cfg)); n != 0 {
		t.Errorf("%d tokens for a gateway that asks for none", n)
	}
}

func TestDevModeFindsTheClusterOfDevCeph(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	dir := filepath.Join(data, "ceph")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	check := func(what string, environ []string, want string) {
		t.Helper()
		log := &strings.Builder{}
		cfg, err := devStorageConfig(devMode{
			environ: environ, data: data, host: "127.0.0.1", log: slog.New(slog.NewTextHandler(log, nil)),
		})
		if got := fmt.Sprint(cfg.CephClusters, cfg.ObjectGateways, log.Len() > 0); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s: %s", what, got, err, want, log)
		}
	}
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check("none", nil, "[] [] false")
	write("lab.json", `{"name": "lab", "osds": 0, "fsid": "0b25a3ac-b16c-4a1d-8cbd-1b8c6a7b4f3c"}`)
	check("one that is not complete", nil, "[] [] false")
	write("ready", "")
	found := fmt.Sprintf("[lab=mainstay@%s/ceph.conf] [lab=%[1]s/rgw.json] false", dir)
	check("one that is", nil, found)
	check("another is named", []string{"STORE_CEPH_CLUSTERS=prod=/etc/ceph/ceph.conf"}, "[prod=/etc/ceph/ceph.conf] [] false")
	write("lab.json", "{")
	check("a damaged one", nil, "[] [] true")
}
