package pinfold

import (
	"crypto/tls"
	"crypto/x509"
	"os"

	"google.golang.org/grpc/codes"
)

// TLS is how a TCP address is secured. All paths are of PEM files.
type TLS struct {
	// CA signed the supervisor's certificate. Empty: the system's roots.
	CA string
	// Certificate and Key are the client's own, where the supervisor asks for one.
	Certificate string
	Key         string
	// ServerName is the name in the supervisor's certificate, where it isn't the host of the
	// address.
	ServerName string
}

// TLSFromEnvironment reads PINFOLD_TLS_CA, _CERT, _KEY and _SERVER_NAME; nil when none is set.
func TLSFromEnvironment() *TLS {
	found := TLS{
		CA:          os.Getenv("PINFOLD_TLS_CA"),
		Certificate: os.Getenv("PINFOLD_TLS_CERT"),
		Key:         os.Getenv("PINFOLD_TLS_KEY"),
		ServerName:  os.Getenv("PINFOLD_TLS_SERVER_NAME"),
	}
	if found == (TLS{}) {
		return nil
	}
	return &found
}

func (t *TLS) config() (*tls.Config, error) {
	config := &tls.Config{ServerName: t.ServerName, MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, tlsFile(err.Error())
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, tlsFile("no certificate in " + t.CA)
		}
	}
	if t.Certificate != "" || t.Key != "" {
		pair, err := tls.LoadX509KeyPair(t.Certificate, t.Key)
		if err != nil {
			return nil, tlsFile(err.Error())
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func tlsFile(message string) *Error {
	return &Error{Reason: ErrTLSFile, Code: codes.InvalidArgument, Message: message}
}
