package dataset

import (
	"context"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
)

// Shuffle is the order of n samples in an epoch.
func Shuffle(seed uint64, epoch, n int) []int {
	return rand.New(rand.NewPCG(seed, uint64(epoch))).Perm(n)
}

// Shard is a rank's part of an order: of each batch of batch·ranks samples the rank-th batch in a row. What is left at the end is left out.
func Shard(order []int, batch, rank, ranks int) (out []int) {
	for all := batch * ranks; len(order) >= all; order = order[all:] {
		out = append(out, order[rank*batch:(rank+1)*batch]...)
	}
	return out
}

// part is a set of some samples of another.
type part struct {
	Set
	samples []int
}

func (p *part) Len() int           { return len(p.samples) }
func (p *part) Route(i int) string { return p.Set.Route(p.samples[i]) }

func (p *part) Sample(ctx context.Context, i int) (*Sample, error) {
	return p.Set.Sample(ctx, p.samples[i])
}

// Split keeps a share of the routes from training: whole ones, chosen by the seed, one at least and not all. The samples of a single route, which are
// next to one another, are split at its end. Neither of the results closes the set.
func Split(set Set, share float64, seed uint64) (training, held Set, err error) {
	routes, samples := []string{}, map[string][]int{}
	for i := range set.Len() {
		name := set.Route(i)
		if samples[name] == nil {
			routes = append(routes, name)
		}
		samples[name] = append(samples[name], i)
	}
	a, b := &part{Set: set}, &part{Set: set}
	if len(routes) < 2 {
		all := samples[slices.Concat(routes, []string{""})[0]]
		n := int(math.Ceil(share * float64(len(all))))
		if n == len(all) {
			return nil, nil, fmt.Errorf("%d samples cannot be split into some to train on and some to judge on: give more data, or --val 0", len(all))
		}
		a.samples, b.samples = all[:len(all)-n], all[len(all)-n:]
		return a, b, nil
	}
	n := min(max(int(math.Round(share*float64(len(routes)))), 1), len(routes)-1)
	order := rand.New(rand.NewPCG(seed, math.MaxUint64)).Perm(len(routes))
	for i, name := range routes {
		if slices.Contains(order[:n], i) {
			b.samples = append(b.samples, samples[name]...)
		} else {
			a.samples = append(a.samples, samples[name]...)
		}
	}
	return a, b, nil
}

// Load gives the samples of an order one after the other. Several workers read up to prefetch samples in advance.
// It ends after an error, which names the sample, and with the context. When it has ended nobody reads the set any
// more, so that it may be closed.
func Load(ctx context.Context, set Set, order []int, workers, prefetch int) iter.Seq2[*Sample, error] {
	type result struct {
		sample *Sample
		err    error
	}
	return func(yield func(*Sample, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		var under sync.WaitGroup
		defer func() { cancel(); under.Wait() }()
		// Each sample has a place of its own in the queue, in the order; the queue bounds how many are under way.
		queue, free := make(chan chan result, max(prefetch, 1)), make(chan struct{}, max(workers, 1))
		under.Go(func() {
			defer close(queue)
			for _, i := range order {
				place := make(chan result, 1)
				select {
				case queue <- place:
				case <-ctx.Done():
					return
				}
				select {
				case free <- struct{}{}:
				case <-ctx.Done():
					return
				}
				under.Go(func() {
					defer func() { <-free }()
					s, err := set.Sample(ctx, i)
					if err != nil {
						err = fmt.Errorf("sample %d of route %s: %w", i, set.Route(i), err)
					}
					place <- result{s, err}
				})
			}
		})
		for place := range queue {
			select {
			case r := <-place:
				if !yield(r.sample, r.err) || r.err != nil {
					return
				}
			case <-ctx.Done():
				yield(nil, ctx.Err())
				return
			}
		}
		if ctx.Err() != nil {
			yield(nil, ctx.Err())
		}
	}
}
