package deliver

import (
	"net/http"
	"testing"
	"time"
)

// The example of Standard Webhooks.
func TestSignature(t *testing.T) {
	s, err := NewSigner("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	s.Sign(h, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if got, want := h.Get("Webhook-Signature"), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, bad := range []string{"s3cret", "whsec_s3cret!", "whsec_"} {
		if _, err := NewSigner(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
