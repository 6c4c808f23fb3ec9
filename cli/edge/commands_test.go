package edge_test

import (
	"slices"
	"strings"
	"testing"
)

const sha = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

// commandLines are every command once, with the operations it must call. A table has names in place of
// IDs, for which it makes the calls with a + too.
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
		"sites get s1":              "ListSites GetSite",
		"site enroll plant --enrollment-token x --csr " + csr + " --label a=b --agent-version 1": "Enroll",
		"site label s1 a=b c-":          "ListSites GetSite PatchSite",
		"site rename s1 plant-8":        "ListSites PatchSite",
		"site update s1 --name plant-8": "ListSites PatchSite",
		"site revoke s1 --yes":          "ListSites RevokeSite",
		"site delete s1 --yes":          "ListSites DeleteSite",

		"enrollment-token list": "ListEnrollmentTokens",
		"enrollment-token create x --org o1 --uses 5 --ttl-seconds 60": "ListOrgs CreateEnrollmentToken",
		"enrollment-token delete t1 --yes":                             "ListEnrollmentTokens DeleteEnrollmentToken",

		"event send --site s1 --topic t --id e1 --header a=b --data 1 --time 1h": "ListSites IngestEvent",
		"events list --site s1 --minutes 5 --topic t --limit 10":                 "ListSites ListEvents",
		"event import " + events: "IngestEvents",

		"route list":   "ListRoutes",
		"route get r1": "ListRoutes GetRoute",
		"route create alarms --topic * --url http://x/ --site s1 --method PUT --retry-max 3 --timeout-seconds 5 --disabled": "ListSites CreateRoute",
		"route update r1 --name n --topic a --url http://y/":                                                                "ListRoutes PatchRoute",
		"route enable r1":             "ListRoutes PatchRoute",
		"route disable r1":            "ListRoutes PatchRoute",
		"route delete r1 -y":          "ListRoutes DeleteRoute",
		"route test r1 --data {}":     "ListRoutes TestRoute",
		"routes stats r1 --minutes 5": "ListRoutes GetRouteStats",

		"deadletter list --site s1 --route r1 --reason exhausted": "ListRoutes ListSites ListDeadLetters",
		"dl get d1":            "ListDeadLetters GetDeadLetter",
		"deadletter replay d1": "ListDeadLetters ReplayDeadLetter",
		"deadletter replay-all --route r1 --from 2h --to 2026-01-02T03:04:05Z": "ListRoutes ReplayDeadLetters",
		"deadletter delete d1 --yes": "ListDeadLetters DeleteDeadLetter",

		"device list --site s1":      "ListSites ListDevices",
		"device get pump-1":          "GetDevice GetDevice",
		"device delete pump-1 --yes": "GetDevice DeleteDevice",
		"twin list --site s1":        "ListSites ListTwins",
		"twin get pump-1":            "GetDevice GetTwin",
		"twin set pump-1 --data {} --expected-version 0 --if-match x": "GetDevice PutDesired",
		"ota request pump-1 --force" + artifact:                       "GetDevice RequestOTA",
		"ota status pump-1":                                           "GetDevice GetOTA",

		"campaign list --status draft": "ListCampaigns",
		"campaign get c1":              "ListCampaigns GetCampaign",
		"campaign create fw --site s1 --label a=b --device d1 --stages 10,100 --success-threshold 0.5 --failure-threshold 0.5 --min-devices 2 --soak-seconds 1 --device-timeout-seconds 5 --auto-promote --auto-abort" + artifact: "GetDevice ListSites CreateCampaign",
		"campaign start c1":                    "ListCampaigns StartCampaign",
		"campaign pause c1":                    "ListCampaigns PauseCampaign",
		"campaign resume c1":                   "ListCampaigns ResumeCampaign",
		"campaign retry c1 --device d1":        "ListCampaigns GetDevice RetryCampaign",
		"campaign count-targets --site s1":     "ListSites CountTargets",
		"campaign promote c1":                  "ListCampaigns PromoteCampaign",
		"campaign abort c1":                    "ListCampaigns AbortCampaign",
		"campaign devices c1 --outcome failed": "ListCampaigns ListCampaignDevices +GetSite",
		"campaign watch c1":                    "ListCampaigns GetCampaign",

		"deploy list --site s1": "ListSites ListDeployments",
		"deployment get p1":     "ListDeployments GetDeployment",
		"deployment create web --site s1 --image nginx --version 1 --state stopped --env A=b --port 8080:80/tcp --port 53/udp --pull always --restart on_failure --health-command /check --health-interval 5": "ListSites CreateDeployment",
		"deployment update p1 --image nginx:2 --version 2 --port 80": "ListDeployments PatchDeployment",
		"deployment delete p1 --yes":                                 "ListDeployments DeleteDeployment",

		"policy list":   "ListPolicyPacks",
		"policy get k1": "ListPolicyPacks GetPolicyPack",
		"policy create base --site s1 --image * --enabled=false": "ListSites CreatePolicyPack",
		"policy update k1 --name n --image a --image b":          "ListPolicyPacks PatchPolicyPack",
		"policy check nginx --site s1":                           "ListSites CheckImage",
		"policy delete k1 --yes":                                 "ListPolicyPacks DeletePolicyPack",

		"org list":            "ListOrgs",
		"org get o1":          "ListOrgs GetOrg",
		"org create acme":     "CreateOrg",
		"org delete o1 --yes": "ListOrgs DeleteOrg",

		"alert list --status all --site s1":                  "ListSites ListAlerts",
		"alert list --silenced=false --acknowledged":         "ListAlerts +GetSite",
		"alert groups --by site --status all":                "ListAlertGroups",
		"alert acknowledge a1 --note mine":                   "ListAlerts AcknowledgeAlert",
		"alert silence a1 --for 8h --reason work":            "ListAlerts SilenceAlert",
		"alert unsilence a1":                                 "ListAlerts UnsilenceAlert",
		"alert list --kind site_offline --severity critical": "ListAlerts +GetSite",
		"activity list --site s1":                            "ListSites ListActivity",
		"activity add hello --level ok --source cli --chapter c --site s1 --action a --detail {}":                "ListSites AddActivity",
		"audit list --site s1 --actor a --action site.revoke --without-action device.register --from 1h --to 1m": "ListSites ListAudit",
		"audit verify":                        "VerifyAudit",
		"audit acknowledge 3 --note restored": "AcknowledgeAudit",
		"twin update pump-1 --data {}":        "GetDevice PutDesired",
		"activity create hello":               "AddActivity",
		"crl show --pem":                      "GetCRL",
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
				want := strings.ReplaceAll(operations, "+", "")
				if format != "table" {
					want, _, _ = strings.Cut(operations, " +")
				}
				if calls := strings.Join(s.called(), " "); calls != want {
					t.Errorf("%s: called %q, want %q", format, calls, want)
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
		reached = append(reached, strings.Fields(strings.ReplaceAll(operations, "+", ""))...)
	}
	// The stream has its own tests; logging in through an identity provider requires a browser; the
	// history is for the plots of the console.
	reached = append(reached, "GetStream", "OIDCLogin", "OIDCCallback", "GetHistory")
	for _, op := range loadContract(t).Operations() {
		if !slices.Contains(reached, op.ID) {
			t.Errorf("%s (%s %s)", op.ID, op.Method, op.Path)
		}
	}
}
