package collectives

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/runtime"
)

// Group is a job's ranks as one of them sees it. All ranks call the same methods in the same order, one goroutine of each at a time. After
// an error the group is of no use, but for Abort and Close.
type Group interface {
	Rank() int      // of this process, from 0
	Size() int      // number of ranks
	Engine() string // what carries the messages: tcp, Open MPI 4.1.4, alone

	// Mean replaces a vector by the mean over the ranks, whose vectors are as long: ((x0 + x1) + x2) + …, in f32, times 1/size in f32.
	Mean(ctx context.Context, x []float32) error
	// Broadcast gives all ranks the first one's bytes, of which all have as many.
	Broadcast(ctx context.Context, x []byte) error
	// Gather gives all ranks what each has, by rank. Lengths may differ; under MPI each is 1 GiB at most.
	Gather(ctx context.Context, x []byte) ([][]byte, error)

	// Abort ends the others, with an error that names this rank and gives its reason.
	Abort(err error)
	Close() error
}

// Variables of the environment that name the libraries of MPI and NCCL, where they are not found.
const (
	MPIVariable  = "SPARK_MPI"
	NCCLVariable = "SPARK_NCCL"
)

// Options say how ranks find each other.
type Options struct {
	Getenv  func(string) string // os.Getenv by default
	Timeout time.Duration       // until all ranks have joined; a minute by default
	Silence time.Duration       // after which a rank that says nothing is taken for dead; 10 s by default
	Message func(text string)   // a line for the user, such as who was refused; may be nil; called by several goroutines
}

// Join joins the group that the environment says this process is of: a group of one where it says nothing.
func Join(ctx context.Context, opt Options) (Group, error) {
	if opt.Getenv == nil {
		opt.Getenv = os.Getenv
	}
	if opt.Timeout == 0 {
		opt.Timeout = time.Minute
	}
	if opt.Silence == 0 {
		opt.Silence = 10 * time.Second
	}
	if opt.Message == nil {
		opt.Message = func(string) {}
	}
	p, err := find(ctx, opt.Getenv)
	switch {
	case err != nil:
		return nil, err
	case p.size == 1:
		return alone{}, nil
	}
	if p.address == "" {
		return joinMPI(ctx, p, opt.Getenv)
	}
	return joinTCP(ctx, p, opt)
}

// Describe says how many ranks a group has, and what carries their messages.
func Describe(g Group) string {
	if _, ok := g.(alone); ok {
		return "1 rank, as no launcher has started others"
	}
	return fmt.Sprintf("%s over %s", console.Count(g.Size(), "rank"), g.Engine())
}

// alone is a group of one.
type alone struct{}

func (alone) Rank() int                                     { return 0 }
func (alone) Size() int                                     { return 1 }
func (alone) Engine() string                                { return "alone" }
func (alone) Mean(ctx context.Context, _ []float32) error   { return ctx.Err() }
func (alone) Broadcast(ctx context.Context, _ []byte) error { return ctx.Err() }
func (alone) Gather(ctx context.Context, x []byte) ([][]byte, error) {
	return [][]byte{slices.Clone(x)}, ctx.Err()
}
func (alone) Abort(error)  {}
func (alone) Close() error { return nil }

// mean is the sum of vectors in their order, times one over their number.
func mean(vectors [][]float32) []float32 {
	sum := slices.Clone(vectors[0])
	for _, x := range vectors[1:] {
		for i, v := range x {
			sum[i] += v
		}
	}
	by := 1 / float32(len(vectors))
	for i := range sum {
		sum[i] = float32(sum[i] * by)
	}
	return sum
}

// vectorsOf are the ranks' vectors, which are as long.
func vectorsOf(all [][]byte) (vectors [][]float32, err error) {
	for rank, data := range all {
		if len(data) != len(all[0]) {
			return nil, fmt.Errorf("rank %d has %d numbers, rank 0 %d", rank, len(data)/4, len(all[0])/4)
		}
		// What was received may begin anywhere; numbers begin at multiples of four.
		x := make([]float32, len(data)/4)
		copy(runtime.Bytes(x), data)
		vectors = append(vectors, x)
	}
	return vectors, nil
}

// joined concatenates messages, each preceded by its length.
func joined(all [][]byte) (out []byte) {
	for _, data := range all {
		out = append(binary.LittleEndian.AppendUint64(out, uint64(len(data))), data...)
	}
	return out
}

// parted is the inverse of joined.
func parted(data []byte, count int) (all [][]byte, err error) {
	for len(data) >= 8 {
		n := binary.LittleEndian.Uint64(data)
		if n > uint64(len(data)-8) {
			break
		}
		all, data = append(all, data[8:8+n]), data[8+n:]
	}
	if len(all) != count || len(data) > 0 {
		return nil, fmt.Errorf("%d messages of %d ranks", len(all), count)
	}
	return all, nil
}

// Agree reports in what the ranks differ, if they do, on all of them alike. What is compared is text by name.
func Agree(ctx context.Context, g Group, what map[string]string) error {
	data, err := json.Marshal(what)
	if err != nil {
		return err
	}
	gathered, err := g.Gather(ctx, data)
	if err != nil {
		return err
	}
	var first map[string]string
	var errs []error
	for rank, data := range gathered {
		var own map[string]string
		if err := json.Unmarshal(data, &own); err != nil {
			return fmt.Errorf("rank %d: %w", rank, err)
		}
		if rank == 0 {
			first = own
			continue
		}
		var differs []string
		for _, name := range slices.Sorted(maps.Keys(union(first, own))) {
			if own[name] != first[name] {
				differs = append(differs, fmt.Sprintf("%s is %q and was %q on rank 0", name, own[name], first[name]))
			}
		}
		if len(differs) > 0 {
			errs = append(errs, fmt.Errorf("rank %d differs: %s", rank, strings.Join(differs, "; ")))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: give all ranks the same program, files and flags", err)
	}
	return nil
}

func union(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, b)
	return out
}
