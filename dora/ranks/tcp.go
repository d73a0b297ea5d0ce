package ranks

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spark-compile/spark-compile/runtime"
)

// tcp is a group over connections of the other ranks to the first one, which computes. An adapter's gradients are a few megabytes, so latency
// counts, and there are few ranks.
type tcp struct {
	place
	peers []*peer // by rank on the first one, nil for itself; on another the first one alone
	call  uint32

	done   chan struct{} // closed with the first failure
	once   sync.Once
	failed error
	stop   chan struct{} // ends what says "alive"
	closed bool
}

// name tells a rank from the others.
func (p *place) name() string {
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	return fmt.Sprintf("rank %d on %s, process %d", p.rank, host, os.Getpid())
}

// joinTCP connects the ranks.
func joinTCP(ctx context.Context, p place, opt Options) (Group, error) {
	if p.address == "" {
		return nil, fmt.Errorf("%s started this process as rank %d of %d, but nothing says how to reach the others: set MASTER_ADDR to the first rank's machine", p.launcher, p.rank, p.size)
	}
	t := &tcp{place: p, done: make(chan struct{}), stop: make(chan struct{})}
	ctx, cancel := context.WithTimeoutCause(ctx, opt.Timeout, errTimeout)
	defer cancel()
	join := t.reach
	if p.rank == 0 {
		join = t.listen
	}
	if err := join(ctx, opt); err != nil {
		return nil, err
	}
	for _, p := range t.peers {
		if p != nil {
			go p.read(opt.Silence, t.fail)
			go t.alive(p, opt.Silence/alivePerDead)
		}
	}
	return t, nil
}

var errTimeout = errors.New("timeout")

// listen waits for all other ranks.
func (t *tcp) listen(ctx context.Context, opt Options) error {
	_, port, err := net.SplitHostPort(t.address)
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", ":"+port)
	if err != nil {
		return fmt.Errorf("the first rank cannot listen: %w: is another job running? Choose another port with MASTER_PORT", err)
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	t.peers = make([]*peer, t.size)
	arrived := make(chan *peer)
	ended, cancel := context.WithCancel(ctx)
	defer cancel()
	names := make([]string, t.size)
	names[0] = t.name()
	var refused error
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go t.greet(ended, c, arrived, func(err error) { refused = err; cancel() })
		}
	}()
	for n := 1; n < t.size; {
		select {
		case p := <-arrived:
			rank := t.rankOf(p)
			if old := t.peers[rank]; old != nil {
				p.conn.Close()
				continue
			}
			t.peers[rank], names[rank] = p, p.name
			n++
		case <-ended.Done():
			for _, p := range t.peers {
				if p != nil {
					p.conn.Close()
				}
			}
			if refused != nil {
				return refused
			}
			return t.missing(ctx, opt)
		}
	}
	for rank, p := range t.peers {
		if p == nil {
			continue
		}
		if err := errors.Join(writeHello(p.conn, hello{Rank: rank, Size: t.size, Names: names}), p.conn.SetDeadline(time.Time{})); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// rankOf is the rank that greet has written in front of a peer's name.
func (t *tcp) rankOf(p *peer) (rank int) {
	fmt.Sscanf(p.name, "rank %d", &rank)
	return rank
}

// greet takes a connection, if it is of another rank of this job. What is none is left alone: ports are scanned.
func (t *tcp) greet(ctx context.Context, c net.Conn, arrived chan<- *peer, refuse func(error)) {
	deadline, _ := ctx.Deadline()
	_ = c.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { c.Close() })
	h, err := readHello(c)
	switch {
	case err != nil:
		c.Close()
		return
	case h.Job != t.job:
		_ = writeHello(c, hello{Refused: fmt.Sprintf("%s is of job %q, this is %q: choose another port with MASTER_PORT", h.Name, h.Job, t.job)})
		c.Close()
		return
	case h.Size != t.size || h.Rank < 1 || h.Rank >= t.size:
		err := fmt.Errorf("%s says that there are %d ranks, the first one is told of %d: give all the same number", h.Name, h.Size, t.size)
		_ = writeHello(c, hello{Refused: err.Error()})
		c.Close()
		refuse(err)
		return
	}
	if !stop() {
		return
	}
	select {
	case arrived <- newPeer(h.Name, c):
	case <-ctx.Done():
		c.Close()
	}
}

// missing says which ranks have not come.
func (t *tcp) missing(ctx context.Context, opt Options) error {
	if !errors.Is(context.Cause(ctx), errTimeout) {
		return ctx.Err()
	}
	var names []string
	for rank := 1; rank < t.size; rank++ {
		if t.peers[rank] == nil {
			names = append(names, fmt.Sprint(rank))
		}
	}
	return fmt.Errorf("rank %s of %d did not join within %v: see what they print, and whether they reach %s", strings.Join(names, ", "), t.size, opt.Timeout, t.address)
}

// reach connects to the first rank, which may not listen yet.
func (t *tcp) reach(ctx context.Context, opt Options) error {
	for {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", t.address)
		if err == nil {
			return t.introduce(ctx, c, opt)
		}
		select {
		case <-ctx.Done():
			if !errors.Is(context.Cause(ctx), errTimeout) {
				return ctx.Err()
			}
			return fmt.Errorf("rank %d: the first rank did not answer at %s within %v: %w", t.rank, t.address, opt.Timeout, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (t *tcp) introduce(ctx context.Context, c net.Conn, opt Options) error {
	deadline, _ := ctx.Deadline()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	err := errors.Join(c.SetDeadline(deadline), writeHello(c, hello{Rank: t.rank, Size: t.size, Job: t.job, Name: t.name()}))
	if err != nil {
		return err
	}
	h, err := readHello(c)
	switch {
	case h.Refused != "":
		c.Close()
		return errors.New(h.Refused)
	case err != nil && errors.Is(context.Cause(ctx), errTimeout):
		return fmt.Errorf("rank %d: the first rank at %s waited for others for %v", t.rank, t.address, opt.Timeout)
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		c.Close()
		return fmt.Errorf("rank %d: the first rank at %s went away: %w", t.rank, t.address, err)
	case len(h.Names) != t.size:
		c.Close()
		return fmt.Errorf("rank %d: the first rank at %s knows %d ranks, want %d", t.rank, t.address, len(h.Names), t.size)
	}
	t.peers = []*peer{newPeer(h.Names[0], c)}
	return c.SetDeadline(time.Time{})
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

// receive waits for a peer's frame of this call.
func (t *tcp) receive(ctx context.Context, p *peer, kind byte) ([]byte, error) {
	select {
	case f, ok := <-p.in:
		switch {
		case !ok:
			return nil, t.broken(p.left)
		case f.kind != kind || f.call != t.call:
			return nil, t.broken(fmt.Errorf("%s makes another call than %s: kind %d, number %d; here %d, %d", p.name, t.name(), f.kind, f.call, kind, t.call))
		}
		return f.data, nil
	case <-t.done:
		return nil, t.failed
	case <-ctx.Done():
		return nil, t.broken(fmt.Errorf("%s: %w", t.name(), ctx.Err()))
	}
}

// broken fails the group, and returns what made it fail first.
func (t *tcp) broken(err error) error {
	t.fail(err)
	<-t.done
	return t.failed
}

// exchange gathers what all ranks have on the first one, which makes of it what all ranks get.
func (t *tcp) exchange(ctx context.Context, kind byte, own []byte, make func(all [][]byte) ([]byte, error)) ([]byte, error) {
	t.call++
	select {
	case <-t.done:
		return nil, t.failed
	default:
	}
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
	}
	out, err := t.exchange(ctx, frameBroadcast, own, func(all [][]byte) ([]byte, error) {
		for rank, data := range all[1:] {
			if !slices.Equal(data, size) {
				return nil, fmt.Errorf("rank %d waits for a broadcast of %d bytes, rank 0 has %d", rank+1, binary.LittleEndian.Uint64(data), len(x))
			}
		}
		return x, nil
	})
	if err == nil {
		copy(x, out)
	}
	return err
}

// Gather implements Group.
func (t *tcp) Gather(ctx context.Context, x []byte) ([][]byte, error) {
	out, err := t.exchange(ctx, frameGather, x, func(all [][]byte) ([]byte, error) { return joined(all), nil })
	if err != nil {
		return nil, err
	}
	all, err := parted(out, t.size)
	if err != nil {
		return nil, t.broken(err)
	}
	return all, nil
}

// Close says goodbye, and waits a moment for what the others still send: a connection that is closed with something unread takes with it what was
// sent before.
func (t *tcp) Close() error {
	if t.closed {
		return nil
	}
	t.closed = true
	t.once.Do(func() {}) // a failure is told first
	close(t.stop)
	for _, p := range t.peers {
		if p == nil {
			continue
		}
		_ = p.send(frameBye, 0, nil)
		if c, ok := p.conn.(*net.TCPConn); ok {
			_ = c.CloseWrite()
		}
	}
	end := time.After(2 * time.Second)
	for _, p := range t.peers {
		if p == nil {
			continue
		}
		for open := true; open; {
			select {
			case _, open = <-p.in:
			case <-end:
				open = false
			}
		}
		p.conn.Close()
	}
	return nil
}
