package collectives

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	goruntime "runtime"
)

// Variables of the environment that hold the token of a job, or name a file that does.
const (
	TokenVariable     = "SPARK_TOKEN"
	TokenFileVariable = "SPARK_TOKEN_FILE"
)

// Lengths of a token in bytes: whoever records a handshake may try short ones at leisure.
const (
	minToken = 32
	maxToken = 4096
)

// remedy makes a token.
const remedy = "export " + TokenVariable + "=$(openssl rand -hex 32), the same on all ranks"

// token is a secret of a job's ranks.
type token struct {
	secret []byte
	source string // where it is from, to say so
}

// tokenFor is the token that the environment holds or names a file for. Ranks that meet at a loopback address may do
// without: they share a token of their user's, which the first of them makes.
func tokenFor(ctx context.Context, address string, getenv func(string) string) (token, error) {
	text, path := getenv(TokenVariable), getenv(TokenFileVariable)
	switch {
	case text != "" && path != "":
		return token{}, fmt.Errorf("%s and %s are both set: unset one of them", TokenVariable, TokenFileVariable)
	case text != "":
		return newToken([]byte(text), TokenVariable)
	case path != "":
		t, err := readToken(path)
		if err != nil {
			return t, fmt.Errorf("%s: %w", TokenFileVariable, err)
		}
		return t, nil
	}
	at, err := resolve(ctx, address)
	if err == nil && slices.ContainsFunc(at, func(a netip.AddrPort) bool { return !a.Addr().IsLoopback() }) {
		err = fmt.Errorf("%s can be reached from other machines", address)
	}
	if err != nil {
		return token{}, fmt.Errorf("the ranks have no token to know each other by: %w: %s, or name a file in %s",
			err, remedy, TokenFileVariable)
	}
	return userToken()
}

// newToken checks a token. Space around it does not count.
func newToken(secret []byte, source string) (token, error) {
	secret = bytes.TrimSpace(secret)
	if len(secret) < minToken || len(secret) > maxToken {
		return token{}, fmt.Errorf("%s has %d bytes: want a token of %d to %d: %s",
			source, len(secret), minToken, maxToken, remedy)
	}
	return token{secret, source}, nil
}

// readToken reads a file that nobody else may read.
func readToken(path string) (token, error) {
	info, err := os.Stat(path) // opening a pipe would wait
	if err != nil {
		return token{}, err
	}
	if !info.Mode().IsRegular() {
		return token{}, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return token{}, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return token{}, err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 && goruntime.GOOS != "windows" {
		return token{}, fmt.Errorf("%s has mode %04o, so others may read it: chmod 600 %s, and make a new token",
			path, mode, path)
	}
	secret, err := io.ReadAll(io.LimitReader(f, maxToken+2))
	if err != nil {
		return token{}, err
	}
	return newToken(secret, path)
}

// userToken is the token of all jobs of this user within this machine, in a file of the user's cache, which is made
// where there is none.
func userToken() (token, error) {
	t, err := func() (token, error) {
		dir, err := os.UserCacheDir()
		if err != nil {
			return token{}, err
		}
		path := filepath.Join(dir, "spark-compile", "ranks.token")
		t, err := readToken(path)
		if !errors.Is(err, fs.ErrNotExist) {
			return t, err
		}
		if err := makeToken(path); err != nil {
			return token{}, err
		}
		return readToken(path)
	}()
	if err != nil {
		return t, fmt.Errorf("the token of this user's jobs: %w: or %s", err, remedy)
	}
	return t, nil
}

// makeToken writes a new token, unless another process was first. The file appears with all that is in it.
func makeToken(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)) // of mode 600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	_, err = fmt.Fprintf(f, "%x\n", secret)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// resolve is what an address of a name stands for, IPv4 first, as net.Dial prefers it.
func resolve(ctx context.Context, address string) ([]netip.AddrPort, error) {
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", service)
	if err != nil {
		return nil, err
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	var at []netip.AddrPort
	for _, v4 := range []bool{true, false} {
		for _, a := range found {
			if a = a.Unmap(); a.Is4() == v4 {
				at = append(at, netip.AddrPortFrom(a, uint16(port)))
			}
		}
	}
	if slices.ContainsFunc(at, func(a netip.AddrPort) bool { return a.Addr().IsUnspecified() }) {
		return nil, fmt.Errorf("MASTER_ADDR=%s stands for every interface: name the address that the ranks are to meet at",
			host)
	}
	return at, nil
}
