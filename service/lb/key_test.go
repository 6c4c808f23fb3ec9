package lb

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/auth"
)

// Keys of the tests.
const (
	longA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	longB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	longC = "cccccccccccccccccccccccccccccccc"
)

func TestKeysAreReadAndNamed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		admin, readonly string
		want            string // NAME ROLE ... or the error
		warnings        string // a part of them
	}{
		{"", "", "", ""},
		{longA, "", "key-1 admin", ""},
		{longA, longB, "key-1 admin, key-1 readonly", ""},
		{longA + "," + longB, "", "key-1 admin, key-2 admin", ""},
		{" " + longA + " ,, " + longB + ",", "", "key-1 admin, key-3 admin", ""},
		{"id:ci.deploy_1-x=" + longA, "id:console=" + longB, "ci.deploy_1-x admin, console readonly", ""},
		{"id:a=" + longA + "," + longB, "", "a admin, key-2 admin", ""},
		{"id:a=k=e=y=" + longA, "", "a admin", ""},
		{"short", "", "key-1 admin", "api-key: the key key-1: must have at least 16 characters"},
		{longA[:31], "", "key-1 admin", "api-key: the key key-1: the token has fewer than 32 characters"},
		{longA, "id:b=b", "key-1 admin, b readonly", "api-readonly-key: the key b: must have at least 16 characters"},
		{longA + "," + longA, "", "key-1 admin, key-2 admin", "the key key-2 is the same as key-1"},

		{"", longB, "api-readonly-key: needs api-key", ""},
		{" ", longB, "api-readonly-key: needs api-key", ""},
		{",", "", "api-key: is set and holds no key", ""},
		{longA, " , ", "api-readonly-key: is set and holds no key", ""},
		{longA, longA, "api-readonly-key: the key key-1 is also the admin key key-1", ""},
		{"id:a=" + longA, "id:b=" + longA, "api-readonly-key: the key b is also the admin key a", ""},
		{"id:a=" + longA + ",id:a=" + longB, "", "api-key: the name a is used twice", ""},
		{"id:a=" + longA, "id:a=" + longB, "api-readonly-key: the name a is used twice", ""},
		{"id:key-2=" + longA + "," + longB, "", "api-key: the name key-2 is used twice", ""},
		{longA, "id:key-1=" + longB, "api-readonly-key: the name key-1 is used twice", ""},
		{"id:=" + longA, "", "api-key: entry 1 must be id:NAME=KEY", ""},
		{"id:a b=" + longA, "", "api-key: entry 1 must be id:NAME=KEY", ""},
		{longB + ",id:" + strings.Repeat("n", 65) + "=" + longA, "", "api-key: entry 2 must be id:NAME=KEY", ""},
		{"id:" + strings.Repeat("n", 64) + "=" + longA, "", strings.Repeat("n", 64) + " admin", ""},
		{"id:a", "", "api-key: entry 1 must be id:NAME=KEY", ""},
		{"id:a=", "", "api-key: entry 1 must have a key", ""},
		{longA + " x", "", "api-key: entry 1 must have a key", ""},
		{longA + "\u00e4", "", "api-key: entry 1 must have a key", ""},
		{strings.Repeat("k", 4097), "", "api-key: entry 1 must have a key", ""},
	} {
		keys, warnings, err := parseKeys(tt.admin, tt.readonly)
		var got []string
		for _, k := range keys {
			got = append(got, fmt.Sprintf("%s %s", k.name, k.role))
		}
		text := strings.Join(got, ", ")
		if err != nil {
			text = err.Error()
		}
		if !strings.HasPrefix(text, tt.want) || tt.want == "" && text != "" {
			t.Errorf("%.80q %.80q: got %q, want %q", tt.admin, tt.readonly, text, tt.want)
		}
		told := strings.Join(warnings, "; ")
		if !strings.Contains(told, tt.warnings) || tt.warnings == "" && told != "" {
			t.Errorf("%.80q: warnings %q", tt.admin, told)
		}
		for _, secret := range []string{longA, longB} {
			if strings.Contains(text+told, secret) {
				t.Errorf("the key %s is told: %s", secret, text+told)
			}
		}
	}
}

func TestANamedKeyIsWhatFollowsItsName(t *testing.T) {
	t.Parallel()
	keys, _, err := parseKeys("id:a=x=y="+longA, "")
	if err != nil || keys[0].hash != auth.HashToken("x=y="+longA) {
		t.Errorf("%v %v", keys, err)
	}
}
