package collectives

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestToken_OfTheEnvironment or of a file, and what is wrong with others.
func TestToken_OfTheEnvironment(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		require.NoError(t, os.Chmod(path, mode))
		return path
	}
	type env = map[string]string
	away := "203.0.113.9:29500"
	for name, c := range map[string]struct {
		env  env
		want string
	}{
		"text":         {env{TokenVariable: testToken}, ""},
		"file":         {env{TokenFileVariable: file("good", testToken+"\n", 0o600)}, ""},
		"none":         {env{}, "can be reached from other machines: export SPARK_TOKEN=$(openssl rand -hex 32)"},
		"both":         {env{TokenVariable: testToken, TokenFileVariable: "x"}, "are both set"},
		"short":        {env{TokenVariable: "secret" + strings.Repeat(" ", 40)}, "has 6 bytes: want a token of 32 to 4096"},
		"no file":      {env{TokenFileVariable: filepath.Join(dir, "none")}, "SPARK_TOKEN_FILE: stat"},
		"a directory":  {env{TokenFileVariable: dir}, "is not a regular file"},
		"a long file":  {env{TokenFileVariable: file("long", strings.Repeat("x", 1<<20), 0o600)}, "has 4098 bytes"},
		"empty":        {env{TokenFileVariable: file("empty", "", 0o600)}, "has 0 bytes"},
		"of the group": {env{TokenFileVariable: file("group", testToken, 0o640)}, "has mode 0640, so others may read it: chmod"},
		"of others":    {env{TokenFileVariable: file("others", testToken, 0o604)}, "has mode 0604, so others may read it: chmod"},
	} {
		got, err := tokenFor(t.Context(), away, func(name string) string { return c.env[name] })
		if c.want != "" {
			assert.ErrorContains(t, err, c.want, name)
			continue
		}
		require.NoError(t, err, name)
		assert.Equal(t, testToken, string(got.secret), name)
	}
}

// TestToken_OfOneUser is made by the first of the ranks that need it, and read by the others.
func TestToken_OfOneUser(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", dir)
	none := func(string) string { return "" }
	tokens := make([]token, 8)
	each(t, len(tokens), func(k int) (err error) {
		tokens[k], err = tokenFor(t.Context(), []string{"127.0.0.1:29500", "localhost:29500", "[::1]:29500"}[k%3], none)
		return err
	})
	for _, got := range tokens {
		assert.Equal(t, tokens[0], got)
	}
	assert.Len(t, tokens[0].secret, 64)
	files, err := filepath.Glob(filepath.Join(dir, "spark-compile", "*"))
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(dir, "spark-compile", "ranks.token")}, files)
	info, err := os.Stat(files[0])
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())
	require.NoError(t, os.Chmod(files[0], 0o644))
	_, err = tokenFor(t.Context(), "127.0.0.1:29500", none)
	assert.ErrorContains(t, err, "the token of this user's jobs: ")
	assert.ErrorContains(t, err, "has mode 0644")
}

// TestProof_IsOfOneRoleAndOneConversation: it differs by the role, by any byte that was said, and by the token.
func TestProof_IsOfOneRoleAndOneConversation(t *testing.T) {
	h := handshake{token: token{secret: []byte(testToken)}, said: []byte("all that was said")}
	proof := h.proof(roleRank)
	assert.Len(t, proof, 32)
	assert.Equal(t, proof, h.proof(roleRank))
	assert.NotEqual(t, proof, h.proof(roleFirst))
	for i := range h.said {
		h.said[i] ^= 1
		assert.NotEqual(t, proof, h.proof(roleRank), "byte %d", i)
		h.said[i] ^= 1
	}
	h.token.secret = []byte(testToken + "x")
	assert.NotEqual(t, proof, h.proof(roleRank))
}

// TestProof_CoversNoncesRanksAndSizes: of what both ends have heard before it, nothing may be changed on the way.
func TestProof_CoversNoncesRanksAndSizes(t *testing.T) {
	secret := token{secret: []byte(testToken)}
	ends := func() (rank, first *handshake) {
		a, b := net.Pipe()
		t.Cleanup(func() { a.Close(); b.Close() })
		return &handshake{conn: a, token: secret, role: roleRank}, &handshake{conn: b, token: secret, role: roleFirst}
	}
	both := func(f, g func() error) (error, error) {
		errs := all(2, func(k int) error { return []func() error{f, g}[k]() })
		return errs[0], errs[1]
	}
	nonces := map[string]bool{}
	for at := -1; at < 2*openBytes; at++ { // the byte of what the first rank has heard and said that differs; -1: none
		rank, first := ends()
		_, _ = both(rank.open, first.opened)
		_, _ = both(rank.opened, first.open)
		nonces[string(rank.said[len(magic):openBytes])] = true
		nonces[string(rank.said[openBytes+len(magic):])] = true
		if at >= 0 {
			first.said[at] ^= 1
		}
		var got hello
		hear := func() (err error) { got, err = first.hear(); return err }
		_, err := both(func() error { return rank.say(helloOf(1)) }, hear)
		if at >= 0 {
			require.ErrorIs(t, err, errToken, "byte %d", at)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, helloOf(1), got)
		_, err = both(func() error { return first.say(helloOf(1)) }, func() error { _, err := rank.hear(); return err })
		require.NoError(t, err)
	}
	assert.Len(t, nonces, 2*(1+2*openBytes), "each nonce is another one")
}
