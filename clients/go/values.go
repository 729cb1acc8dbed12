package pinfold

import (
	"crypto/rand"
	"encoding/hex"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
)

// newID makes a fresh id, so that a request can be sent again.
func newID(prefix string) string {
	var random [8]byte
	// It never fails (see crypto/rand).
	_, _ = rand.Read(random[:])
	return prefix + "_" + hex.EncodeToString(random[:])
}

func orNewID(id, prefix string) string {
	if id == "" {
		return newID(prefix)
	}
	return id
}

func duration(d time.Duration) *durationpb.Duration { return durationpb.New(d) }

func toBytes(env map[string]string) map[string][]byte {
	if len(env) == 0 {
		return nil
	}
	result := make(map[string][]byte, len(env))
	for name, value := range env {
		result[name] = []byte(value)
	}
	return result
}
