package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// The certificates of a cluster, each with its key beside it, below pkiFolder.
const (
	pkiFolder  = "pki"
	authority  = "ca"     // of the API server, and of those who call it
	serverPair = "server" // of the API server and of kubelets
	adminPair  = "admin"  // of a caller who may do everything
	accountKey = "sa.key" // signs the tokens of service accounts
)

// validFor is how long certificates hold: longer than a cluster is kept.
const validFor = 10 * 365 * 24 * time.Hour

// serviceNetwork is where Services have their addresses, of which the first is the API server's own.
const serviceNetwork = "10.96.0.0/16"

func (f *folder) crt(name string) string { return f.path(filepath.Join(pkiFolder, name+".crt")) }
func (f *folder) key(name string) string { return f.path(filepath.Join(pkiFolder, name+".key")) }

// makeCredentials makes the certificates and keys, all of them or none, unless the folder has them.
func (f *folder) makeCredentials() error {
	if _, err := os.Stat(f.path(pkiFolder)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	beside := f.path(pkiFolder + ".new")
	if err := errors.Join(os.RemoveAll(beside), os.Mkdir(beside, 0o700)); err != nil {
		return err
	}
	ca, err := issue(beside, authority, subject("devcluster"), nil)
	if err != nil {
		return err
	}
	server := subject("kube-apiserver")
	server.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	server.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 96, 0, 1)}
	if _, err := issue(beside, serverPair, server, ca); err != nil {
		return err
	}
	node := subject("system:node:"+realNode, "system:nodes")
	node.DNSNames = []string{realNode}
	if _, err := issue(beside, nodePair, node, ca); err != nil {
		return err
	}
	if _, err := issue(beside, adminPair, subject("admin", "system:masters"), ca); err != nil {
		return err
	}
	signer, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	if err := writePEM(
		filepath.Join(beside, accountKey), "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(signer),
	); err != nil {
		return err
	}
	return os.Rename(beside, f.path(pkiFolder))
}

func subject(name string, groups ...string) *x509.Certificate {
	return &x509.Certificate{Subject: pkix.Name{CommonName: name, Organization: groups}}
}

// pair is a certificate with its key.
type pair struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// issue writes a certificate with its key: an authority if by is nil, else one that by has signed.
func issue(dir, name string, c *x509.Certificate, by *pair) (*pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	if c.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, err
	}
	// Clocks of clients may be behind.
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(validFor)
	if by == nil {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
		by = &pair{c, key}
	} else {
		c.KeyUsage = x509.KeyUsageDigitalSignature
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, by.certificate, key.Public(), by.key)
	if err != nil {
		return nil, err
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return &pair{made, key}, errors.Join(
		writePEM(filepath.Join(dir, name+".crt"), "CERTIFICATE", der),
		writePEM(filepath.Join(dir, name+".key"), "EC PRIVATE KEY", secret),
	)
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// writeKubeconfig writes the file by which the administrator reaches the API server.
func (f *folder) writeKubeconfig(address string) error {
	const name = "devcluster"
	c := api.NewConfig()
	cluster, user := api.NewCluster(), api.NewAuthInfo()
	cluster.Server = "https://" + address
	var errs [3]error
	cluster.CertificateAuthorityData, errs[0] = os.ReadFile(f.crt(authority))
	user.ClientCertificateData, errs[1] = os.ReadFile(f.crt(adminPair))
	user.ClientKeyData, errs[2] = os.ReadFile(f.key(adminPair))
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	c.Clusters[name], c.AuthInfos[name] = cluster, user
	c.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name}
	c.CurrentContext = name
	raw, err := clientcmd.Write(*c)
	if err != nil {
		return err
	}
	return f.write(kubeconfigFile, raw)
}
