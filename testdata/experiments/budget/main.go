// Command budget judges the accuracy budget: it compiles 30 combinations of network, precision, number of calibration inputs
// and budget, and measures each program on inputs that the compiler has not seen.
//
//	budget [-models DIR] [-seed N] [-only TEXT]
//
// prints a row for each combination and the worst at the end. It exits with 1 if a program in a low precision is further below the
// budget than allowed. Nothing may be chosen by what it prints: where it changed something, the verdict is that of another seed.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
)

// allowed is how far below the budget the cosine on unseen inputs may be.
const allowed = 0.0005

func main() {
	models := flag.String("models", "../shared/models", "directory of the trained network, dmonitoring_model.onnx, and its calibration inputs")
	seed := flag.Uint64("seed", 1, "seed of inputs and of which of them calibrate")
	only := flag.String("only", "", "judge only the combinations whose name contains this")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	missed, err := judge(ctx, *models, *seed, *only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "budget:", err)
		os.Exit(2)
	}
	if missed > 0 {
		os.Exit(1)
	}
}

// judge prints the table and counts the combinations that miss their budget.
func judge(ctx context.Context, models string, seed uint64, only string) (missed int, err error) {
	scratch, err := os.MkdirTemp("", "judge-budget")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(scratch)
	networks, err := open(models, scratch, seed)
	if err != nil {
		return 0, err
	}
	fmt.Println("network,precision,inputs,budget,prefer,layers in 16 bits,layers,lowest cosine on the compiler's inputs,of them,unseen inputs,lowest cosine on unseen inputs,output,verdict")
	var rows []*row
	for at, n := range networks {
		for _, c := range combinations(at, n) {
			if !strings.Contains(c.String(), only) {
				continue
			}
			r, err := c.judge(ctx, seed)
			if err != nil {
				return 0, fmt.Errorf("%v: %w", c, err)
			}
			fmt.Println(r)
			rows = append(rows, r)
		}
	}
	return summarise(rows), nil
}

// summarise prints how many combinations came to which verdict, and the one that is nearest to or furthest below its budget.
func summarise(rows []*row) (missed int) {
	count := map[verdict]int{}
	var worst *row
	for _, r := range rows {
		count[r.verdict]++
		if (r.verdict == met || r.verdict == missing) && (worst == nil || r.unseen.Cosine-r.budget < worst.unseen.Cosine-worst.budget) {
			worst = r
		}
	}
	fmt.Printf("\n%d combinations: %d met, %d missed, %d kept fp16, %d refused\n", len(rows), count[met], count[missing], count[half], count[refused])
	if worst != nil {
		fmt.Printf("worst: %v, %+.6f from the budget\n", worst.combination, worst.unseen.Cosine-worst.budget)
	}
	return count[missing]
}
