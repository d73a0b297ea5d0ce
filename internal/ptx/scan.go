package ptx

import (
	"fmt"
	"strings"
)

type tokenKind uint8

const (
	tokEOF tokenKind = iota
	tokWord
	tokNumber
	tokPunct
	tokComment // the text without // and one following space
	tokString  // the text without its quotes
)

type token struct {
	kind tokenKind
	text string
	line int
}

func (t token) String() string {
	if t.kind == tokEOF {
		return "the end of the text"
	}
	return fmt.Sprintf("%q", t.text)
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || isDigit(c) || c == '_' || c == '$' || c == '%' || c == '.'
}

// scan splits a text into tokens; the last is tokEOF. bad says what is wrong with the last token's line, if anything.
func scan(text string) (toks []token, bad string) {
	line := 1
	for i := 0; i < len(text); {
		c := text[i]
		start := i
		switch {
		case c == '\n':
			line++
			i++
		case c == ' ' || c == '\t' || c == '\r':
			i++
		case strings.HasPrefix(text[i:], "//"):
			end := strings.IndexByte(text[i:], '\n')
			if end < 0 {
				end = len(text) - i
			}
			i += end
			toks = append(toks, token{tokComment, strings.TrimPrefix(text[start+2:i], " "), line})
		case strings.HasPrefix(text[i:], "/*"):
			end := strings.Index(text[i+2:], "*/")
			if end < 0 {
				return append(toks, token{tokEOF, "", line}), "comment does not end"
			}
			i += end + 4
			line += strings.Count(text[start:i], "\n")
		case c == '"':
			end := strings.IndexAny(text[i+1:], "\"\n")
			if end < 0 || text[i+1+end] == '\n' {
				return append(toks, token{tokEOF, "", line}), "string does not end"
			}
			i += end + 2
			toks = append(toks, token{tokString, text[start+1 : i-1], line})
		case isDigit(c), c == '-' && i+1 < len(text) && isDigit(text[i+1]):
			for i++; i < len(text) && isWord(text[i]); i++ {
			}
			toks = append(toks, token{tokNumber, text[start:i], line})
		case isWord(c):
			for i < len(text) && (isWord(text[i]) || strings.HasPrefix(text[i:], "::")) {
				if text[i] == ':' {
					i++
				}
				i++
			}
			toks = append(toks, token{tokWord, text[start:i], line})
		case strings.IndexByte("{}[](),;:|@!+<>", c) >= 0:
			i++
			toks = append(toks, token{tokPunct, text[start:i], line})
		default:
			return append(toks, token{tokEOF, "", line}), fmt.Sprintf("unexpected character %q", c)
		}
	}
	return append(toks, token{tokEOF, "", line}), ""
}
