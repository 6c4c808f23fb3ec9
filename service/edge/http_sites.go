package edge

import (
	"bytes"
	"context"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/kit/pki"
)

func apiSite(s Site) edgeapi.Site {
	out := edgeapi.Site{
		Id:         s.ID,
		OrgId:      s.OrgID,
		Name:       s.Name,
		Status:     edgeapi.SiteStatus(s.Status),
		Version:    s.Version,
		Labels:     orEmpty(s.Labels.V),
		LastSeenAt: s.LastSeenAt.Ptr(),
		EnrolledAt: s.EnrolledAt.Time,
	}
	if s.CertSerial != "" {
		out.Certificate = &struct {
			NotAfter time.Time `json:"not_after"`
			Serial   string    `json:"serial"`
		}{s.CertNotAfter.Time, s.CertSerial}
	}
	return out
}

// Enroll enrolls a new site.
func (a api) Enroll(ctx context.Context, req edgeapi.EnrollRequestObject) (edgeapi.EnrollResponseObject, error) {
	b := req.Body
	e, err := a.s.Enroll(ctx, EnrollRequest{
		Name:            b.Name,
		EnrollmentToken: b.EnrollmentToken,
		CSR:             value(b.CsrPem),
		Version:         value(b.Version),
		Labels:          value(b.Labels),
	})
	if err != nil {
		return nil, err
	}
	out := edgeapi.Enroll200JSONResponse{
		SiteId:                   e.Site.ID,
		OrgId:                    e.Site.OrgID,
		AgentToken:               e.AgentToken,
		HeartbeatIntervalSeconds: int(a.s.cfg.HeartbeatInterval.Seconds()),
	}
	if c := e.Certificate; c != nil {
		out.CertificatePem, out.CaPem, out.CertificateNotAfter = &c.PEM, ref(a.s.ca.CertificatePEM()), &c.NotAfter
	}
	return out, nil
}

// ListSites lists sites in scope.
func (a api) ListSites(
	ctx context.Context, req edgeapi.ListSitesRequestObject,
) (edgeapi.ListSitesResponseObject, error) {
	q := req.Params
	var order list.Order
	out, next, err := list.Rows(ctx, q.Limit, q.Cursor, 100, func(after string, limit int) (sites []Site, err error) {
		sites, order, err = a.s.Sites(ctx, SiteFilter{
			Status: string(value(q.Status)),
			Text:   value(q.Q),
			Sort:   string(value(q.Sort)),
			After:  after,
			Limit:  limit,
		})
		return sites, err
	}, func(s Site) string { return siteKey(order, s) }, apiSite)
	return edgeapi.ListSites200JSONResponse{Body: out, Headers: edgeapi.ListSites200ResponseHeaders{Link: next}}, err
}

// GetSite returns one site.
func (a api) GetSite(ctx context.Context, req edgeapi.GetSiteRequestObject) (edgeapi.GetSiteResponseObject, error) {
	site, err := a.s.Site(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	return edgeapi.GetSite200JSONResponse(apiSite(site)), nil
}

// PatchSite renames or relabels a site.
func (a api) PatchSite(
	ctx context.Context, req edgeapi.PatchSiteRequestObject,
) (edgeapi.PatchSiteResponseObject, error) {
	site, err := a.s.PatchSite(ctx, req.Id, req.Body.Name, value(req.Body.Labels))
	if err != nil {
		return nil, err
	}
	return edgeapi.PatchSite200JSONResponse(apiSite(site)), nil
}

// DeleteSite deletes a site.
func (a api) DeleteSite(
	ctx context.Context, req edgeapi.DeleteSiteRequestObject,
) (edgeapi.DeleteSiteResponseObject, error) {
	return edgeapi.DeleteSite204Response{}, a.s.DeleteSite(ctx, req.Id)
}

// RevokeSite revokes a site.
func (a api) RevokeSite(
	ctx context.Context, req edgeapi.RevokeSiteRequestObject,
) (edgeapi.RevokeSiteResponseObject, error) {
	site, err := a.s.RevokeSite(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	return edgeapi.RevokeSite200JSONResponse(apiSite(site)), nil
}

// RotateCertificate renews the calling site's certificate.
func (a api) RotateCertificate(
	ctx context.Context, req edgeapi.RotateCertificateRequestObject,
) (edgeapi.RotateCertificateResponseObject, error) {
	c, err := a.s.RotateCertificate(ctx, req.Id, req.Body.CsrPem)
	if err != nil {
		return nil, err
	}
	return edgeapi.RotateCertificate200JSONResponse{
		CertificatePem:      c.PEM,
		CaPem:               a.s.ca.CertificatePEM(),
		CertificateNotAfter: c.NotAfter,
		Serial:              c.Serial,
	}, nil
}

// GetCRL returns the revocation list, in DER or PEM.
func (a api) GetCRL(ctx context.Context, req edgeapi.GetCRLRequestObject) (edgeapi.GetCRLResponseObject, error) {
	list, err := a.s.CRL(ctx)
	if err != nil {
		return nil, err
	}
	if value(req.Params.Format) == edgeapi.GetCRLParamsFormatPem {
		list = []byte(pki.CRLPEM(list))
	}
	return edgeapi.GetCRL200ApplicationpkixCrlResponse{
		Body:          bytes.NewReader(list),
		ContentLength: int64(len(list)),
	}, nil
}

// Heartbeat records a heartbeat of the calling site.
func (a api) Heartbeat(
	ctx context.Context, req edgeapi.HeartbeatRequestObject,
) (edgeapi.HeartbeatResponseObject, error) {
	var h Heartbeat
	if b := req.Body; b != nil {
		h = Heartbeat{Version: value(b.Version), Labels: value(b.Labels)}
	}
	reply, err := a.s.Heartbeat(ctx, h)
	if err != nil {
		return nil, err
	}
	return edgeapi.Heartbeat200JSONResponse{
		Status:                   edgeapi.SiteStatus(reply.Site.Status),
		SiteId:                   reply.Site.ID,
		HeartbeatIntervalSeconds: int(a.s.cfg.HeartbeatInterval.Seconds()),
		ServerTime:               a.s.now().UTC(),
		RenewCertificate:         reply.RenewCertificate,
		DesiredRevision:          reply.DesiredRevision,
	}, nil
}
