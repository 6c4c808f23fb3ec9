package drivertest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/coder/websocket"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
)

// handleGuests serves what is inside guests, and their sockets.
func (d *Daemon) handleGuests(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/vms/{id}/console", d.socket("OpenConsole"))
	mux.HandleFunc("GET /v1/vms/{id}/vnc", d.socket("OpenScreen"))
	mux.HandleFunc("GET /v1/vms/{id}/served-disk", d.serveDisk)
	mux.HandleFunc("POST /v1/vms/{id}/agent/put-file", d.putFile)
	mux.HandleFunc("POST /v1/vms/{id}/agent/get-file", d.getFile)
}

// reached notes a request for what is inside a VM, and answers it unless the VM runs.
func (d *Daemon) reached(w http.ResponseWriter, r *http.Request, operation string) (*hypervisorapi.VM, bool) {
	d.mu.Lock()
	tenant := r.Header.Get("Mainstay-Tenant")
	d.calls = append(d.calls, Call{operation, r.URL.Path, tenant, r.Header.Get("Mainstay-Actor")})
	vm := d.vm(r, tenant)
	running := vm != nil && vm.State == "running"
	d.mu.Unlock()
	switch {
	case r.Header.Get("Authorization") != "Bearer "+Token:
		answer(w, http.StatusUnauthorized, errorBody(http.StatusUnauthorized, "the token is not valid"))
	case vm == nil:
		answer(w, http.StatusNotFound, errorBody(http.StatusNotFound, "there is no such VM"))
	case !running:
		answer(w, http.StatusConflict, errorBody(http.StatusConflict, "the VM is %s", vm.State))
	}
	return vm, running
}

// socket serves a channel of a VM that sends back what it receives, after its own name.
func (d *Daemon) socket(operation string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		vm, ok := d.reached(w, r, operation)
		if !ok {
			return
		}
		if r.Header.Get("Upgrade") == "" {
			answer(w, http.StatusUpgradeRequired, hypervisorapi.Error{
				Code: "upgrade_required", Error: "this is a WebSocket", RequestId: "r",
			})
			return
		}
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			d.t.Errorf("%s: %v", operation, err)
			return
		}
		defer func() { _ = conn.CloseNow() }() // it has ended
		ctx := context.WithoutCancel(r.Context())
		if r.URL.Query().Has("offset") {
			greeting := fmt.Appendf(nil, `{"log":"l","offset":%s}`, r.URL.Query().Get("offset"))
			if conn.Write(ctx, websocket.MessageText, greeting) != nil {
				return
			}
		}
		if conn.Write(ctx, websocket.MessageBinary, []byte(operation+" of "+vm.Name)) != nil {
			return
		}
		for {
			kind, message, err := conn.Read(ctx)
			if err != nil || conn.Write(ctx, kind, message) != nil {
				return
			}
		}
	}
}

func (d *Daemon) putFile(w http.ResponseWriter, r *http.Request) {
	vm, ok := d.reached(w, r, "PutFile")
	if !ok {
		return
	}
	content, err := io.ReadAll(r.Body)
	if err != nil {
		return // the sender has left
	}
	path := r.URL.Query().Get("path")
	if r.Header.Get("Content-Type") == "application/json" {
		var file hypervisorapi.PutFile
		if err := json.Unmarshal(content, &file); err != nil {
			d.t.Errorf("PutFile: %v", err)
		}
		path, content = file.Path, file.Content
	}
	d.mu.Lock()
	d.files[vm.Name+":"+path] = content
	d.mu.Unlock()
	sum := sha256.Sum256(content)
	answer(w, http.StatusOK, hypervisorapi.File{
		Path: path, Size: int64(len(content)), Mode: "0644", Sha256: hex.EncodeToString(sum[:]),
	})
}

func (d *Daemon) getFile(w http.ResponseWriter, r *http.Request) {
	vm, ok := d.reached(w, r, "GetFile")
	if !ok {
		return
	}
	var file hypervisorapi.GetFile
	if err := json.NewDecoder(r.Body).Decode(&file); err != nil {
		d.t.Errorf("GetFile: %v", err)
	}
	d.mu.Lock()
	content, found := d.files[vm.Name+":"+file.Path]
	d.mu.Unlock()
	if !found {
		answer(w, http.StatusNotFound, errorBody(http.StatusNotFound, "the guest refuses: there is no file %s", file.Path))
		return
	}
	w.Header().Set("X-File-Mode", "0640")
	answer(w, http.StatusOK, raw(content))
}
