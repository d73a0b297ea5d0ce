package collectives

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
)

// A connection begins with a handshake, in which both ends prove that they know the job's token, without sending it:
//
//	rank → first   magic, nonce
//	first → rank   magic, nonce
//	rank → first   length, hello, proof
//	first → rank   length, hello, proof
//	first → rank   start, as soon as all ranks have come
//
// A proof is the HMAC-SHA256, by the token, of the sender's role and of all that was said before it on this connection,
// the hello that it follows included (RFC 2104; a challenge and response in both directions). So it covers both nonces,
// version, ranks and their number, and holds for no other connection, direction or hello. What follows the handshake is
// neither encrypted nor authenticated.
const (
	magic       = "spark-ranks 2\n"
	nonceBytes  = 32
	openBytes   = len(magic) + nonceBytes
	maxHello    = 4096
	startByte   = 's'
	magicPrefix = "spark-ranks "
)

// Roles of the two ends.
const (
	roleRank byte = iota + 1
	roleFirst
)

var (
	errStranger = errors.New("it is no rank of spark-dora's")
	errVersion  = errors.New("it is another version of spark-dora: give all ranks the same one")
	errToken    = errors.New("it does not know the token of this job")
)

// hello is what a rank says of itself, and the first rank in answer.
type hello struct {
	Rank, Size int
	Job        string
	Name       string // rank, host and process
	Refused    string `json:",omitempty"` // why the first rank does not take it
}

// handshake is one end of a connection that begins.
type handshake struct {
	conn  net.Conn
	token token
	role  byte
	said  []byte // by both ends
}

func (h *handshake) peer() byte { return roleRank + roleFirst - h.role }

// open sends magic and nonce.
func (h *handshake) open() error {
	nonce := make([]byte, nonceBytes)
	_, _ = rand.Read(nonce) // never fails
	return h.write(append([]byte(magic), nonce...))
}

// opened reads the other's.
func (h *handshake) opened() error {
	data, err := h.read(openBytes)
	switch {
	case err != nil:
		return err
	case !bytes.HasPrefix(data, []byte(magicPrefix)):
		return errStranger
	case !bytes.HasPrefix(data, []byte(magic)):
		return errVersion
	}
	return nil
}

// say sends a hello with its proof.
func (h *handshake) say(m hello) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(data) > maxHello {
		return fmt.Errorf("the hello of %s has %d bytes, at most %d: is the name of the job or the host so long?",
			m.Name, len(data), maxHello)
	}
	data = append(binary.LittleEndian.AppendUint32(nil, uint32(len(data))), data...)
	h.said = append(h.said, data...)
	proof := h.proof(h.role)
	h.said = append(h.said, proof...)
	_, err = h.conn.Write(append(data, proof...))
	return err
}

// hear reads a hello, and believes nothing of it before its proof.
func (h *handshake) hear() (m hello, err error) {
	length, err := h.read(4)
	if err != nil {
		return m, err
	}
	n := binary.LittleEndian.Uint32(length)
	if n > maxHello {
		return m, fmt.Errorf("%w: its hello has %d bytes", errStranger, n)
	}
	data, err := h.read(int(n))
	if err != nil {
		return m, err
	}
	want := h.proof(h.peer())
	proof, err := h.read(len(want))
	if err != nil {
		return m, err
	}
	if !hmac.Equal(proof, want) {
		return m, errToken
	}
	return m, json.Unmarshal(data, &m)
}

// proof is that of an end that has said the last of what was said.
func (h *handshake) proof(role byte) []byte {
	mac := hmac.New(sha256.New, h.token.secret)
	mac.Write([]byte{role})
	mac.Write(h.said)
	return mac.Sum(nil)
}

func (h *handshake) write(data []byte) error {
	h.said = append(h.said, data...)
	_, err := h.conn.Write(data)
	return err
}

func (h *handshake) read(n int) ([]byte, error) {
	data := make([]byte, n)
	if _, err := io.ReadFull(h.conn, data); err != nil {
		return nil, err
	}
	h.said = append(h.said, data...)
	return data, nil
}
