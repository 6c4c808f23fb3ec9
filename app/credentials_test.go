package app

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestCredentialsOfAnOlderVersionAreCompleted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, path, err := loadCredentials(dir)
	if err != nil || first["lb"]["api_key"] == "" || first["lb"]["readonly_key"] == "" {
		t.Fatalf("%v %+v", err, first)
	}
	old, err := json.Marshal(credentials{"edge": first["edge"]})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, old, 0o600); err != nil {
		t.Fatal(err)
	}
	second, _, err := loadCredentials(dir)
	if err != nil || !maps.Equal(second["edge"], first["edge"]) ||
		second["lb"]["api_key"] == "" || maps.Equal(second["lb"], first["lb"]) {
		t.Fatalf("%v %+v", err, second)
	}
	if third, _, err := loadCredentials(dir); err != nil || !reflect.DeepEqual(third, second) {
		t.Errorf("%v: they are not kept", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", err, info.Mode())
	}
}

func TestAFileWithoutCredentialsIsRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{": "is not valid JSON", "null": "has no credentials", "{}": "has no credentials",
		`{"edge": {}, "other": {"token": "t"}}`: "has no credentials",
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "credentials.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := loadCredentials(dir); err == nil || !strings.Contains(err.Error(), path+" "+want) {
			t.Errorf("%s: %v", text, err)
		}
		if raw, err := os.ReadFile(path); err != nil || string(raw) != text {
			t.Errorf("%s: it is now %s, %v", text, raw, err)
		}
	}
}
