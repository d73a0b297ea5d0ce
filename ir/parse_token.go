package ir

import (
	"fmt"
	"strconv"
	"strings"
)

// parser reads tokens until the first error. After that there are no more tokens, and its results are meaningless.
type parser struct {
	text          string
	pos           int
	line          int
	depth         int    // of graphs in each other
	tok           string // "" at the end; strings keep their quotes
	tokLine       int
	statementLine int    // where the statement being read begins; 0 outside statements
	context       string // prefix of an error: what is being parsed
	err           error
}

// fail records the first error with its line and skips the rest of the text.
func (p *parser) fail(err error) {
	if err == nil || p.err != nil {
		return
	}
	line := p.statementLine
	if line == 0 {
		line = p.tokLine
	}
	p.err = fmt.Errorf("line %d: %s%w", line, p.context, err)
	p.tok, p.pos = "", len(p.text)
}

func (p *parser) failf(format string, args ...any) { p.fail(fmt.Errorf(format, args...)) }

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

// wordWithColon lists the words that continue after a colon: bits:0x7e00 and sha256:….
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

func (p *parser) unexpected(want string) {
	if p.tok == "" {
		p.failf("the text ends, want %s", want)
	}
	p.failf("%s, want %s", p.tok, want)
}

func (p *parser) expect(tok string) {
	if !p.accept(tok) {
		p.unexpected(strconv.Quote(tok))
	}
}

// accept consumes the token if it is the next one.
func (p *parser) accept(tok string) bool {
	if p.tok != tok {
		return false
	}
	p.advance()
	return true
}

// until reports whether there is more to read before the token end, which it consumes.
func (p *parser) until(end string) bool { return p.err == nil && !p.accept(end) }

func (p *parser) quoted() string {
	s, err := strconv.Unquote(p.tok)
	if err != nil || p.tok[0] != '"' {
		p.unexpected("a quoted string")
	}
	p.advance()
	return s
}

func (p *parser) valueName() string {
	name, ok := strings.CutPrefix(p.tok, "%")
	if strings.HasPrefix(name, `"`) {
		var err error
		name, err = strconv.Unquote(name)
		ok = ok && err == nil
	}
	if !ok {
		p.unexpected("a value")
	}
	p.advance()
	return name
}

func (p *parser) number() int {
	n, err := strconv.Atoi(p.tok)
	if err != nil {
		p.unexpected("a number")
	}
	p.advance()
	return n
}
