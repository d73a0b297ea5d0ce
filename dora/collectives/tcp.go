package collectives

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"github.com/spark-compile/spark-compile/internal/console"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spark-compile/spark-compile/runtime"
)

// tcp is a group over connections of the other ranks to the first one, which computes. An adapter's gradients are a few
// megabytes, so latency counts, and there are few ranks.
type tcp struct {
	place
	peers []*peer // by rank on the first one, nil for itself; on another the first one alone
	call  uint32
	most  int // bytes of a rank in a frame that gathers

	done   chan struct{} // closed with the first failure
	once   sync.Once
	failed error
	stop   chan struct{} // ends what says "alive"
	closed bool

	expects expectation
}

func newTCP(p place) *tcp {
	t := &tcp{place: p, most: maxGather, done: make(chan struct{}), stop: make(chan struct{})}
	t.expects.changed.L = &t.expects.mu
	for _, kind := range []byte{frameMean, frameBroadcast, frameGather, frameAbort} {
		t.expects.most[kind] = smallBytes
	}
	return t
}

// name tells a rank from the others.
func (p *place) name() string {
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	return fmt.Sprintf("rank %d on %s, process %d", p.rank, host, os.Getpid())
}

// maxRanks bounds what the first rank keeps for the others, and their connections.
const maxRanks = 1024

// joinTCP connects the ranks.
func joinTCP(ctx context.Context, p place, opt Options) (Group, error) {
	if p.size > maxRanks {
		return nil, fmt.Errorf("%d ranks: over TCP there may be %d; start them by mpirun without MASTER_ADDR",
			p.size, maxRanks)
	}
	token, err := tokenFor(ctx, p.address, opt.Getenv)
	if err != nil {
		return nil, fmt.Errorf("rank %d of %d: %w", p.rank, p.size, err)
	}
	t := newTCP(p)
	ctx, cancel := context.WithTimeoutCause(ctx, opt.Timeout, errTimeout)
	defer cancel()
	join := t.reach
	if p.rank == 0 {
		join = t.listen
	}
	if err := join(ctx, opt, token); err != nil {
		return nil, err
	}
	for _, p := range t.peers {
		if p != nil {
			go p.read(opt.Silence, &t.expects, t.fail)
			go t.alive(p, opt.Silence/alivePerDead)
		}
	}
	return t, nil
}

var errTimeout = errors.New("timeout")

// listenRemedy says what to do about an address at which the first rank cannot listen.
func listenRemedy(err error) string {
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		return "MASTER_ADDR names no interface of this machine, on which rank 0 was started: name one of its addresses"
	}
	return "is another job running? Choose another port with MASTER_PORT"
}

// missing says which ranks have not come.
func (t *tcp) missing(ctx context.Context, opt Options, peers []*peer, at net.Addr) error {
	if !errors.Is(context.Cause(ctx), errTimeout) {
		return ctx.Err()
	}
	var names []string
	for rank := 1; rank < t.size; rank++ {
		if peers[rank] == nil {
			names = append(names, fmt.Sprint(rank))
		}
	}
	text := fmt.Sprintf("rank %s of %d did not join within %v: see what they print, and whether they reach %v",
		strings.Join(names, ", "), t.size, opt.Timeout, at)
	if a, ok := at.(*net.TCPAddr); ok && a.IP.IsLoopback() {
		text += ", which only this machine does: for others name the address of an interface in MASTER_ADDR"
	}
	return errors.New(text)
}

// Pauses between the attempts to reach the first rank: the first, and the longest.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
)

// reach connects to the first rank, which may not listen yet. Who listens there without the token may be a stranger,
// before the first rank or in a crowd of others: it is reported once, and does not end the job.
func (t *tcp) reach(ctx context.Context, opt Options, token token) error {
	told := ""
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", t.address)
		if err == nil {
			var proven bool
			if proven, err = t.introduce(ctx, c, token, opt); proven || err == nil {
				return err
			}
			err = fmt.Errorf("%s: %w", c.RemoteAddr(), err)
			if text := fmt.Sprintf("rank %d: %v; trying again", t.rank, err); text != told && ctx.Err() == nil {
				opt.Message(text)
				told = text
			}
		} else {
			pause = firstPause
		}
		select {
		case <-ctx.Done():
			if !errors.Is(context.Cause(ctx), errTimeout) {
				return ctx.Err()
			}
			return fmt.Errorf("rank %d: the first rank did not answer at %s within %v: %w", t.rank, t.address, opt.Timeout, err)
		case <-time.After(pause):
		}
	}
}

// introduce is a rank's side of the handshake, until all ranks have come. It reports whether the other end has proven
// to be the first rank.
func (t *tcp) introduce(ctx context.Context, c net.Conn, token token, opt Options) (proven bool, err error) {
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	_ = c.SetDeadline(time.Now().Add(handshakeTime))
	m, err := t.greeted(&handshake{conn: c, token: token, role: roleRank})
	if err != nil {
		return false, err
	}
	m.Name, m.Refused = console.Escape(m.Name), console.Escape(m.Refused)
	switch {
	case m.Refused != "":
		return true, errors.New(m.Refused)
	case m.Rank != t.rank || m.Size != t.size || m.Job != t.job:
		return true, fmt.Errorf("rank %d of %d: %s takes it for rank %d of %d of job %q",
			t.rank, t.size, m.Name, m.Rank, m.Size, m.Job)
	}
	deadline, _ := ctx.Deadline()
	_ = c.SetDeadline(deadline)
	start := make([]byte, 1)
	_, err = io.ReadFull(c, start)
	switch {
	case err != nil && errors.Is(context.Cause(ctx), errTimeout), errors.Is(err, os.ErrDeadlineExceeded):
		return true, fmt.Errorf("rank %d: the first rank at %s waited for others for %v", t.rank, t.address, opt.Timeout)
	case err != nil && ctx.Err() != nil:
		return true, ctx.Err()
	case err != nil:
		return true, fmt.Errorf("rank %d: the first rank at %s went away: %w", t.rank, t.address, err)
	case start[0] != startByte:
		return true, fmt.Errorf("rank %d: the first rank at %s says %q instead of its start", t.rank, t.address, start)
	}
	t.peers = []*peer{newPeer(m.Name, c)}
	return true, c.SetDeadline(time.Time{})
}

// greeted is the first rank's answer to a rank that has proven to be one.
func (t *tcp) greeted(h *handshake) (m hello, err error) {
	err = errors.Join(h.open(), h.opened())
	if err == nil {
		err = h.say(hello{Rank: t.rank, Size: t.size, Job: t.job, Name: t.name()})
	}
	if err == nil {
		m, err = h.hear()
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		err = fmt.Errorf("what listens there hung up: it does not take the token of %s, or is no first rank: %s",
			h.token.source, remedy)
	case errors.Is(err, errToken):
		err = fmt.Errorf("what listens there does not know the token of %s: it is no first rank of this job", h.token.source)
	}
	return m, err
}

// alive tells a peer that this rank lives.
func (t *tcp) alive(p *peer, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if p.send(frameAlive, 0, nil) != nil {
				return
			}
		case <-t.stop:
			return
		}
	}
}

// fail is the group's end. The first rank tells the others why.
func (t *tcp) fail(err error) {
	t.once.Do(func() {
		t.failed = err
		close(t.done)
		t.expects.end()
		for _, p := range t.peers {
			if p != nil {
				_ = p.conn.SetWriteDeadline(time.Now().Add(time.Second))
				_ = p.send(frameAbort, 0, []byte(err.Error()))
			}
		}
	})
}

func (t *tcp) Rank() int      { return t.rank }
func (t *tcp) Size() int      { return t.size }
func (t *tcp) Engine() string { return "tcp" }

// Failed is closed when the group has failed, by what the function then says.
func (t *tcp) Failed() (<-chan struct{}, func() error) {
	return t.done, func() error { return t.failed }
}

// Abort ends the others.
func (t *tcp) Abort(err error) { t.fail(fmt.Errorf("%s: %w", t.name(), err)) }

// receive waits for a peer's frame of this call. What came before the group failed is taken: ranks that find the same
// fault in it end alike.
func (t *tcp) receive(ctx context.Context, p *peer, kind byte) ([]byte, error) {
	select {
	case f, ok := <-p.in:
		return t.received(p, f, ok, kind)
	case <-t.done:
		select {
		case f, ok := <-p.in:
			if ok {
				return t.received(p, f, ok, kind)
			}
		default:
		}
		return nil, t.failed
	case <-ctx.Done():
		return nil, t.broken(fmt.Errorf("%s: %w", t.name(), ctx.Err()))
	}
}

func (t *tcp) received(p *peer, f frame, ok bool, kind byte) ([]byte, error) {
	switch {
	case !ok:
		return nil, t.broken(p.left)
	case f.kind != kind || f.call != t.call:
		return nil, t.broken(fmt.Errorf("%s makes another call than %s: kind %d, number %d; here %d, %d",
			p.name, t.name(), f.kind, f.call, kind, t.call))
	}
	return f.data, nil
}

// broken fails the group, and returns what made it fail first.
func (t *tcp) broken(err error) error {
	t.fail(err)
	<-t.done
	return t.failed
}

// largest is how many bytes the other end may send in a call in which this one has so many.
func (t *tcp) largest(kind byte, own int) uint64 {
	switch {
	case kind == frameGather && t.rank == 0:
		return uint64(t.most)
	case kind == frameGather:
		return uint64(t.size) * uint64(t.most+8)
	case kind == frameBroadcast && t.rank == 0:
		return 8 // how many bytes another rank waits for
	}
	return uint64(own)
}

// exchange gathers what all ranks have on the first one, which makes of it what all ranks get.
func (t *tcp) exchange(ctx context.Context, kind byte, own []byte,
	make func(all [][]byte) ([]byte, error)) ([]byte, error) {
	t.call++
	select {
	case <-t.done:
		return nil, t.failed
	default:
	}
	t.expects.begin(t.call, kind, t.largest(kind, len(own)))
	if t.rank != 0 {
		if err := t.peers[0].send(kind, t.call, own); err != nil {
			return nil, t.lost(t.peers[0], err)
		}
		return t.receive(ctx, t.peers[0], kind)
	}
	all := [][]byte{own}
	for _, p := range t.peers[1:] {
		data, err := t.receive(ctx, p, kind)
		if err != nil {
			return nil, err
		}
		all = append(all, data)
	}
	out, err := make(all)
	if err != nil {
		return nil, t.broken(err)
	}
	for _, p := range t.peers[1:] {
		if err := p.send(kind, t.call, out); err != nil {
			return nil, t.lost(p, err)
		}
	}
	return out, nil
}

// lost is the error of a peer that cannot be written to. What it said before it went is read first.
func (t *tcp) lost(p *peer, err error) error {
	select {
	case <-t.done:
	case <-time.After(time.Second):
	}
	return t.broken(fmt.Errorf("%s: %w", p.name, err))
}

// Mean implements Group.
func (t *tcp) Mean(ctx context.Context, x []float32) error {
	out, err := t.exchange(ctx, frameMean, runtime.Bytes(x), func(all [][]byte) ([]byte, error) {
		vectors, err := vectorsOf(all)
		if err != nil {
			return nil, err
		}
		return runtime.Bytes(mean(vectors)), nil
	})
	if err == nil {
		copy(runtime.Bytes(x), out)
	}
	return err
}

// Broadcast implements Group.
func (t *tcp) Broadcast(ctx context.Context, x []byte) error {
	size := binary.LittleEndian.AppendUint64(nil, uint64(len(x)))
	own := size
	if t.rank == 0 {
		own = x
	} else {
		t.expects.raise(frameBroadcast, uint64(len(x)))
	}
	out, err := t.exchange(ctx, frameBroadcast, own, func(all [][]byte) ([]byte, error) {
		for rank, data := range all[1:] {
			if !slices.Equal(data, size) {
				return nil, fmt.Errorf("rank %d waits for a broadcast of %d bytes, rank 0 has %d",
					rank+1, binary.LittleEndian.Uint64(data), len(x))
			}
		}
		return x, nil
	})
	if err == nil {
		copy(x, out)
	}
	return err
}

// Gather implements Group. Messages go in parts that fit frames, each preceded by a byte that says whether others
// follow.
func (t *tcp) Gather(ctx context.Context, x []byte) ([][]byte, error) {
	all := make([][]byte, t.size)
	for more := true; more; {
		n := min(len(x), t.most-1)
		part := append([]byte{0}, x[:n]...)
		if x = x[n:]; len(x) > 0 {
			part[0] = 1
		}
		parts, err := t.gather(ctx, part)
		if err != nil {
			return nil, err
		}
		more = false
		for rank, part := range parts {
			if len(part) == 0 {
				return nil, t.broken(fmt.Errorf("rank %d: an empty part of a message", rank))
			}
			all[rank] = append(all[rank], part[1:]...)
			more = more || part[0] != 0
		}
	}
	return all, nil
}

// gather is Gather of parts.
func (t *tcp) gather(ctx context.Context, part []byte) ([][]byte, error) {
	out, err := t.exchange(ctx, frameGather, part, func(all [][]byte) ([]byte, error) { return joined(all), nil })
	if err != nil {
		return nil, err
	}
	parts, err := parted(out, t.size)
	if err != nil {
		return nil, t.broken(err)
	}
	return parts, nil
}

// Close says goodbye, and waits a moment for what the others still send: a connection that is closed with something
// unread takes with it what was sent before.
func (t *tcp) Close() error {
	if t.closed {
		return nil
	}
	t.closed = true
	t.once.Do(func() {}) // a failure is told first
	close(t.stop)
	t.expects.end()
	for _, p := range t.peers {
		if p == nil {
			continue
		}
		_ = p.send(frameBye, 0, nil)
		if c, ok := p.conn.(*net.TCPConn); ok {
			_ = c.CloseWrite()
		}
	}
	end, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	for _, p := range t.peers {
		if p == nil {
			continue
		}
		for open := true; open; {
			select {
			case _, open = <-p.in:
			case <-end.Done():
				open = false
			}
		}
		p.conn.Close()
	}
	return nil
}
