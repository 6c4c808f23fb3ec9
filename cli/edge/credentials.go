package edge

import (
	"net/url"
)

// credentials are what of `mainstay dev`'s edge control plane is used here.
type credentials struct {
	AdminToken      string `json:"admin_token"`
	EnrollmentToken string `json:"enrollment_token"`
}

// credentials reads .mainstay/credentials.json; without the file they are empty.
// They are meant for the server on this machine and go nowhere else.
func (s *session) credentials(server *url.URL) (credentials, error) {
	var file struct {
		Edge credentials `json:"edge"`
	}
	err := s.env.DevCredentials(server, &file)
	return file.Edge, err
}
