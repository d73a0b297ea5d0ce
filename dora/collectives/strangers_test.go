package collectives

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	goruntime "runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
)

// meeting is a first rank that waits for others.
type meeting struct {
	port string
	size int

	mu       sync.Mutex
	messages []string

	first chan error
	group Group
}

func meet(t *testing.T, size int) *meeting {
	t.Helper()
	m := &meeting{port: freePort(t), size: size, first: make(chan error, 1)}
	go func() {
		g, err := Join(t.Context(), Options{Getenv: rankEnv(0, size, m.port), Timeout: 8 * time.Second, Message: m.tell})
		m.group = g
		m.first <- err
	}()
	m.dial(t).Close()
	return m
}

func (m *meeting) tell(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.messages = append(m.messages, text)
}

func (m *meeting) told() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(m.messages, "\n")
}

func (m *meeting) address() string { return net.JoinHostPort("127.0.0.1", m.port) }

// dial connects, as soon as the first rank listens.
func (m *meeting) dial(t *testing.T) (c net.Conn) {
	t.Helper()
	require.Eventually(t, func() (ok bool) {
		var err error
		c, err = net.Dial("tcp", m.address())
		return err == nil
	}, 5*time.Second, 5*time.Millisecond)
	return c
}

// stranger is the rank's end of a handshake.
func (m *meeting) stranger(t *testing.T, secret string) *handshake {
	return &handshake{conn: m.dial(t), token: token{secret: []byte(secret)}, role: roleRank}
}

// complete lets the other ranks come, and wants the job to do its work.
func (m *meeting) complete(t *testing.T) {
	t.Helper()
	errs := all(m.size, func(rank int) error {
		if rank == 0 {
			if err := <-m.first; err != nil {
				return err
			}
			return m.work(m.group)
		}
		g, err := Join(t.Context(), Options{Getenv: rankEnv(rank, m.size, m.port), Timeout: 8 * time.Second, Message: m.tell})
		if err != nil {
			return err
		}
		return m.work(g)
	})
	require.NoError(t, errors.Join(errs...), m.told())
}

func (m *meeting) work(g Group) error {
	x := []float32{float32(g.Rank())}
	err := g.Mean(context.Background(), x)
	if want := float32(m.size-1) / 2; err == nil && x[0] != want {
		err = fmt.Errorf("the mean is %v, want %v", x[0], want)
	}
	return errors.Join(err, g.Close())
}

// refused wants a connection to be closed without another word.
func refused(t *testing.T, c net.Conn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(5*time.Second)))
	data, err := io.ReadAll(c)
	if !errors.Is(err, syscall.ECONNRESET) {
		require.NoError(t, err)
	}
	assert.Empty(t, data)
	c.Close()
}

// helloOf is what a rank of two says.
func helloOf(rank int) hello {
	return hello{Rank: rank, Size: 2, Name: fmt.Sprintf("rank %d on a\x1b[2Jhost, process 7", rank)}
}

// TestStrangers_AreRefusedAndReported, take no seat and do not end the job.
func TestStrangers_AreRefusedAndReported(t *testing.T) {
	fulltest.Long(t)
	for name, c := range map[string]struct {
		attack func(t *testing.T, m *meeting)
		want   string
	}{
		"another protocol": {func(t *testing.T, m *meeting) {
			c := m.dial(t)
			_, err := fmt.Fprintf(c, "GET / HTTP/1.0\r\n\r\n%64s", "")
			require.NoError(t, err)
			refused(t, c)
		}, errStranger.Error()},
		"another version": {func(t *testing.T, m *meeting) {
			h := m.stranger(t, testToken)
			require.NoError(t, h.write(fmt.Appendf(nil, "spark-ranks 1\n%64s", "")))
			assert.ErrorIs(t, h.opened(), nil, "it is told the version")
			refused(t, h.conn)
		}, errVersion.Error()},
		"the right size without a proof": {func(t *testing.T, m *meeting) {
			h := m.stranger(t, testToken)
			require.NoError(t, errors.Join(h.open(), h.opened()))
			text := `{"Rank":1,"Size":2}`
			length := binary.LittleEndian.AppendUint32(nil, uint32(len(text)))
			_, err := h.conn.Write(append(length, text+strings.Repeat("\x00", 32)...))
			require.NoError(t, err)
			refused(t, h.conn)
		}, errToken.Error()},
		"another token": {func(t *testing.T, m *meeting) {
			h := m.stranger(t, strings.ToUpper(testToken))
			require.NoError(t, errors.Join(h.open(), h.opened(), h.say(helloOf(1))))
			refused(t, h.conn)
		}, errToken.Error()},
		"a hello of 4 GiB": {func(t *testing.T, m *meeting) {
			h := m.stranger(t, testToken)
			require.NoError(t, errors.Join(h.open(), h.opened(), h.write([]byte{255, 255, 255, 255})))
			refused(t, h.conn)
		}, "its hello has 4294967295 bytes"},
		"a transcript again": {func(t *testing.T, m *meeting) {
			// A rank that talks to another first one of the same token is recorded.
			rank, first := net.Pipe()
			b := newLobby(newTCP(place{size: 2}), token{secret: []byte(testToken)}, m.tell)
			go func() { _ = b.shake(first) }()
			h := &handshake{conn: rank, token: b.token, role: roleRank}
			require.NoError(t, errors.Join(h.open(), h.opened(), h.say(helloOf(1))))
			_, err := h.hear()
			require.NoError(t, err, "the recorded one was taken")
			recorded := h.said[:openBytes]
			message := h.said[2*openBytes:]
			n := 4 + binary.LittleEndian.Uint32(message) + 32

			c := m.dial(t)
			_, err = c.Write(recorded)
			require.NoError(t, err)
			_, err = io.ReadFull(c, make([]byte, openBytes))
			require.NoError(t, err)
			_, err = c.Write(message[:n])
			require.NoError(t, err)
			refused(t, c)
		}, errToken.Error()},
		"its own words": {func(t *testing.T, m *meeting) {
			c := m.dial(t)
			h := m.stranger(t, testToken)
			require.NoError(t, errors.Join(h.open(), h.opened()))
			nonce := h.said[openBytes:]
			_, err := c.Write(nonce) // of the first rank's other connection
			require.NoError(t, err)
			answer := make([]byte, openBytes)
			_, err = io.ReadFull(c, answer)
			require.NoError(t, err)
			_, err = c.Write(answer)
			require.NoError(t, err)
			refused(t, c)
			t.Cleanup(func() { h.conn.Close() }) // not before c is reported: one report a second is shown
		}, "its hello has"},
		"a rank that is not there": {func(t *testing.T, m *meeting) {
			for _, rank := range []int{-1, 0, 2} {
				h := m.stranger(t, testToken)
				require.NoError(t, errors.Join(h.open(), h.opened(), h.say(helloOf(rank))))
				answer, err := h.hear()
				require.NoError(t, err)
				assert.Contains(t, answer.Refused, fmt.Sprintf("says that it is rank %d of 2", rank))
				h.conn.Close()
			}
		}, "a?[2Jhost"},
		"another size": {func(t *testing.T, m *meeting) {
			_, err := Join(t.Context(), Options{Getenv: rankEnv(1, 3, m.port), Timeout: 5 * time.Second})
			assert.ErrorContains(t, err, "says that there are 3 ranks, the first one is told of 2: give all the same number")
		}, "says that there are 3 ranks"},
		"another job": {func(t *testing.T, m *meeting) {
			env := rankEnv(1, 2, m.port, "TORCHELASTIC_RUN_ID", "other")
			_, err := Join(t.Context(), Options{Getenv: env, Timeout: 5 * time.Second})
			assert.ErrorContains(t, err, `is of job "other", this is "": choose another port with MASTER_PORT`)
		}, `is of job "other"`},
	} {
		t.Run(name, func(t *testing.T) {
			m := meet(t, 2)
			time.Sleep(1100 * time.Millisecond) // the next report is shown
			c.attack(t, m)
			told := func() bool { return strings.Contains(m.told(), c.want) }
			assert.Eventually(t, told, 2*time.Second, 5*time.Millisecond, c.want)
			assert.NotContains(t, m.told(), "\x1b")
			m.complete(t)
		})
	}
}

// TestStrangers_HaveNoPlaceToWaitIn: half of a hello, and then nothing, from any number of connections. All of them end
// before their time if there are more; that of a rank comes last and is served.
func TestStrangers_HaveNoPlaceToWaitIn(t *testing.T) {
	m := meet(t, 2)
	before := goruntime.NumGoroutine()
	var slow []net.Conn
	for range 5 * maxOpen {
		c := m.dial(t)
		_, err := c.Write([]byte(magic))
		require.NoError(t, err)
		slow = append(slow, c)
	}
	refused(t, slow[0])
	few := func() bool { return goruntime.NumGoroutine() <= before+2*maxOpen }
	assert.Eventually(t, few, 5*time.Second, time.Millisecond)
	m.complete(t)
	for _, c := range slow {
		c.Close()
	}
}

// TestStrangers_MayBeTenThousand, who speak another protocol.
func TestStrangers_MayBeTenThousand(t *testing.T) {
	m := meet(t, 3)
	errs := all(4, func(k int) error {
		for i := range 2500 {
			c, err := net.Dial("tcp", m.address())
			if err != nil {
				return err
			}
			_, _ = c.Write([]byte(strings.Repeat("spark", i%20)))
			if err := c.Close(); err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(t, errors.Join(errs...))
	m.complete(t)
	m.mu.Lock()
	defer m.mu.Unlock()
	assert.NotEmpty(t, m.messages)
	assert.Less(t, len(m.messages), 100, "reports are one a second")
}

// TestStrangers_CannotTakeARanksSeat: nor can a second process that knows the token, unless the first one is gone.
func TestStrangers_CannotTakeARanksSeat(t *testing.T) {
	m := meet(t, 3)
	one := m.stranger(t, testToken)
	say := hello{Rank: 1, Size: 3, Name: "rank 1 on one"}
	require.NoError(t, errors.Join(one.open(), one.opened(), one.say(say)))
	answer, err := one.hear()
	require.NoError(t, err)
	require.Empty(t, answer.Refused)
	require.Eventually(t, func() bool {
		_, err := Join(t.Context(), Options{Getenv: rankEnv(1, 3, m.port), Timeout: 5 * time.Second})
		return assert.ErrorContains(t, err, "rank 1 is taken by rank 1 on one: give each process a rank of its own")
	}, 5*time.Second, time.Millisecond)
	require.NoError(t, one.conn.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err = one.conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "it still has its seat")
	require.NoError(t, one.conn.Close())
	m.complete(t)
}

// TestStrangers_WhoLeaveBeforeTheOthersCome are no ranks: the last one to come finds that out, and the job waits.
func TestStrangers_WhoLeaveBeforeTheOthersCome(t *testing.T) {
	m := meet(t, 3)
	one := m.stranger(t, testToken)
	require.NoError(t, errors.Join(one.open(), one.opened(), one.say(hello{Rank: 1, Size: 3, Name: "rank 1 on one"})))
	_, err := one.hear()
	require.NoError(t, err)
	require.NoError(t, one.conn.Close())
	two := make(chan error)
	go func() {
		g, err := Join(t.Context(), Options{Getenv: rankEnv(2, 3, m.port), Timeout: 8 * time.Second, Message: m.tell})
		if err == nil {
			err = m.work(g)
		}
		two <- err
	}()
	select {
	case err := <-m.first:
		t.Fatal("the job began without rank 1: ", err)
	case <-time.After(300 * time.Millisecond):
	}
	rest := make(chan error, 1)
	go func() {
		g, err := Join(t.Context(), Options{Getenv: rankEnv(1, 3, m.port), Timeout: 8 * time.Second, Message: m.tell})
		if err == nil {
			err = m.work(g)
		}
		rest <- err
	}()
	require.NoError(t, <-m.first)
	require.NoError(t, errors.Join(m.work(m.group), <-rest, <-two), m.told())
}

// TestStrangers_WhoListenFirst do not end a rank: whether they close, say something else, or send back what they hear.
func TestStrangers_WhoListenFirst(t *testing.T) {
	for name, c := range map[string]struct {
		serve func(c net.Conn)
		want  string
	}{
		"close":            {func(net.Conn) {}, "hung up"},
		"another protocol": {func(c net.Conn) { _, _ = fmt.Fprintf(c, "HTTP/1.0 200 OK\r\n%64s", "") }, errStranger.Error()},
		"what it hears": {func(c net.Conn) { _, _ = io.CopyN(c, c, int64(openBytes)+600) },
			"does not know the token of SPARK_TOKEN"},
		"a proof of no key": {func(c net.Conn) { _, _ = c.Write([]byte(magic + strings.Repeat("\x00", 100))) },
			"does not know the token of SPARK_TOKEN"},
	} {
		t.Run(name, func(t *testing.T) {
			m := &meeting{port: freePort(t), size: 2, first: make(chan error, 1)}
			l, err := net.Listen("tcp", m.address())
			require.NoError(t, err)
			joined := make(chan error, 1)
			go func() {
				g, err := Join(t.Context(), Options{Getenv: rankEnv(1, 2, m.port), Timeout: 8 * time.Second, Message: m.tell})
				if err == nil {
					err = m.work(g)
				}
				joined <- err
			}()
			conn, err := l.Accept()
			require.NoError(t, err)
			c.serve(conn)
			if name == "close" {
				conn.Close()
			}
			told := func() bool { return strings.Contains(m.told(), c.want) }
			require.Eventually(t, told, 2*time.Second, time.Millisecond, c.want)
			conn.Close()
			require.NoError(t, l.Close())
			g, err := Join(t.Context(), Options{Getenv: rankEnv(0, 2, m.port), Timeout: 8 * time.Second, Message: m.tell})
			require.NoError(t, err, m.told())
			require.NoError(t, m.work(g))
			require.NoError(t, <-joined)
		})
	}
}

// TestRanks_ThatAreAttackedDoTheirWork: whole jobs of two and three processes, among strangers of every kind.
func TestRanks_ThatAreAttackedDoTheirWork(t *testing.T) {
	fulltest.Long(t)
	for _, n := range []int{2, 3} {
		j := started(t, "attacked", n)
		m := &meeting{size: n}
		_, m.port, _ = net.SplitHostPort(j.Address)
		var attacks sync.WaitGroup
		met := make(chan struct{}, 4)
		for k := range 4 {
			attacks.Go(func() {
				var held []net.Conn
				for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
					c, err := net.Dial("tcp", j.Address)
					if err != nil {
						continue // nobody listens: the ranks have met, or have not begun
					}
					select {
					case met <- struct{}{}:
					default:
					}
					held = append(held, c)
					h := &handshake{conn: c, token: token{secret: []byte("nobody knows what the token is at all")}, role: roleRank}
					_ = c.SetDeadline(time.Now().Add(time.Second))
					switch k {
					case 0:
						_ = errors.Join(h.open(), h.opened(), h.say(hello{Rank: 1, Size: n}))
					case 1:
						_ = errors.Join(h.open(), h.opened(), h.write([]byte{255, 255, 255, 255}))
					case 2:
						_, _ = c.Write([]byte("GET / HTTP/1.0\r\n\r\n"))
						c.Close()
					}
				}
				for _, c := range held {
					c.Close()
				}
			})
		}
		for rank, r := range j.Wait() {
			assert.Zero(t, r.Code, r.Output)
			assert.Equal(t, wanted(n)+"\n", r.Output, "rank %d of %d", rank, n)
		}
		attacks.Wait()
		assert.NotEmpty(t, met, "strangers reached the first rank")
	}
}

// TestTheFirstRank_ListensWhereTheRanksMeetAlone: not on the other interfaces, of which 127.0.0.2 stands for one.
func TestTheFirstRank_ListensWhereTheRanksMeetAlone(t *testing.T) {
	if goruntime.GOOS != "linux" {
		t.Skip("only Linux has all of 127.0.0.0/8")
	}
	m := meet(t, 2)
	others := []string{"127.0.0.2", "::1"}
	addresses, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() && !n.IP.IsLinkLocalUnicast() {
			others = append(others, n.IP.String())
		}
	}
	for _, other := range others {
		_, err := net.Dial("tcp", net.JoinHostPort(other, m.port))
		assert.Error(t, err, other)
	}
	m.complete(t)
	_, err = net.Dial("tcp", m.address())
	assert.Error(t, err, "nobody listens when the ranks have met")
}

// TestTheFirstRank_OfAnAddressThatIsNotItsMachines says so, and one of every interface is refused.
func TestTheFirstRank_OfAnAddressThatIsNotItsMachines(t *testing.T) {
	for address, want := range map[string]string{
		"203.0.113.9": "MASTER_ADDR names no interface of this machine, on which rank 0 was started",
		"0.0.0.0":     "MASTER_ADDR=0.0.0.0 stands for every interface",
		"::":          "MASTER_ADDR=:: stands for every interface",
	} {
		_, err := Join(t.Context(), Options{Getenv: rankEnv(0, 2, "29507", "MASTER_ADDR", address)})
		assert.ErrorContains(t, err, want)
	}
}
