package contract

import (
	"net/http"

	"github.com/swaggest/swgui"
	"github.com/swaggest/swgui/v5emb"
)

// Mount serves the document at /openapi.yaml and an interactive reference at /docs. All assets of
// the page are in the binary.
func (c *Contract) Mount(r *Router) {
	r.Handle("GET /openapi.yaml", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = w.Write(c.raw) // a client that disconnected needs no response
	}))
	ui := v5emb.NewHandlerWithConfig(swgui.Config{
		Title:       c.doc.Info.Title,
		SwaggerJSON: "/openapi.yaml",
		BasePath:    "/docs/",
		SettingsUI: map[string]string{
			"persistAuthorization": "false",
			"tryItOutEnabled":      "true",
			"docExpansion":         `"list"`,
		},
	})
	r.Handle("GET /docs/", ui)
	r.Handle("GET /docs", http.RedirectHandler("/docs/", http.StatusMovedPermanently))
}
