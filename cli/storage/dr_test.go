package storage_test

const (
	peerID   = "01a20b56-c1bc-741c-92d0-a6ddefd10970"
	mirrorID = "01a20b56-c1bc-741c-92d0-a6ddefd10971"
)

// drExamples are what the fake answers about mirrors.
func drExamples() map[string]string {
	peer := `{"id":"` + peerID + `","name":"west","cluster_id":"` + clusterID + `","remote_cluster_id":"","remote_fsid":"f",` +
		`"direction":"rx-tx","secret_ref":"west","state":"reachable","last_error":"","created_at":` + at + `}`
	mirror := `{"id":"` + mirrorID + `","volume_id":"` + volumeID + `","tenant_id":"acme","cluster_id":"` + clusterID +
		`","pool":"vms","image":"disk","peer_id":"` + peerID + `","mode":"snapshot","state":"enabled","role":"primary",` +
		`"rpo_seconds":900,"lag_seconds":null,"last_synced_at":null,"last_error":"","created_at":` + at + `}`
	onMirror := accepted + `{"mirror_id":"` + mirrorID + `","volume_id":"` + volumeID + `","cluster_id":"` + clusterID + `"}}`
	pool := `{"cluster_id":"` + clusterID + `","pool":"vms","mode":"image"}`
	return map[string]string{
		"ListPeers": "[" + peer + "]", "CreatePeer": peer, "DeletePeer": peer, "ListMirrors": "[" + mirror + "]", "SetRPO": mirror,
		"EnableMirror": onMirror, "DisableMirror": onMirror, "PromoteMirror": onMirror, "DemoteMirror": onMirror,
		"ResyncMirror": onMirror, "RehearseFailover": onMirror, "FailOver": onMirror,
		"GetPoolMirroring": pool, "SetPoolMirroring": pool,
		"GetMirrorStatus": `{"mirror_id":"` + mirrorID + `","role":"secondary","health":"ok","sites":[{"name":"w","up":true,` +
			`"state":"replaying","description":"d","updated_at":` + at + `}],"lag_seconds":3,"last_synced_at":` + at +
			`,"promote_ready":false,"promote_blocker":"b","journal_peers_replayed":null}`,
		"GetDRStatus": `{"peers":1,"peers_unreachable":0,"mirrors":2,"primary":1,"secondary":1,"ok":2,"warning":0,"error":0,` +
			`"unknown":0,"rpo_breaches":0,"worst_lag_seconds":3}`,
		"GetDRPreflight": `{"ready":true,"checks":[{"name":"peer west","ok":true,"detail":"it is reachable"}],"blockers":[],` +
			`"steps":[{"mirror_id":"` + mirrorID + `","title":"Fail over","detail":"d","command":"c"}]}`,
	}
}

// drLines are command lines about mirrors.
func drLines() map[string]string {
	return map[string]string{
		"dr status --cluster local":                                "GetDRStatus",
		"dr preflight":                                             "GetDRPreflight",
		"dr preflight --mirror disk --cluster local":               "ListMirrors GetDRPreflight",
		"dr peer list --cluster local":                             "ListPeers",
		"dr peer add west --secret west --cluster local --one-way": "CreatePeer",
		"dr peer add west --secret west --remote west":             "CreatePeer",
		"dr peer remove west --yes":                                "ListPeers DeletePeer",
		"dr list --tenant acme --cluster local":                    "ListMirrors",
		"dr show disk":                                             "ListMirrors GetMirrorStatus",
		"dr enable data --peer west --mode journal":                "ListVolumes ListPeers EnableMirror GetJob GetJob",
		"dr disable data --yes":                                    "ListVolumes DisableMirror GetJob GetJob",
		"dr rpo " + mirrorID + " --within 5m":                      "SetRPO",
		"dr rehearse " + mirrorID:                                  "RehearseFailover GetJob GetJob",
		"dr failover " + mirrorID + " --force --yes":               "FailOver GetJob GetJob",
		"dr promote " + mirrorID + " --peer-replayed --yes":        "PromoteMirror GetJob GetJob",
		"dr demote " + mirrorID + " --yes --no-wait":               "DemoteMirror GetJob",
		"dr resync " + mirrorID + " --yes":                         "ResyncMirror GetJob GetJob",
		"dr pool vms --cluster local":                              "GetPoolMirroring",
		"dr pool vms --mode image":                                 "SetPoolMirroring",
	}
}
