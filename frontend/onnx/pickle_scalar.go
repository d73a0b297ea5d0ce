package onnx

import (
	"encoding/binary"
	"math"
	"math/bits"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// scalar reads the argument of an instruction that pushes a None, bool, number or string.
func (u *unpickler) scalar(op byte) any {
	switch op {
	case 'N':
		return nil
	case 0x88, 0x89: // NEWTRUE, NEWFALSE
		return op == 0x88
	case 'K': // BININT1
		return int64(u.uint(1))
	case 'M': // BININT2
		return int64(u.uint(2))
	case 'J': // BININT
		return int64(int32(u.uint(4)))
	case 0x8a: // LONG1
		return u.long(u.sized(1))
	case 0x8b: // LONG4
		return u.long(u.sized(4))
	case 'G': // BINFLOAT
		return math.Float64frombits(bits.ReverseBytes64(u.uint(8)))
	case 0x8c, 'U': // SHORT_BINUNICODE; SHORT_BINSTRING, a string of Python 2
		return u.text(u.sized(1))
	case 'X', 'T': // BINUNICODE; BINSTRING
		return u.text(u.sized(4))
	case 0x8d: // BINUNICODE8
		return u.text(u.sized(8))
	case 'I', 'L', 'F': // INT, LONG, FLOAT: as text
		return u.number(op, u.line())
	case 'S': // STRING: quoted
		return u.text(u.unquote(u.line()))
	case 'V': // UNICODE: escaped
		return u.rawUnescape(u.line())
	}
	u.fail("instruction %#02x makes something other than plain data and is refused", op)
	return nil
}

func (u *unpickler) text(b []byte) string {
	if !utf8.Valid(b) {
		u.fail("a str is not UTF-8: %.40q", b)
	}
	return string(b)
}

// long is a two's complement number of any length up to 64 bits.
func (u *unpickler) long(b []byte) int64 {
	if len(b) > 8 {
		u.fail("an int has more than 64 bits")
		return 0
	}
	var word [8]byte
	if len(b) > 0 && b[len(b)-1]&0x80 != 0 {
		word = [8]byte{255, 255, 255, 255, 255, 255, 255, 255}
	}
	copy(word[:], b)
	return int64(binary.LittleEndian.Uint64(word[:]))
}

// number reads the number of a text instruction. INT writes bools as 00 and 01.
func (u *unpickler) number(op byte, s string) (v any) {
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
		u.fail("%.40q is not a number of 64 bits", s)
	}
	return v
}

// unquote reads a string as Python 2 writes it.
func (u *unpickler) unquote(s string) (out []byte) {
	if len(s) < 2 || s[0] != '\'' && s[0] != '"' || s[len(s)-1] != s[0] {
		u.fail("%.40q is not a quoted str", s)
		return nil
	}
	for rest := s[1 : len(s)-1]; rest != ""; {
		switch {
		case rest[0] != '\\' || len(rest) < 2:
			out, rest = append(out, rest[0]), rest[1:]
		case rest[1] == '\'' || rest[1] == '"': // Go refuses to unescape the other quote
			out, rest = append(out, rest[1]), rest[2:]
		default:
			r, _, tail, err := strconv.UnquoteChar(rest, s[0])
			if err != nil || r > 0xff {
				u.fail("%.40q has an escape that is not understood", s)
				return nil
			}
			out, rest = append(out, byte(r)), tail
		}
	}
	return out
}

var rawEscape = regexp.MustCompile(`\\u[[:xdigit:]]{0,4}|\\U[[:xdigit:]]{0,8}`)

// rawUnescape reads Python's raw-unicode-escape: Latin-1 bytes, and \uXXXX or \UXXXXXXXX.
func (u *unpickler) rawUnescape(s string) string {
	latin := string(mapped([]byte(s), func(b byte) rune { return rune(b) }))
	return rawEscape.ReplaceAllStringFunc(latin, func(e string) string {
		r, err := strconv.ParseUint(e[2:], 16, 32)
		if err != nil || len(e) != map[byte]int{'u': 6, 'U': 10}[e[1]] || !utf8.ValidRune(rune(r)) {
			u.fail("%.40q has an escape that is not understood", s)
		}
		return string(rune(r))
	})
}
