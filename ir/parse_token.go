package ir

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// lineError is an error that already names its line.
type lineError struct {
	line int
	err  error
}

func (e *lineError) Error() string { return fmt.Sprintf("line %d: %v", e.line, e.err) }
func (e *lineError) Unwrap() error { return e.err }

// atLine names the line of an error unless it names one.
func atLine(line int, err error) error {
	var le *lineError
	if err == nil || errors.As(err, &le) {
		return err
	}
	return &lineError{line, err}
}

type parser struct {
	text    string
	pos     int
	line    int
	tok     string // "" at the end; strings keep their quotes
	tokLine int
}

// advance reads the next token: punctuation, a word (identifiers, numbers, values with their %), or a quoted string.
func (p *parser) advance() {
	for p.pos < len(p.text) {
		rest := p.text[p.pos:]
		switch {
		case rest[0] == '\n':
			p.line++
			p.pos++
			continue
		case rest[0] == ' ' || rest[0] == '\t' || rest[0] == '\r':
			p.pos++
			continue
		case strings.HasPrefix(rest, "//"):
			end := strings.IndexByte(rest, '\n')
			if end < 0 {
				end = len(rest)
			}
			p.pos += end
			continue
		}
		break
	}
	p.tokLine = p.line
	rest := p.text[p.pos:]
	n := 0
	switch {
	case rest == "":
	case rest[0] == '"' || strings.HasPrefix(rest, `%"`):
		n = quotedLength(rest)
	case rest[0] == '%':
		for n = 1; n < len(rest) && isNameByte(rest[n]); n++ {
		}
	default:
		for n < len(rest) && (isNameByte(rest[n]) || rest[n] == '+' || n > 0 && rest[n] == ':' && wordWithColon(rest[:n])) {
			n++
		}
		n = max(n, 1)
	}
	p.tok = rest[:n]
	p.pos += n
}

// wordWithColon says which words go on after a colon: bits:0x7e00 and sha256:….
func wordWithColon(word string) bool { return word == "bits" || word == "sha256" }

// quotedLength is the length of a (possibly unterminated) quoted string, a leading % included.
func quotedLength(s string) int {
	i := strings.IndexByte(s, '"') + 1
	for i < len(s) && s[i] != '"' && s[i] != '\n' {
		if s[i] == '\\' {
			i++
		}
		i++
	}
	return min(i+1, len(s))
}

func (p *parser) unexpected(want string) error {
	if p.tok == "" {
		return fmt.Errorf("the text ends, want %s", want)
	}
	return fmt.Errorf("%s, want %s", p.tok, want)
}

func (p *parser) expect(tok string) error {
	if p.tok != tok {
		return p.unexpected(strconv.Quote(tok))
	}
	p.advance()
	return nil
}

// accept consumes the token if it is the next one.
func (p *parser) accept(tok string) bool {
	if p.tok != tok {
		return false
	}
	p.advance()
	return true
}

func (p *parser) quoted() (string, error) {
	s, err := strconv.Unquote(p.tok)
	if err != nil || p.tok[0] != '"' {
		return "", p.unexpected("a quoted string")
	}
	p.advance()
	return s, nil
}

func (p *parser) valueName() (string, error) {
	if !strings.HasPrefix(p.tok, "%") {
		return "", p.unexpected("a value")
	}
	name := p.tok[1:]
	if strings.HasPrefix(name, `"`) {
		var err error
		if name, err = strconv.Unquote(name); err != nil {
			return "", p.unexpected("a value")
		}
	}
	p.advance()
	return name, nil
}
