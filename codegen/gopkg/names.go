package gopkg

import (
	"crypto/sha256"
	"fmt"
	"go/token"
	"net/url"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"
)

// PackageName is the default package name for a model file: its base name in lower case with only ASCII letters and
// digits, since an import path admits no others.
func PackageName(model string) (string, error) {
	base := strings.TrimSuffix(filepath.Base(model), filepath.Ext(model))
	name := strings.Map(func(r rune) rune {
		if r <= unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return unicode.ToLower(r)
		}
		return -1
	}, base)
	return name, CheckPackageName(name)
}

// CheckPackageName reports why a name cannot be that of a package of its own.
func CheckPackageName(name string) error {
	if err := checkIdentifier(name); err != nil {
		return err
	}
	if name == "main" || name == "init" {
		return fmt.Errorf("package name %q cannot be imported: choose another with --package", name)
	}
	return nil
}

func checkIdentifier(name string) error {
	if !token.IsIdentifier(name) || name == "_" { // also refuses keywords and the empty string
		return fmt.Errorf("package name %q is not a Go identifier: choose one with --package", name)
	}
	return nil
}

// Names longer than longestName bytes are cut and get a digest of the whole name: file systems take 255 bytes, and
// files have a prefix and an ending.
const (
	longestName = 240
	cutName     = 64
)

// FileName is a tensor's name as part of a file's name: escaped, and shortened if it is too long. A shortened name
// contains a comma, which an escaped name does not, so it cannot collide with one.
func FileName(name string) string {
	escaped := url.PathEscape(name)
	if len(escaped) <= longestName {
		return escaped
	}
	cut := escaped[:cutName]
	if i := strings.LastIndexByte(cut, '%'); i > cutName-3 {
		cut = cut[:i] // not in the middle of an escape
	}
	return cut + "," + nameDigest(name)
}

func nameDigest(name string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(name)))[:16] }

// exported turns a tensor's or slice's name into an exported Go identifier: lane_lines_prob → LaneLinesProb.
func exported(name string) string {
	var b strings.Builder
	up := true
	for _, r := range name {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			up = true
		case up:
			b.WriteRune(unicode.ToUpper(r))
			up = false
		default:
			b.WriteRune(r)
		}
	}
	s := b.String()
	if first, _ := utf8.DecodeRuneInString(s); !unicode.IsUpper(first) { // empty, a digit, or of a script without capitals
		s = "X" + s
	}
	if len(s) > longestName {
		s = strings.ToValidUTF8(s[:cutName], "") + "_" + nameDigest(name)
	}
	return s
}

// namer hands out exported identifiers without repeating one.
type namer map[string]bool

func (n namer) name(raw string) string {
	s := exported(raw)
	for i := 2; n[s]; i++ {
		s = fmt.Sprintf("%s%d", exported(raw), i)
	}
	n[s] = true
	return s
}
