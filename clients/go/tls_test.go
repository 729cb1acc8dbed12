package pinfold_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/pinfold/pinfold/clients/go"
	pb "github.com/pinfold/pinfold/clients/go/gen/pinfold/v1"
)

// authority signs certificates for a test.
type authority struct {
	directory string
	cert      *x509.Certificate
	key       *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	made := &authority{directory: t.TempDir()}
	made.cert, made.key = made.sign(t, "ca", &x509.Certificate{
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return made
}

func (a *authority) path(name string) string { return filepath.Join(a.directory, name+".pem") }

// sign writes name.pem and name-key.pem.
func (a *authority) sign(t *testing.T, name string, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.Subject = pkix.Name{CommonName: name}
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(time.Hour)
	parent, signer := template, key
	if a.cert != nil {
		parent, signer = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	a.write(t, name, "CERTIFICATE", der)
	a.write(t, name+"-key", "EC PRIVATE KEY", secret)
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func (a *authority) write(t *testing.T, name, kind string, der []byte) {
	t.Helper()
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(a.path(name), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// serveTLS listens on TCP and asks clients for certificates of the same authority.
func serveTLS(t *testing.T, f *fake, a *authority) (address string) {
	t.Helper()
	a.sign(t, "server", &x509.Certificate{DNSNames: []string{"supervisor.test"}})
	pair, err := tls.LoadX509KeyPair(a.path("server"), a.path("server-key"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair},
		ClientCAs:    pool,
		ClientAuth:   tls.RequireAndVerifyClientCert,
	})))
	pb.RegisterSupervisorServiceServer(server, f)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

func TestTLSWithAClientCertificate(t *testing.T) {
	f, a := &fake{}, newAuthority(t)
	address := serveTLS(t, f, a)
	a.sign(t, "client", &x509.Certificate{})
	t.Setenv("PINFOLD_ADDRESS", address)
	t.Setenv("PINFOLD_TOKEN", "secret")
	t.Setenv("PINFOLD_TLS_CA", a.path("ca"))
	t.Setenv("PINFOLD_TLS_CERT", a.path("client"))
	t.Setenv("PINFOLD_TLS_KEY", a.path("client-key"))
	t.Setenv("PINFOLD_TLS_SERVER_NAME", "supervisor.test")
	client, err := pinfold.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Info(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(f.tokens) != 1 || f.tokens[0] != "Bearer secret" {
		t.Fatalf("got %q", f.tokens)
	}
}

func TestTLSRefusesAStranger(t *testing.T) {
	address := serveTLS(t, &fake{}, newAuthority(t))
	other := newAuthority(t)
	client, err := pinfold.New(pinfold.WithAddress(address), pinfold.WithPatience(100*time.Millisecond),
		pinfold.WithTLS(pinfold.TLS{CA: other.path("ca"), ServerName: "supervisor.test"}))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Info(t.Context()); err == nil {
		t.Fatal("a certificate of another authority was accepted")
	}
	_, err = pinfold.New(pinfold.WithAddress(address), pinfold.WithTLS(pinfold.TLS{CA: "/nonexistent"}))
	if !errors.Is(err, pinfold.ErrTLSFile) {
		t.Fatalf("got %v", err)
	}
}
