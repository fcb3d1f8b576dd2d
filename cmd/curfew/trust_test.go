//go:build unix

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/api"
)

// authority makes an authority: a certificate for a server on this machine, and what trusts it, as PEM.
func authority(t *testing.T, name string) (server tls.Certificate, root []byte) {
	t.Helper()
	made := func(serial int64, edit func(*x509.Certificate), parent *x509.Certificate, by *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		c := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
		edit(c)
		if parent == nil {
			parent, by = c, key
		}
		der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, by)
		if err != nil {
			t.Fatal(err)
		}
		if c, err = x509.ParseCertificate(der); err != nil {
			t.Fatal(err)
		}
		return c, key
	}
	ca, caKey := made(1, func(c *x509.Certificate) {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
	}, nil, nil)
	leaf, key := made(2, func(c *x509.Certificate) {
		c.IPAddresses, c.ExtKeyUsage = []net.IP{net.IPv4(127, 0, 0, 1)}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}, ca, caKey)
	return tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw})
}

// TestWebhookOverTLS: an alert reaches a server whose certificate is from an authority that the process trusts. With a certificate from
// another one the server is told nothing; the log says why, the alert is tried again, and runs go on meanwhile.
func TestWebhookOverTLS(t *testing.T) {
	good, root := authority(t, "ours")
	bad, _ := authority(t, "somebody else's")
	var presents atomic.Pointer[tls.Certificate]
	presents.Store(&bad)
	var mu sync.Mutex
	var told []string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var alert struct {
			Type string
			Data struct{ Policy string }
		}
		if err := json.NewDecoder(r.Body).Decode(&alert); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		told = append(told, alert.Type+" of "+alert.Data.Policy)
	}))
	server.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{*presents.Load()}}, nil
	}}
	server.Config.ErrorLog = log.New(t.Output(), "", 0) // refusals are expected
	server.StartTLS()
	defer server.Close()

	s := newSite(t, sqlite, ledgerFile, strings.ReplaceAll(twoPolicies, "table: loan", "table: gone"), twoTables...)
	file := filepath.Join(s.dir, "curfew.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, string(text)+fmt.Sprintf("alerts: {webhook: {url: %q}}\n", server.URL+"/s3cret-hook"))
	s.secrets["the webhook's address"] = "s3cret-hook"
	write(t, filepath.Join(s.dir, "root.pem"), string(root))
	token := strings.TrimSpace(s.must("token", "create", "--scope", "trigger").stdout.String())
	s.fill("plain", 100)
	p := s.startIn(s.dir, []string{"SSL_CERT_FILE=" + filepath.Join(s.dir, "root.pem"), "SSL_CERT_DIR=" + s.dir, fmt.Sprintf("%s=%d", speedVar, fastTime)},
		"serve", "--listen", "127.0.0.1:0")
	url := p.address()

	s.call(url, token, "rich") // its table is not there
	p.says(`"msg":"alert_not_sent"`)
	s.call(url, token, "plain")
	s.eventually(p, "do the run", func() bool {
		return s.count(s.led, "SELECT count(*) FROM curfew_run WHERE policy = 'plain' AND state = '"+api.StateSucceeded+"'") == 1
	})
	p.says(`"attempts":2,`)
	refused := 0
	for line := range strings.SplitSeq(p.stderr.String(), "\n") {
		if strings.Contains(line, `"msg":"alert_not_sent"`) {
			refused++
			if !strings.Contains(line, "certificate signed by unknown authority") {
				t.Errorf("the log does not say why: %s", line)
			}
		}
	}
	mu.Lock()
	if len(told) > 0 || refused < 2 {
		t.Errorf("a server that is not trusted was told %v, and refused %d times", told, refused)
	}
	mu.Unlock()

	presents.Store(&good)
	// What reached nobody is not given up.
	s.eventually(p, "tell", func() bool { return s.count(s.led, "SELECT count(*) FROM curfew_alert WHERE sent IS NULL") == 0 })
	p.signal(syscall.SIGTERM)
	s.well(p)
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff([]string{"run.failed of rich"}, told); diff != "" {
		t.Errorf("the server was told (-want +got):\n%s", diff)
	}
}
