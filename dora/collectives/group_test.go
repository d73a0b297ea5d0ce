package collectives

import (
	"bytes"
	"context"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// groupOf is a group of n ranks in this process, over TCP.
func groupOf(t *testing.T, n int) (groups []Group) {
	t.Helper()
	port := freePort(t)
	groups = make([]Group, n)
	each(t, n, func(rank int) (err error) {
		groups[rank], err = Join(t.Context(), Options{Getenv: rankEnv(rank, n, port), Timeout: 20 * time.Second})
		return err
	})
	return groups
}

// freePort is one of 127.0.0.1 that nobody listens at.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return port
}

// testToken is that of jobs within the test's process.
const testToken = "0123456789abcdef0123456789abcdef"

// rankEnv is the environment of a rank at 127.0.0.1, with other variables in pairs.
func rankEnv(rank, size int, port string, others ...string) func(name string) string {
	env := map[string]string{"RANK": strconv.Itoa(rank), "WORLD_SIZE": strconv.Itoa(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
		TokenVariable: testToken}
	for i := 0; i < len(others); i += 2 {
		env[others[i]] = others[i+1]
	}
	return func(name string) string { return env[name] }
}

// each calls f for all ranks at the same time, and wants no error.
func each(t *testing.T, n int, f func(rank int) error) {
	t.Helper()
	for rank, err := range all(n, f) {
		require.NoError(t, err, "rank %d", rank)
	}
}

func all(n int, f func(rank int) error) []error {
	errs, done := make([]error, n), make(chan struct{})
	for rank := range n {
		go func() {
			errs[rank] = f(rank)
			done <- struct{}{}
		}()
	}
	for range n {
		<-done
	}
	return errs
}

// TestACallEndsWithItsContext, and the calls of the others with an error that names the rank.
func TestACallEndsWithItsContext(t *testing.T) {
	groups := groupOf(t, 3)
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel)
	errs := all(3, func(rank int) error {
		if rank == 1 { // waits for what rank 0 does not send before rank 2 calls
			_, err := groups[1].Gather(ctx, nil)
			return err
		}
		if rank == 2 {
			<-ctx.Done()
			time.Sleep(50 * time.Millisecond)
		}
		_, err := groups[rank].Gather(context.Background(), nil)
		return err
	})
	for rank, err := range errs {
		assert.ErrorContains(t, err, "rank 1 on ", "rank %d", rank)
		assert.ErrorContains(t, err, context.Canceled.Error(), "rank %d", rank)
	}
	for _, g := range groups {
		require.NoError(t, g.Close())
	}
}

// TestGather_LargerThanAFrame: each rank has messages of another length, some of several frames.
func TestGather_LargerThanAFrame(t *testing.T) {
	const most = 2 * smallBytes // of a frame: smaller ones are never refused
	groups := groupOf(t, 3)
	for _, g := range groups {
		g.(*tcp).most = most
	}
	for _, lengths := range [][]int{{0, 1, 0}, {most - 1, most, 0}, {10, 5 * most, most - 1}, {4*most - 4, 0, 3*most + 7}} {
		var want [][]byte
		for rank, n := range lengths {
			x := make([]byte, n)
			for i := range x {
				x[i] = byte(i*i>>8 + rank)
			}
			want = append(want, x)
		}
		each(t, 3, func(rank int) error {
			got, err := groups[rank].Gather(t.Context(), want[rank])
			if err != nil {
				return err
			}
			for k := range want {
				assert.True(t, bytes.Equal(want[k], got[k]), "rank %d has %d bytes of rank %d", rank, len(got[k]), k)
			}
			return nil
		})
	}
	each(t, 3, func(rank int) error { return groups[rank].Close() })
}

// TestClose_WaitsAMoment for others that do not end, however many there are.
func TestClose_WaitsAMoment(t *testing.T) {
	groups := groupOf(t, 3)
	closed := make(chan error, 1)
	go func() { closed <- groups[0].Close() }()
	select {
	case err := <-closed:
		require.NoError(t, err)
	case <-time.After(10 * time.Second):
		t.Error("the first rank waits for ever")
	}
	each(t, 2, func(i int) error { return groups[i+1].Close() })
}
