package collectives

import (
	"context"
	"errors"
	"fmt"
	"github.com/spark-compile/spark-compile/internal/console"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	// maxOpen bounds the handshakes under way. One more ends the oldest: those of ranks take milliseconds.
	maxOpen = 64
	// handshakeTime bounds one of them.
	handshakeTime = 10 * time.Second
)

// lobby is where the first rank waits for the others. Anybody who reaches the address may connect; who does not prove
// to know the token is refused and reported, takes no seat and changes nothing.
type lobby struct {
	t      *tcp
	token  token
	report *reports

	mu     sync.Mutex
	open   []net.Conn // with a handshake under way, the oldest first
	seats  []seat     // by rank; the first one's is free
	free   int
	full   chan struct{} // closed with the last free seat
	closed bool
}

// seat is a rank's. It is taken while the rank is told so, and then the rank is there.
type seat struct {
	peer  *peer
	there bool
}

func newLobby(t *tcp, token token, message func(string)) *lobby {
	return &lobby{t: t, token: token, report: &reports{say: message},
		seats: make([]seat, t.size), free: t.size - 1, full: make(chan struct{})}
}

// accept takes connections until the listener is closed.
func (b *lobby) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // too many open files, or a connection that is gone already
			b.report.tell(fmt.Sprintf("a connection cannot be accepted: %v", err))
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if b.enter(c) {
			go b.greet(c)
		}
	}
}

// enter notes a connection.
func (b *lobby) enter(c net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		c.Close()
		return false
	}
	if len(b.open) == maxOpen {
		b.open[0].Close() // its goroutine ends by that
		b.open = b.open[1:]
	}
	b.open = append(b.open, c)
	return true
}

// close ends all handshakes, and returns the ranks that are there.
func (b *lobby) close() (peers []*peer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for _, c := range b.open {
		c.Close()
	}
	for _, s := range b.seats {
		if s.peer != nil && !s.there {
			s.peer.conn.Close()
			s.peer = nil
		}
		peers = append(peers, s.peer)
	}
	return peers
}

// left removes a connection from those with a handshake under way.
func (b *lobby) left(c net.Conn) {
	b.open = slices.DeleteFunc(b.open, func(o net.Conn) bool { return o == c })
}

// greet gives a connection its seat, if it is of a rank of this job.
func (b *lobby) greet(c net.Conn) {
	_ = c.SetDeadline(time.Now().Add(handshakeTime))
	err := b.shake(c)
	b.mu.Lock()
	b.left(c)
	closed := b.closed
	b.mu.Unlock()
	if err == nil {
		return
	}
	c.Close()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("it did not finish its handshake within %v", handshakeTime)
	} else if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("it hung up before its proof")
	}
	if !closed {
		b.report.tell(fmt.Sprintf("refused a connection from %v: %v", c.RemoteAddr(), err))
	}
}

// shake is the first rank's side of a handshake.
func (b *lobby) shake(c net.Conn) error {
	h := &handshake{conn: c, token: b.token, role: roleFirst}
	err := h.opened()
	if err == nil || errors.Is(err, errVersion) { // that one is to see the version
		err = errors.Join(err, h.open())
	}
	if err != nil {
		return err
	}
	m, err := h.hear()
	if err != nil {
		return err
	}
	m.Name = console.Escape(m.Name)
	answer := hello{Size: b.t.size, Job: b.t.job, Name: b.t.name()}
	if refused := b.take(m, c); refused != nil {
		answer.Refused = refused.Error()
		_ = h.say(answer)
		return refused
	}
	answer.Rank = m.Rank
	if err := errors.Join(h.say(answer), c.SetDeadline(time.Time{})); err != nil {
		b.leave(m.Rank)
		return err
	}
	b.arrived(m.Rank)
	return nil
}

// take gives a rank the seat that is its, unless a process that lives has it. The connection is no stranger's any more,
// so others do not end it.
func (b *lobby) take(m hello, c net.Conn) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case m.Job != b.t.job:
		return fmt.Errorf("%s is of job %q, this is %q: choose another port with MASTER_PORT", m.Name, m.Job, b.t.job)
	case m.Size != b.t.size:
		return fmt.Errorf("%s says that there are %d ranks, the first one is told of %d: give all the same number",
			m.Name, m.Size, b.t.size)
	case m.Rank < 1 || m.Rank >= b.t.size:
		return fmt.Errorf("%s says that it is rank %d of %d: the first one listens here", m.Name, m.Rank, b.t.size)
	case b.closed:
		return net.ErrClosed
	}
	s := &b.seats[m.Rank]
	if s.there && b.free > 0 && gone(s.peer.conn) {
		s.peer.conn.Close()
		*s, b.free = seat{}, b.free+1
	}
	if s.peer != nil {
		return fmt.Errorf("%s: rank %d is taken by %s: give each process a rank of its own", m.Name, m.Rank, s.peer.name)
	}
	s.peer = newPeer(m.Name, c)
	b.left(c)
	return nil
}

// gone reports whether the other end of a connection, which has nothing to say yet, has closed it. It looks without
// waiting: a deadline that passes before the read would hide the end.
func gone(c net.Conn) bool {
	s, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return true
	}
	ended := false
	err = raw.Read(func(fd uintptr) bool {
		_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		ended = !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR)
		return true
	})
	return err != nil || ended
}

// leave frees the seat of a rank that could not be told of it.
func (b *lobby) leave(rank int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seats[rank] = seat{}
}

// arrived counts a rank that knows its seat. With the last one, those that left meanwhile lose theirs, and so does that
// one, which may have left before it was counted: the job waits for others.
func (b *lobby) arrived(rank int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.seats[rank].there = true
	if b.free--; b.free > 0 {
		return
	}
	for i := range b.seats {
		if s := &b.seats[i]; s.there && gone(s.peer.conn) {
			s.peer.conn.Close()
			*s, b.free = seat{}, b.free+1
		}
	}
	if b.free == 0 {
		close(b.full)
	}
}

// reports are lines for the user of which strangers may cause any number: one a second is shown, and how many were not.
type reports struct {
	say func(string)

	mu      sync.Mutex
	last    time.Time
	skipped int
}

func (r *reports) tell(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.last) < time.Second {
		r.skipped++
		return
	}
	if r.skipped > 0 {
		text += fmt.Sprintf(" (and %d more before)", r.skipped)
	}
	r.last, r.skipped = time.Now(), 0
	r.say(text)
}

// listen waits for all other ranks, at the address that they are told and at no other.
func (t *tcp) listen(ctx context.Context, opt Options, token token) error {
	at, err := resolve(ctx, t.address)
	if err != nil {
		return fmt.Errorf("the first rank cannot listen: %w", err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at[0].String())
	if err != nil {
		return fmt.Errorf("the first rank cannot listen: %w: %s", err, listenRemedy(err))
	}
	defer l.Close()
	b := newLobby(t, token, opt.Message)
	go b.accept(l)
	select {
	case <-b.full:
		t.peers = b.close()
	case <-ctx.Done():
		peers := b.close()
		for _, p := range peers {
			if p != nil {
				p.conn.Close()
			}
		}
		return t.missing(ctx, opt, peers, l.Addr())
	}
	for _, p := range t.peers[1:] {
		if _, err := p.conn.Write([]byte{startByte}); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}
