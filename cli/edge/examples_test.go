package edge_test

// examples returns valid responses by operation.
func examples() map[string]string {
	const (
		at       = `"2026-01-02T03:04:05Z"`
		site     = `{"id":"s1","name":"plant-7","org_id":"","status":"online","version":"1.0","labels":{"tier":"gold"},"last_seen_at":null,"enrolled_at":` + at + `,"certificate":{"serial":"0a","not_after":` + at + `}}`
		event    = `{"event_id":"e1","org_id":"","site_id":"s1","topic":"t","payload":{"n":1},"headers":{},"event_time":` + at + `,"received_at":` + at + `}`
		receipt  = `{"event_id":"e1","duplicate":false}`
		route    = `{"id":"r1","org_id":"","name":"alarms","site_id":"","topic":"*","target_url":"http://x/","method":"POST","enabled":true,"retry_max":5,"timeout_seconds":10,"delivery":{"state":"failing","last_status":500,"last_error":"the target answered 500","last_success_at":null,"last_failure_at":` + at + `},"created_at":` + at + `,"updated_at":` + at + `}`
		letter   = `{"id":"d1","event":` + event + `,"route_id":"r1","attempts":6,"last_status":500,"last_error":"boom","reason":"exhausted","status":"dead","created_at":` + at + `,"replay_count":0}`
		device   = `{"device_id":"pump-1","site_id":"s1","org_id":"","name":"","model":"P100","firmware_version":"1","labels":{},"registered_at":` + at + `,"last_seen_at":` + at + `}`
		twin     = `{"device_id":"pump-1","site_id":"s1","desired":{"interval":30},"reported":{},"desired_version":1,"reported_version":0,"updated_at":` + at + `}`
		ota      = `{"device_id":"pump-1","request":{"request_id":"q1","version":"2","url":"http://x/","sha256":"00","requested_at":` + at + `},"status":{"request_id":"q1","state":"downloading","progress":40,"message":"","updated_at":` + at + `}}`
		campaign = `{"id":"c1","org_id":"","name":"fw","version":"2","url":"http://x/","sha256":"00","targets":{"site_ids":["s1"]},"stages":[5,25,100],"success_threshold":0.9,"failure_threshold":0.1,"min_devices":1,"soak_seconds":0,"device_timeout_seconds":3600,"auto_promote":false,"auto_abort":false,"status":"completed","current_stage":2,"paused_reason":"","counts":{"total":4,"waiting":0,"pending":0,"in_progress":0,"succeeded":3,"failed":1,"removed":0},"rollout":{"phase":"idle","done":4,"total":4},"created_at":` + at + `,"started_at":null,"stage_started_at":null,"finished_at":null}`
		deploy0  = `"id":"p1","site_id":"s1","org_id":"","name":"web","image":"nginx","version":"1","desired_state":"running","env":{},"ports":[{"container_port":80}],"pull_policy":"missing","restart":"always","health":null,"revision":1,"observed_revision":0,"previous":null,"status":"pending","message":"","created_at":` + at + `,"updated_at":` + at
		deploy   = `{` + deploy0 + `}`
		policy   = `{"id":"k1","org_id":"","name":"base","version":1,"site_id":"","enabled":true,"allowed_images":["*"],"created_at":` + at + `,"updated_at":` + at + `}`
		org      = `{"id":"o1","name":"acme","created_at":` + at + `,"enrollment_token_hash":"[redacted]","admin_token_hash":"[redacted]","viewer_token_hash":"[redacted]"}`
		alert    = `{"id":"a1","kind":"site_offline","severity":"warning","status":"firing","org_id":"","site_id":"s1","subject":"s1","message":"gone","first_seen_at":` + at + `,"last_seen_at":` + at + `,"resolved_at":null,"acknowledged_at":` + at + `,"acknowledged_by":"ops","acknowledge_note":"on it","silenced_until":null,"silenced_by":"","silence_reason":""}`
		activity = `{"id":"1","time":` + at + `,"level":"info","source":"","chapter":"","site_id":"s1","site":"","action":"","message":"hello","detail":{}}`
		audit    = `{"id":"u1","seq":1,"time":` + at + `,"actor":"admin","actor_type":"admin","action":"site.revoke","target":"s1","site_id":"s1","org_id":"","result":"ok","message":"","detail":{},"hash":"00"}`
		token0   = `"id":"t1","org_id":"","name":"plants","max_uses":5,"uses":1,"created_at":` + at + `,"expires_at":` + at
		minute   = `"minute":` + at + `,"delivered":3,"failed_attempts":1,"dead_lettered":0`
	)
	list := func(item string) string { return "[" + item + "]" }
	return map[string]string{
		"GetVersion":            `{"version":"v1","commit":"","date":"","go_version":"go1.26","api_version":"0.2.2"}`,
		"Login":                 `{"token":"session-token","token_type":"Bearer","role":"admin","expires_at":` + at + `}`,
		"GetMe":                 `{"subject":"s1","kind":"agent","role":"agent","org_id":"","site_id":"s1","expires_at":null}`,
		"Enroll":                `{"site_id":"s1","org_id":"","agent_token":"agent-token","heartbeat_interval_seconds":30,"certificate_pem":"CERT","ca_pem":"CA","certificate_not_after":` + at + `}`,
		"ListEnrollmentTokens":  list(`{` + token0 + `}`),
		"CreateEnrollmentToken": `{` + token0 + `,"token":"men_x"}`,
		"ListAgentPolicyPacks":  list(policy),
		"CheckImage":            `{"allowed":true,"image":"docker.io/library/nginx:latest","packs":1,"matches":[{"pack_id":"k1","pack_name":"base","pattern":"*"}]}`,
		"ListSites":             list(site),
		"GetSite":               site,
		"PatchSite":             site,
		"RevokeSite":            site,
		"RotateCertificate":     `{"certificate_pem":"CERT","ca_pem":"CA","certificate_not_after":` + at + `,"serial":"0b"}`,
		"GetCRL":                "CRL",
		"ListEvents":            list(event),
		"IngestEvent":           receipt,
		"IngestEvents":          list(receipt),
		"ListRoutes":            list(route),
		"CreateRoute":           route,
		"GetRoute":              route,
		"PatchRoute":            route,
		"TestRoute":             `{"delivered":true,"status":204,"duration_ms":3,"error":""}`,
		"GetRouteStats":         `{"route_id":"r1","pending":0,"delivered":3,"failed_attempts":1,"dead_lettered":0,"breaker":"closed","last_status":204,"last_error":"","last_success_at":` + at + `,"last_failure_at":null,"series":[{` + minute + `}]}`,
		"ListDeadLetters":       list(letter),
		"GetDeadLetter":         letter,
		"ReplayDeadLetter":      letter,
		"ReplayDeadLetters":     `{"job_id":"j1","matched":7}`,
		"ListDevices":           list(device),
		"GetDevice":             device,
		"RegisterDevice":        device,
		"GetOTA":                ota,
		"RequestOTA":            twin,
		"ReportOTAStatus":       ota,
		"ListTwins":             list(twin),
		"GetTwin":               twin,
		"PutDesired":            twin,
		"ListAgentTwins":        list(twin),
		"ReportTwin":            twin,
		"ListCampaigns":         list(campaign),
		"CreateCampaign":        campaign,
		"GetCampaign":           campaign,
		"StartCampaign":         campaign,
		"PromoteCampaign":       campaign,
		"CountTargets":          `{"devices":12}`,
		"PauseCampaign":         campaign,
		"ResumeCampaign":        campaign,
		"RetryCampaign":         campaign,
		"AbortCampaign":         campaign,
		"ListCampaignDevices": list(
			`{"device_id":"pump-1","site_id":"s1","stage":0,"outcome":"failed","request_id":"q1","message":"disk"}`,
		),
		"ListDeployments":        list(deploy),
		"CreateDeployment":       deploy,
		"GetDeployment":          deploy,
		"PatchDeployment":        deploy,
		"ListAgentDeployments":   list(`{` + deploy0 + `,"allowed":true}`),
		"ReportDeploymentStatus": deploy,
		"RollbackDeployment":     `{"rolled_back":false,"deployment":` + deploy + `}`,
		"ListPolicyPacks":        list(policy),
		"CreatePolicyPack":       policy,
		"GetPolicyPack":          policy,
		"PatchPolicyPack":        policy,
		"Heartbeat":              `{"status":"online","site_id":"s1","heartbeat_interval_seconds":30,"server_time":` + at + `,"renew_certificate":false,"desired_revision":4}`,
		"ListOrgs":               list(org),
		"CreateOrg":              `{"id":"o1","name":"acme","created_at":` + at + `,"enrollment_token":"e","admin_token":"a","viewer_token":"v"}`,
		"GetOrg":                 org,
		"GetOverview":            `{"generated_at":` + at + `,"orgs":1,"sites":{"online":2,"offline":1},"devices":5,"ota":{},"campaigns":{},"deployments":{},"routes":{},"routes_failing":0,"deadletters":0,"alerts":{"firing":1},"policy_packs":{},"deliveries_pending":0,"rates":[{"events":0,` + minute + `},{"events":9,` + minute + `}]}`,
		"ListAlerts":             list(alert),
		"ListAlertGroups":        `[{"key":"site_offline","count":3,"acknowledged":1,"silenced":0,"newest_at":` + at + `}]`,
		"AcknowledgeAlert":       alert,
		"SilenceAlert":           alert,
		"UnsilenceAlert":         alert,
		"ListActivity":           list(activity),
		"AddActivity":            list(activity),
		"ListAudit":              list(audit),
		"VerifyAudit":            `{"ok":true,"entries":1,"verified":1,"reason":"","genesis":"g","head_seq":1,"head_hash":"00","segments":[{"number":1,"begun_at":"2026-01-02T03:04:05Z","first":1,"last":1,"verified":1}],"breaks":[],"checkpoints":{"count":2,"since":"2026-01-02T03:04:05Z","newest_at":"2026-01-02T03:04:05Z","newest_seq":1,"cut":0}}`,
	}
}
