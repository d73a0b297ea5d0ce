package collectives

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// Frames follow the handshake: kind, number of the call, length, bytes; little-endian.

// Kinds of frames.
const (
	frameMean byte = iota + 1
	frameBroadcast
	frameGather
	frameAbort // text: why the job ends
	frameAlive // nothing to say
	frameBye   // the sender has ended well
)

const (
	headerBytes  = 13
	smallBytes   = 1 << 16  // that a frame may have before its call has begun here: a reason, a few numbers
	maxGather    = 64 << 20 // of a rank in a frame that gathers
	alivePerDead = 8        // frames that say "alive" in the time after which a silent rank is dead
)

// frame is a message.
type frame struct {
	kind byte
	call uint32
	data []byte
}

// expectation bounds frames by what this rank's own calls are about. A frame as large as those of calls before it is
// read at once, so that it arrives while this rank computes; a larger one waits until its call begins here.
type expectation struct {
	mu      sync.Mutex
	changed sync.Cond
	most    [frameBye + 1]uint64 // bytes of a frame, by kind
	call    uint32               // that has begun
	ended   bool
}

// begin says what a call expects.
func (e *expectation) begin(call uint32, kind byte, most uint64) {
	e.raise(kind, most)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.call = call
	e.changed.Broadcast()
}

func (e *expectation) raise(kind byte, most uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.most[kind] = max(e.most[kind], most)
}

func (e *expectation) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = true
	e.changed.Broadcast()
}

// allow waits until a frame of so many bytes is expected, or is the error of one that is not.
func (e *expectation) allow(kind byte, call uint32, n uint64) error {
	if kind < frameMean || kind > frameBye {
		return fmt.Errorf("a message of kind %d", kind)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for n > e.most[kind] {
		if e.ended || int32(e.call-call) >= 0 {
			return fmt.Errorf("a message of %d bytes in call %d, where at most %d are expected", n, call, e.most[kind])
		}
		e.changed.Wait()
	}
	return nil
}

// peer is another rank and the connection to it.
type peer struct {
	name string // rank 1 on HOST, process 123
	conn net.Conn
	in   chan frame // closed after the last one

	write sync.Mutex
	left  error // why there are no more frames; set before in is closed
}

func newPeer(name string, conn net.Conn) *peer {
	return &peer{name: name, conn: conn, in: make(chan frame, 4)}
}

func (p *peer) send(kind byte, call uint32, data []byte) error {
	p.write.Lock()
	defer p.write.Unlock()
	head := binary.LittleEndian.AppendUint32([]byte{kind}, call)
	head = binary.LittleEndian.AppendUint64(head, uint64(len(data)))
	buffers := net.Buffers{head, data}
	_, err := buffers.WriteTo(p.conn)
	return err
}

// errBye is the end of a rank that has nothing more to say.
var errBye = errors.New("it has ended")

// read puts frames into the channel until the connection ends, or is silent for too long. An abort is told at once.
func (p *peer) read(silence time.Duration, e *expectation, tell func(error)) {
	defer close(p.in)
	for {
		f, err := p.frame(silence, e)
		switch {
		case err != nil:
			var late net.Error
			if errors.As(err, &late) && late.Timeout() {
				err = fmt.Errorf("it has said nothing for %v", silence)
			} else if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) {
				err = errors.New("its connection was closed: it has crashed or was killed")
			}
			p.left = fmt.Errorf("%s: %w", p.name, err)
			tell(p.left)
			return
		case f.kind == frameAlive:
			continue
		case f.kind == frameBye:
			p.left = fmt.Errorf("%s: %w", p.name, errBye)
			return
		case f.kind == frameAbort:
			p.left = errors.New(string(f.data))
			tell(p.left)
			return
		}
		p.in <- f
	}
}

func (p *peer) frame(silence time.Duration, e *expectation) (f frame, err error) {
	if err := p.conn.SetReadDeadline(time.Now().Add(silence)); err != nil {
		return f, err
	}
	var head [headerBytes]byte
	if _, err := io.ReadFull(p.conn, head[:]); err != nil {
		return f, err
	}
	f.kind, f.call = head[0], binary.LittleEndian.Uint32(head[1:])
	n := binary.LittleEndian.Uint64(head[5:])
	if err := e.allow(f.kind, f.call, n); err != nil {
		return f, err
	}
	// The memory grows with what arrives.
	var data bytes.Buffer
	const part = 4 << 20
	for left := int64(n); left > 0; {
		if err := p.conn.SetReadDeadline(time.Now().Add(silence)); err != nil {
			return f, err
		}
		m, err := io.CopyN(&data, p.conn, min(left, part))
		if err != nil {
			return f, err
		}
		left -= m
	}
	f.data = data.Bytes()
	return f, nil
}
