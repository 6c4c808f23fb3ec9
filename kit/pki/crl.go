package pki

import (
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

const (
	typeCRL = "X509 CRL" // RFC 7468, section 6
	// maxSerialHex is 20 octets, the limit of RFC 5280 for serial and CRL numbers.
	maxSerialHex = 40
)

// Revoked is one entry of a revocation list.
type Revoked struct {
	Serial string // hex digits, as in Certificate.Serial
	At     time.Time
	Reason int // RFC 5280, 5.3.1: 0 to 6, 9 or 10; 0 means unspecified
}

// CRL returns the complete revocation list (RFC 5280, section 5) in DER. number must be greater
// than that of every earlier list. Relying parties expect the next list by nextUpdate. Times are in
// whole seconds. An invalid number, period, serial or reason, and a duplicate serial, are faults of
// kind Invalid.
func (a *Authority) CRL(number *big.Int, thisUpdate, nextUpdate time.Time, revoked []Revoked) (der []byte, err error) {
	if number == nil || number.Sign() < 0 || number.BitLen() >= 160 {
		return nil, fault.InvalidField("number", "must not be negative nor longer than 20 octets")
	}
	thisUpdate, nextUpdate = thisUpdate.UTC().Truncate(time.Second), nextUpdate.UTC().Truncate(time.Second)
	if !thisUpdate.Before(nextUpdate) {
		return nil, fault.InvalidField("next_update", "must be later than the list's own time")
	}
	entries := make([]x509.RevocationListEntry, 0, len(revoked))
	seen := make(map[string]bool, len(revoked))
	for i, r := range revoked {
		serial, err := parseSerial(r.Serial)
		if err != nil {
			return nil, fault.InvalidField(fmt.Sprintf("revoked[%d].serial", i), "%v", err)
		}
		// Code 7 is unassigned; 8 removes entries and belongs to delta lists.
		if r.Reason < 0 || r.Reason > 10 || r.Reason == 7 || r.Reason == 8 {
			return nil, fault.InvalidField(
				fmt.Sprintf("revoked[%d].reason", i), "must be 0 to 6, 9 or 10, not %d", r.Reason,
			)
		}
		key := serial.String()
		if seen[key] {
			return nil, fault.InvalidField(fmt.Sprintf("revoked[%d].serial", i), "is listed twice")
		}
		seen[key] = true
		entries = append(entries, x509.RevocationListEntry{
			SerialNumber: serial, RevocationTime: r.At.UTC().Truncate(time.Second), ReasonCode: r.Reason,
		})
	}
	der, err = x509.CreateRevocationList(rand.Reader, &x509.RevocationList{
		Number: number, ThisUpdate: thisUpdate, NextUpdate: nextUpdate, RevokedCertificateEntries: entries,
	}, a.cert, a.key)
	if err != nil {
		return nil, fmt.Errorf("pki: sign the revocation list: %w", err)
	}
	return der, nil
}

// CRLPEM returns a revocation list from CRL as PEM.
func CRLPEM(der []byte) string { return encodePEM(typeCRL, der) }

func parseSerial(text string) (*big.Int, error) {
	if text == "" || len(text) > maxSerialHex || strings.Trim(text, "0123456789abcdefABCDEF") != "" {
		return nil, fmt.Errorf("must be 1 to %d hex digits", maxSerialHex)
	}
	n, _ := new(big.Int).SetString(text, 16)
	if n.Sign() == 0 {
		return nil, fmt.Errorf("must not be zero")
	}
	return n, nil
}
