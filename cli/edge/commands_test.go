package edge_test

import (
	"slices"
	"strings"
	"testing"
)

const sha = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

// commandLines are every command once, with the operations it must call.
func commandLines(t *testing.T) map[string]string {
	t.Helper()
	csr := writeFile(t, "site.csr", "CSR")
	events := writeFile(t, "events.jsonl", `{"site_id":"s1","topic":"t","payload":1}`)
	artifact := " --version 2 --url http://x/fw --sha256 " + sha + " --size 10"
	return map[string]string{
		"login --username admin": "Login",
		"logout":                 "Logout",
		"whoami":                 "GetMe",
		"version":                "GetVersion",
		"overview":               "GetOverview",

		"site list --status online": "ListSites",
		"sites get s1":              "GetSite",
		"site enroll plant --enrollment-token x --csr " + csr + " --label a=b --agent-version 1": "Enroll",
		"site label s1 a=b c-":   "GetSite PatchSite",
		"site rename s1 plant-8": "PatchSite",
		"site revoke s1 --yes":   "RevokeSite",
		"site delete s1 --yes":   "DeleteSite",

		"enrollment-token list": "ListEnrollmentTokens",
		"enrollment-token create x --org o1 --uses 5 --ttl-seconds 60": "CreateEnrollmentToken",
		"enrollment-token delete e1 --yes":                             "DeleteEnrollmentToken",

		"event send --site s1 --topic t --id e1 --header a=b --data 1 --time 1h": "IngestEvent",
		"events list --site s1 --minutes 5 --topic t --limit 10":                 "ListEvents",
		"event import " + events: "IngestEvents",

		"route list":   "ListRoutes",
		"route get r1": "GetRoute",
		"route create alarms --topic * --url http://x/ --site s1 --method PUT --retry-max 3 --timeout-seconds 5 --disabled": "CreateRoute",
		"route update r1 --name n --topic a --url http://y/":                                                                "PatchRoute",
		"route enable r1":             "PatchRoute",
		"route disable r1":            "PatchRoute",
		"route delete r1 -y":          "DeleteRoute",
		"route test r1 --data {}":     "TestRoute",
		"routes stats r1 --minutes 5": "GetRouteStats",

		"deadletter list --site s1 --route r1 --reason exhausted": "ListDeadLetters",
		"dl get d1":            "GetDeadLetter",
		"deadletter replay d1": "ReplayDeadLetter",
		"deadletter replay-all --route r1 --from 2h --to 2026-01-02T03:04:05Z": "ReplayDeadLetters",
		"deadletter delete d1 --yes": "DeleteDeadLetter",

		"device list --site s1":      "ListDevices",
		"device get pump-1":          "GetDevice",
		"device delete pump-1 --yes": "DeleteDevice",
		"twin list --site s1":        "ListTwins",
		"twin get pump-1":            "GetTwin",
		"twin set pump-1 --data {} --expected-version 0 --if-match x": "PutDesired",
		"ota request pump-1 --force" + artifact:                       "RequestOTA",
		"ota status pump-1":                                           "GetOTA",

		"campaign list --status draft": "ListCampaigns",
		"campaign get c1":              "GetCampaign",
		"campaign create fw --site s1 --label a=b --device d1 --stages 10,100 --success-threshold 0.5 --failure-threshold 0.5 --min-devices 2 --soak-seconds 1 --device-timeout-seconds 5 --auto-promote --auto-abort" + artifact: "CreateCampaign",
		"campaign start c1":                    "StartCampaign",
		"campaign promote c1":                  "PromoteCampaign",
		"campaign abort c1":                    "AbortCampaign",
		"campaign devices c1 --outcome failed": "ListCampaignDevices",
		"campaign watch c1":                    "GetCampaign",

		"deploy list --site s1": "ListDeployments",
		"deployment get p1":     "GetDeployment",
		"deployment create web --site s1 --image nginx --version 1 --state stopped --env A=b --port 8080:80/tcp --port 53/udp --pull always --restart on_failure --health-command /check --health-interval 5": "CreateDeployment",
		"deployment update p1 --image nginx:2 --version 2 --port 80": "PatchDeployment",
		"deployment delete p1 --yes":                                 "DeleteDeployment",

		"policy list":   "ListPolicyPacks",
		"policy get k1": "GetPolicyPack",
		"policy create base --site s1 --image * --enabled=false": "CreatePolicyPack",
		"policy update k1 --name n --image a --image b":          "PatchPolicyPack",
		"policy check nginx --site s1":                           "CheckImage",
		"policy delete k1 --yes":                                 "DeletePolicyPack",

		"org list":            "ListOrgs",
		"org get o1":          "GetOrg",
		"org create acme":     "CreateOrg",
		"org delete o1 --yes": "DeleteOrg",

		"alert list --status all --site s1":                  "ListAlerts",
		"alert list --silenced=false --acknowledged":         "ListAlerts",
		"alert groups --by site --status all":                "ListAlertGroups",
		"alert acknowledge a1 --note mine":                   "AcknowledgeAlert",
		"alert silence a1 --for 8h --reason work":            "SilenceAlert",
		"alert unsilence a1":                                 "UnsilenceAlert",
		"alert list --kind site_offline --severity critical": "ListAlerts",
		"activity list --site s1":                            "ListActivity",
		"activity add hello --level ok --source cli --chapter c --site s1 --action a --detail {}":                "AddActivity",
		"audit list --site s1 --actor a --action site.revoke --without-action device.register --from 1h --to 1m": "ListAudit",
		"audit verify":                        "VerifyAudit",
		"audit acknowledge 3 --note restored": "AcknowledgeAudit",
		"crl get --pem":                       "GetCRL",

		"agent heartbeat --agent-version 1 --label a=b":                               "Heartbeat",
		"agent register pump-1 --name n --model m --firmware 1 --label a=b":           "RegisterDevice",
		"agent rotate --csr " + csr:                                                   "GetMe RotateCertificate",
		"agent policies --site s1":                                                    "ListAgentPolicyPacks",
		"agent deployments":                                                           "ListAgentDeployments",
		"agent report-deployment p1 --status running --message m --revision 1":        "GetMe ReportDeploymentStatus",
		"agent rollback p1 --site s1 --reason r":                                      "RollbackDeployment",
		"agent twins --site s1":                                                       "ListAgentTwins",
		"agent report pump-1 --site s1 --data {} --expected-version 0":                "ReportTwin",
		"agent ota pump-1 --state downloading --progress 40 --message m --request q1": "GetMe ReportOTAStatus",
	}
}

func TestEveryCommandMakesTheCallsItIsForAndKeepsTheContract(t *testing.T) {
	t.Parallel()
	c := loadContract(t)
	for line, operations := range commandLines(t) {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			for _, format := range []string{"table", "json", "yaml"} {
				s := serve(t, c, nil)
				got := run{server: s.URL, stdin: "password\n", env: map[string]string{"EDGE_TOKEN": "token"}}.
					ok(t, append(strings.Fields(line), "-o", format)...)
				if calls := strings.Join(s.called(), " "); calls != operations {
					t.Errorf("called %q, want %q", calls, operations)
				}
				if format == "table" && got.out == "" {
					t.Error("printed nothing")
				}
			}
		})
	}
}

func TestEveryOperationHasACommand(t *testing.T) {
	t.Parallel()
	var reached []string
	for _, operations := range commandLines(t) {
		reached = append(reached, strings.Fields(operations)...)
	}
	// The stream has its own tests; logging in through an identity provider requires a browser.
	reached = append(reached, "GetStream", "OIDCLogin", "OIDCCallback")
	for _, op := range loadContract(t).Operations() {
		if !slices.Contains(reached, op.ID) {
			t.Errorf("%s (%s %s)", op.ID, op.Method, op.Path)
		}
	}
}
