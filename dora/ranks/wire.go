package ranks

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// A connection begins with magic and a hello in each direction. Frames follow: kind, number of the call, length, bytes; little-endian.
const magic = "spark-ranks 1\n"

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
	mostBytes    = 1 << 32
	mostHello    = 1 << 16
	alivePerDead = 8 // frames that say "alive" in the time after which a silent rank is dead
)

// hello is what a rank says of itself, and the first rank of all.
type hello struct {
	Rank, Size int
	Job        string
	Name       string   // host and process
	Names      []string // of all ranks, from the first one
	Refused    string   // why the first rank does not take it
}

func writeHello(c net.Conn, h hello) error {
	data, err := json.Marshal(h)
	if err != nil {
		return err
	}
	out := binary.LittleEndian.AppendUint32([]byte(magic), uint32(len(data)))
	_, err = c.Write(append(out, data...))
	return err
}

func readHello(c net.Conn) (h hello, err error) {
	head := make([]byte, len(magic)+4)
	if _, err := io.ReadFull(c, head); err != nil {
		return h, err
	}
	if string(head[:len(magic)]) != magic {
		return h, errors.New("it is no rank of spark-dora's")
	}
	n := binary.LittleEndian.Uint32(head[len(magic):])
	if n > mostHello {
		return h, fmt.Errorf("a hello of %d bytes", n)
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(c, data); err != nil {
		return h, err
	}
	return h, json.Unmarshal(data, &h)
}

// frame is a message.
type frame struct {
	kind byte
	call uint32
	data []byte
}

// peer is another rank, behind a connection.
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
func (p *peer) read(silence time.Duration, tell func(error)) {
	defer close(p.in)
	for {
		f, err := p.frame(silence)
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

func (p *peer) frame(silence time.Duration) (f frame, err error) {
	if err := p.conn.SetReadDeadline(time.Now().Add(silence)); err != nil {
		return f, err
	}
	var head [headerBytes]byte
	if _, err := io.ReadFull(p.conn, head[:]); err != nil {
		return f, err
	}
	f.kind, f.call = head[0], binary.LittleEndian.Uint32(head[1:])
	n := binary.LittleEndian.Uint64(head[5:])
	if n > mostBytes {
		return f, fmt.Errorf("a message of %d bytes", n)
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
