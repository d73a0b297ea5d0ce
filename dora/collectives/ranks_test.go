package collectives

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/internal/testing/localranks"
	"github.com/spark-compile/spark-compile/runtime"
)

// scenarioVariable makes the test's program a rank that plays a scenario.
const scenarioVariable = "SPARK_RANKS_SCENARIO"

func TestMain(m *testing.M) {
	name := os.Getenv(scenarioVariable)
	if name == "" {
		os.Exit(m.Run())
	}
	if err := play(name); err != nil {
		fmt.Println("error:", err)
		os.Exit(3)
	}
}

// vector is what a rank has: numbers whose sum depends on the order.
func vector(rank, n int) []float32 {
	rng := rand.New(rand.NewPCG(9, uint64(rank)))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(math.Exp(float64(20 * rng.NormFloat64())))
	}
	return x
}

// numbers of the vector whose mean is taken: 4 MB.
const numbers = 1 << 20

// play is what a rank does.
func play(name string) (err error) {
	ctx := context.Background()
	timeout := 20 * time.Second
	if name == "missing" {
		timeout = time.Second
		if os.Getenv("RANK") == "2" {
			return nil
		}
	}
	if name == "attacked" && os.Getenv("RANK") != "0" {
		time.Sleep(time.Second) // strangers come first
	}
	g, err := Join(ctx, Options{Timeout: timeout, Silence: 2 * time.Second})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	switch name {
	case "calls", "attacked":
		return calls(ctx, g)
	case "die", "stop", "wait":
		fmt.Println("joined")
		for k := 0; ; k++ {
			if err := g.Mean(ctx, make([]float32, 1000)); err != nil {
				return err
			}
			if k == 100 {
				fmt.Println("running")
			}
			time.Sleep(time.Millisecond)
		}
	case "name":
		fmt.Println(g.Engine())
		return nil
	case "fail":
		if g.Rank() == 1 {
			g.Abort(errors.New("its disk is full"))
			return nil
		}
		_, err := g.Gather(ctx, nil)
		return err
	case "lengths":
		return g.Mean(ctx, make([]float32, 4+g.Rank()))
	case "calls differ":
		if g.Rank() == 1 {
			_, err := g.Gather(ctx, nil)
			return err
		}
		return g.Mean(ctx, make([]float32, 4))
	case "disagree":
		what := map[string]string{"model": "a", "data": "b"}
		if g.Rank() == 1 {
			what["data"] = "c"
		}
		return Agree(ctx, g, what)
	case "killed":
		fmt.Println("joined")
		if g.Rank() == 1 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		return g.Mean(ctx, make([]float32, 1000))
	case "early":
		if g.Rank() == 1 {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
		return g.Broadcast(ctx, make([]byte, 3))
	}
	return fmt.Errorf("no scenario %q", name)
}

// calls makes all calls and prints a digest of what they gave, without the engine and the rank.
func calls(ctx context.Context, g Group) error {
	h := sha256.New()
	for k := range 3 {
		x := vector(g.Rank()+10*k, numbers)
		if err := g.Mean(ctx, x); err != nil {
			return err
		}
		h.Write(runtime.Bytes(x))
		text := []byte("from the first!")
		if g.Rank() != 0 {
			text = make([]byte, len(text))
		}
		if err := g.Broadcast(ctx, text); err != nil {
			return err
		}
		h.Write(text)
		all, err := g.Gather(ctx, []byte(strings.Repeat("x", g.Rank())))
		if err != nil {
			return err
		}
		for rank, data := range all {
			if len(data) != rank {
				return fmt.Errorf("rank %d sent %d bytes", rank, len(data))
			}
		}
		if err := Agree(ctx, g, map[string]string{"model": "a"}); err != nil {
			return err
		}
	}
	fmt.Printf("%x\n", h.Sum(nil))
	return nil
}

// wanted is the digest of what calls should give, by the definition of a mean.
func wanted(size int) string {
	h := sha256.New()
	for k := range 3 {
		sum := vector(10*k, numbers)
		for rank := 1; rank < size; rank++ {
			for i, v := range vector(rank+10*k, numbers) {
				sum[i] += v
			}
		}
		for i := range sum {
			sum[i] *= 1 / float32(size)
		}
		h.Write(runtime.Bytes(sum))
		h.Write([]byte("from the first!"))
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

func started(t *testing.T, scenario string, n int) *localranks.Job {
	return localranks.Start(t, n, []string{scenarioVariable + "=" + scenario}, os.Args[0])
}

// TestMeansHaveTheBitsOfTheRanksInTheirOrder: on every rank, in every run, for two ranks and for more.
func TestMeansHaveTheBitsOfTheRanksInTheirOrder(t *testing.T) {
	for _, n := range []int{3, 2, 4} {
		if n != 3 && !fulltest.Some() {
			continue
		}
		for range 2 {
			for rank, r := range started(t, "calls", n).Wait() {
				require.Zero(t, r.Code, r.Output)
				assert.Equal(t, wanted(n)+"\n", r.Output, "rank %d of %d", rank, n)
			}
		}
	}
	a, b, c := vector(0, 1000), vector(1, 1000), vector(2, 1000)
	assert.NotEqual(t, mean([][]float32{a, b, c}), mean([][]float32{c, b, a}), "the order counts")
}

// TestARankThatDiesEndsTheOthers, whichever it is, by an error that names it.
func TestARankThatDiesEndsTheOthers(t *testing.T) {
	for dead := range 3 {
		j := started(t, "die", 3)
		for rank := range 3 {
			j.Until(rank, "running")
		}
		begun := time.Now()
		j.Kill(dead)
		for rank, r := range j.Wait() {
			if rank == dead {
				assert.Equal(t, -1, r.Code)
				continue
			}
			assert.Equal(t, 3, r.Code)
			assert.Contains(t, r.Output, fmt.Sprintf("error: rank %d on ", dead), "rank %d", rank)
			assert.Contains(t, r.Output, "it has crashed or was killed")
		}
		assert.Less(t, time.Since(begun), 10*time.Second)
	}
}

// TestARankThatHangsEndsTheOthers: its machine may have lost its power.
func TestARankThatHangsEndsTheOthers(t *testing.T) {
	fulltest.Long(t)
	j := started(t, "stop", 2)
	j.Until(1, "running")
	j.Signal(1, syscall.SIGSTOP)
	time.AfterFunc(6*time.Second, func() { j.Signal(1, syscall.SIGKILL) })
	r := j.Wait()[0]
	assert.Equal(t, 3, r.Code)
	assert.Contains(t, r.Output, "error: rank 1 on ")
	assert.Contains(t, r.Output, "it has said nothing for 2s")
}

// TestRanksThatDoNotFit: each error is that of all ranks it concerns.
func TestRanksThatDoNotFit(t *testing.T) {
	for scenario, want := range map[string][]string{
		"fail":         {"error: rank 1 on ", "its disk is full"},
		"lengths":      {"error: rank 1 has 5 numbers, rank 0 4"},
		"calls differ": {"makes another call than"},
		"disagree":     {`error: rank 1 differs: data is "c" and was "b" on rank 0: give all ranks the same program, files and flags`},
		"early":        {"error: rank 1 on ", "it has ended"},
		"missing":      {"error: rank 2 of 3 did not join within 1s"},
	} {
		t.Run(scenario, func(t *testing.T) {
			n := 2
			if scenario == "missing" {
				n = 3
			}
			results := started(t, scenario, n).Wait()
			assert.Equal(t, 3, results[0].Code)
			for _, text := range want {
				assert.Contains(t, results[0].Output, text)
			}
			switch scenario {
			case "lengths", "disagree":
				assert.Contains(t, results[1].Output, want[0])
			case "calls differ":
				assert.Contains(t, results[1].Output, want[0])
			case "missing":
				assert.Regexp(t, "the first rank at .* (went away|waited for others for 1s)", results[1].Output, "whose second is over first")
			}
		})
	}
}

// TestARankThatIsInterruptedEndsTheOthers: a signal ends it, since its program does not ask for one.
func TestARankThatIsInterruptedEndsTheOthers(t *testing.T) {
	j := started(t, "wait", 2)
	j.Until(0, "running")
	j.Signal(0, os.Interrupt)
	r := j.Wait()
	assert.Contains(t, r[1].Output, "error: rank 0 on ")
}

// TestRanksUnderMPI: the same means as over TCP; a rank that fails or is killed ends the job within seconds.
func TestRanksUnderMPI(t *testing.T) {
	fulltest.Long(t)
	under := func(scenario string, n int) (localranks.Result, time.Duration) {
		begun := time.Now()
		r := localranks.MPI(t, n, []string{scenarioVariable + "=" + scenario}, os.Args[0]).Wait()[0]
		return r, time.Since(begun)
	}
	for _, n := range []int{2, 3} {
		r, _ := under("calls", n)
		require.Zero(t, r.Code, r.Output)
		assert.Equal(t, strings.Repeat(wanted(n)+"\n", n), r.Output)
	}
	for scenario, want := range map[string]string{
		"killed":   "Killed",
		"fail":     "its disk is full",
		"lengths":  "rank 1 has 5 numbers, rank 0 4",
		"disagree": `rank 1 differs: data is "c" and was "b" on rank 0`,
	} {
		r, took := under(scenario, 2)
		assert.NotZero(t, r.Code, scenario)
		assert.Contains(t, r.Output, want, scenario)
		assert.Less(t, took, 10*time.Second, scenario)
	}
	r, _ := under("name", 2)
	assert.Contains(t, r.Output, "Open MPI ")
}

// TestMPIThatCannotBeOpened: the error says what to do.
func TestMPIThatCannotBeOpened(t *testing.T) {
	e := map[string]string{"PMI_RANK": "0", "PMI_SIZE": "2", MPIVariable: "/nowhere/libmpi.so"}
	_, err := Join(context.Background(), Options{Getenv: func(name string) string { return e[name] }})
	assert.ErrorContains(t, err, "MPICH started this process as rank 0 of 2, but its library cannot be opened")
	assert.ErrorContains(t, err, "name libmpi.so in SPARK_MPI, or set MASTER_ADDR")
}

// TestARankThatWaitsForOthersIsInterrupted: what is said then is that, and not that the first rank went away.
func TestARankThatWaitsForOthersIsInterrupted(t *testing.T) {
	port := freePort(t)
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
	require.NoError(t, err)
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	b := newLobby(newTCP(place{size: 3}), token{secret: []byte(testToken)}, func(text string) { t.Log(text) })
	go func() {
		c, err := l.Accept()
		if err == nil {
			err = b.shake(c)
		}
		if err != nil {
			t.Error(err)
		}
		cancel() // it waits for the start
	}()
	_, err = Join(ctx, Options{Getenv: rankEnv(1, 3, port)})
	require.ErrorIs(t, err, context.Canceled)
}
