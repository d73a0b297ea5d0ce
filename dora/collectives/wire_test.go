package collectives

import (
	"encoding/binary"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFrames_OfOtherSizesAreRefused before anything is kept for them: what no call here expects, and what has no bytes
// at all.
func TestFrames_OfOtherSizesAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		kind byte
		call uint32
		n    uint64
		want string
	}{
		"a vector of 1 TiB":       {frameMean, 1, 1 << 40, "of 1099511627776 bytes in call 1, where at most 400000"},
		"a broadcast of one more": {frameBroadcast, 1, smallBytes + 1, "where at most 65536 are expected"},
		"a call that is over":     {frameGather, 0, 1 << 20, "where at most 65536 are expected"},
		"a long reason":           {frameAbort, 0, 1 << 20, "where at most 65536 are expected"},
		"alive, with bytes":       {frameAlive, 0, 1, "where at most 0 are expected"},
		"bye, with bytes":         {frameBye, 0, 1 << 63, "where at most 0 are expected"},
		"of no kind":              {99, 1, 0, "a message of kind 99"},
	} {
		there, here := net.Pipe()
		g := newTCP(place{size: 2})
		g.expects.begin(1, frameMean, g.largest(frameMean, 400000))
		p := newPeer("rank 1", here)
		told := make(chan error, 1)
		go p.read(5*time.Second, &g.expects, func(err error) { told <- err })
		head := binary.LittleEndian.AppendUint32([]byte{c.kind}, c.call)
		_, err := there.Write(binary.LittleEndian.AppendUint64(head, c.n))
		require.NoError(t, err)
		assert.ErrorContains(t, <-told, c.want, name)
		there.Close()
	}
}

// TestFrames_OfACallToComeWaitForIt: one larger than those before is read when its call begins here, another one at
// once.
func TestFrames_OfACallToComeWaitForIt(t *testing.T) {
	there, here := net.Pipe()
	defer there.Close()
	g := newTCP(place{size: 2})
	p := newPeer("rank 1", here)
	go p.read(5*time.Second, &g.expects, func(error) {})
	sent := make(chan error, 1)
	from := newPeer("rank 0", there)
	data := make([]byte, 4*smallBytes)
	go func() { sent <- from.send(frameMean, 1, data) }()
	select {
	case <-sent:
		t.Fatal("it was read before its call")
	case <-time.After(50 * time.Millisecond):
	}
	g.expects.begin(1, frameMean, uint64(len(data)))
	require.NoError(t, <-sent)
	assert.Len(t, (<-p.in).data, len(data))
	require.NoError(t, from.send(frameMean, 2, data), "as large as the one before")
	assert.Len(t, (<-p.in).data, len(data))
}

// TestTheFirstRank_KeepsNoMoreThanTheyMayBe: a number of ranks is a number of connections and of their memory.
func TestTheFirstRank_KeepsNoMoreThanTheyMayBe(t *testing.T) {
	_, err := Join(t.Context(), Options{Getenv: rankEnv(0, 1<<30, "29500")})
	assert.ErrorContains(t, err, "1073741824 ranks: over TCP there may be 1024")
}

// TestFrames_BeforeTheEndAreTaken: a rank that looks late at what the first one said before it ended gets it.
func TestFrames_BeforeTheEndAreTaken(t *testing.T) {
	for range 50 {
		g := newTCP(place{rank: 1, size: 2})
		p := newPeer("rank 0", nil)
		g.call = 7
		p.in <- frame{kind: frameMean, call: 7, data: []byte("mean")}
		g.fail(errors.New("rank 0 ended"))
		data, err := g.receive(t.Context(), p, frameMean)
		require.NoError(t, err)
		assert.Equal(t, "mean", string(data))
		_, err = g.receive(t.Context(), p, frameMean)
		require.EqualError(t, err, "rank 0 ended")
	}
}
