package onnx

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// scalar reads the argument of an instruction that pushes a None, bool, number or string.
func (u *unpickler) scalar(op byte) (any, error) {
	switch op {
	case 'N':
		return nil, nil
	case 0x88, 0x89: // NEWTRUE, NEWFALSE
		return op == 0x88, nil
	case 'K', 'M', 'J': // BININT1, BININT2, BININT
		n, err := u.uint(map[byte]int{'K': 1, 'M': 2, 'J': 4}[op])
		if op == 'J' {
			return int64(int32(n)), err
		}
		return int64(n), err
	case 0x8a, 0x8b: // LONG1, LONG4
		b, err := u.sized(map[byte]int{0x8a: 1, 0x8b: 4}[op])
		if err != nil {
			return nil, err
		}
		return littleInt(b)
	case 'I', 'L', 'F': // INT, LONG, FLOAT: as text
		line, err := u.line()
		if err != nil {
			return nil, err
		}
		return textNumber(op, line)
	case 'G': // BINFLOAT
		b, err := u.take(8)
		if err != nil {
			return nil, err
		}
		return math.Float64frombits(binary.BigEndian.Uint64(b)), nil
	case 0x8c, 'X', 0x8d: // SHORT_BINUNICODE, BINUNICODE, BINUNICODE8
		b, err := u.sized(map[byte]int{0x8c: 1, 'X': 4, 0x8d: 8}[op])
		return text(b, err)
	case 'U', 'T': // SHORT_BINSTRING, BINSTRING: strings of Python 2
		b, err := u.sized(map[byte]int{'U': 1, 'T': 4}[op])
		return text(b, err)
	case 'S': // STRING: quoted
		line, err := u.line()
		if err != nil {
			return nil, err
		}
		return unquote(line)
	case 'V': // UNICODE: escaped
		line, err := u.line()
		if err != nil {
			return nil, err
		}
		return rawUnescape(line)
	}
	return nil, fmt.Errorf("instruction %#02x makes something other than plain data and is refused", op)
}

func text(b []byte, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(b) {
		return nil, fmt.Errorf("a str is not UTF-8: %.40q", b)
	}
	return string(b), nil
}

// littleInt is a two's complement number of any length up to 64 bits.
func littleInt(b []byte) (any, error) {
	if len(b) > 8 {
		return nil, errors.New("an int has more than 64 bits")
	}
	if len(b) == 0 {
		return int64(0), nil
	}
	var word [8]byte
	if b[len(b)-1]&0x80 != 0 {
		word = [8]byte{255, 255, 255, 255, 255, 255, 255, 255}
	}
	copy(word[:], b)
	return int64(binary.LittleEndian.Uint64(word[:])), nil
}

// textNumber reads the number of a text instruction. INT writes bools as 00 and 01.
func textNumber(op byte, s string) (any, error) {
	var v any
	var err error
	switch {
	case op == 'F':
		v, err = strconv.ParseFloat(s, 64)
	case op == 'I' && (s == "00" || s == "01"):
		v = s == "01"
	default:
		v, err = strconv.ParseInt(strings.TrimSuffix(s, "L"), 10, 64)
	}
	if err != nil {
		return nil, fmt.Errorf("%.40q is no number of 64 bits", s)
	}
	return v, nil
}

// unquote reads a string as Python 2 writes it.
func unquote(s string) (any, error) {
	if len(s) < 2 || s[0] != '\'' && s[0] != '"' || s[len(s)-1] != s[0] {
		return nil, fmt.Errorf("%.40q is not a quoted str", s)
	}
	quote, rest := s[0], s[1:len(s)-1]
	var b strings.Builder
	for rest != "" {
		if rest[0] != '\\' || len(rest) < 2 {
			b.WriteByte(rest[0])
			rest = rest[1:]
			continue
		}
		if rest[1] == '\'' || rest[1] == '"' { // Go refuses to unescape the other quote
			b.WriteByte(rest[1])
			rest = rest[2:]
			continue
		}
		r, _, tail, err := strconv.UnquoteChar(rest, quote)
		if err != nil || r > 0xff {
			return nil, fmt.Errorf("%.40q has an escape that is not understood", s)
		}
		b.WriteByte(byte(r))
		rest = tail
	}
	return text([]byte(b.String()), nil)
}

// rawUnescape reads Python's raw-unicode-escape: Latin-1 bytes, and \uXXXX or \UXXXXXXXX.
func rawUnescape(s string) (any, error) {
	var b strings.Builder
	for i := 0; i < len(s); {
		digits := 0
		if s[i] == '\\' && i+1 < len(s) {
			digits = map[byte]int{'u': 4, 'U': 8}[s[i+1]]
		}
		if digits == 0 {
			b.WriteRune(rune(s[i]))
			i++
			continue
		}
		if i+2+digits > len(s) {
			return nil, fmt.Errorf("%.40q has an escape that is not understood", s)
		}
		r, err := strconv.ParseUint(s[i+2:i+2+digits], 16, 32)
		if err != nil || !utf8.ValidRune(rune(r)) {
			return nil, fmt.Errorf("%.40q has an escape that is not understood", s)
		}
		b.WriteRune(rune(r))
		i += 2 + digits
	}
	return b.String(), nil
}
