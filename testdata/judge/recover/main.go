// Command recover damages the trained driver-monitoring network on purpose, trains adapters of it by distillation from the
// original, and prints how much of the original they bring back on inputs that training never saw, beside what PyTorch and
// PEFT reach with the same initial values, steps and inputs. `make measure-adapters` runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/spark-compile/spark-compile/dora"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/recovery"
	"github.com/spark-compile/spark-compile/passes"
)

type options struct {
	models, damage, kinds, peft, by string
	seed                            uint64
	stages                          [2]recovery.Stage
	develop, told, verbose          bool
	draws, rank, largest            int
}

func main() {
	o := options{stages: recovery.Stages}
	flag.StringVar(&o.models, "models", "../shared/models", "directory of the shared models")
	flag.StringVar(&o.damage, "damage", "mendable,noise,int8,nvfp4", "damages")
	flag.StringVar(&o.kinds, "kinds", "dora,lora,magnitude", "kinds of adapters")
	flag.StringVar(&o.peft, "peft", "", "Python with the packages of testdata/judge/recover/reference.py; none: without PEFT's rows")
	flag.StringVar(&o.by, "by", recovery.ByLoss, "what chooses layers and ranks: norms, outputs or loss")
	flag.BoolVar(&o.told, "told", false, "rank 2 in the layers that mendable damages, instead of a choice")
	flag.IntVar(&o.rank, "rank", recovery.Rank, "greatest rank of a layer")
	flag.Uint64Var(&o.seed, "seed", 1, "of damage, first factors and order of inputs")
	flag.IntVar(&o.stages[0].Steps, "steps", o.stages[0].Steps, "steps of the forced stage")
	flag.IntVar(&o.stages[1].Steps, "last", o.stages[1].Steps, "steps of the last stage")
	flag.Float64Var(&o.stages[0].Rate, "rate", o.stages[0].Rate, "learning rate of the forced stage")
	flag.Float64Var(&o.stages[1].Rate, "slow", o.stages[1].Rate, "learning rate of the last stage")
	flag.IntVar(&o.draws, "draws", recovery.Draws, "perturbed inputs of each calibration input")
	flag.IntVar(&o.largest, "largest", recovery.Largest, "numbers of the largest inner value that is compared")
	flag.BoolVar(&o.develop, "develop", false, "judge on calibration inputs that are kept from training, not on golden inputs")
	flag.BoolVar(&o.verbose, "v", false, "print the layers")
	flag.Parse()
	if err := o.run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func tell(line string) { fmt.Fprintln(os.Stderr, line) }

func (o *options) run(ctx context.Context) (err error) {
	d, err := emu.Open(emu.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	n, err := recovery.Trained(ctx, o.models, o.draws, o.largest, o.develop, d)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Teacher.Close()) }()
	chosen, err := recovery.Undone(n.Original, recovery.Share, o.seed)
	if err != nil {
		return err
	}
	fmt.Println("| damage | adapter | layers | numbers | share of the file | relative L2 | variation explained |\n|---|---|---:|---:|---:|---:|---:|")
	for _, word := range strings.Split(o.damage, ",") {
		damage := recovery.Damage(word)
		damaged, strength, err := damage.Apply(ctx, n.Original, n.Seen, chosen, recovery.Apart, o.seed)
		if err != nil {
			return err
		}
		before, err := n.Unseen.Model(ctx, damaged)
		if err != nil {
			return err
		}
		fmt.Printf("| %s, strength %.3f | none | | | | %.4f | %.3f |\n", damage, strength, before.Relative, before.Explained)
		by, err := n.Sensitivity(ctx, damaged, o.by)
		if err != nil {
			return err
		}
		for _, kind := range strings.Split(o.kinds, ",") {
			opt := dora.InitOptions{Kind: passes.AdapterKind(kind), MaxSize: recovery.Share, Rank: o.rank, Seed: o.seed, Sensitivity: by}
			if o.told {
				opt.MaxSize, opt.Targets = 0, recovery.Names(chosen)
			}
			if err := o.rows(ctx, n, damage, damaged, opt); err != nil {
				return err
			}
		}
	}
	return nil
}

// rows are those of one adapter: ours and PEFT's.
func (o *options) rows(ctx context.Context, n *recovery.Network, damage recovery.Damage, damaged *dora.Model, opt dora.InitOptions) error {
	a, err := dora.Init(damaged, opt)
	if err != nil {
		return err
	}
	if o.verbose {
		for _, l := range a.Layers {
			tell(fmt.Sprint(l.Module, " ", l.Kind, " ", l.Rank))
		}
	}
	if o.peft != "" && opt.Kind != dora.Magnitude {
		if err := o.peftRow(ctx, n, damage, damaged, a); err != nil {
			return err
		}
	}
	got, err := n.Train(ctx, damaged, a, o.stages[:], o.seed, tell)
	if err != nil {
		return err
	}
	text, err := a.Encode()
	if err != nil {
		return err
	}
	share := 100 * float64(len(text)) / float64(n.Original.Bytes)
	fmt.Printf("| %s | %s | %d | %d | %.2f %% | %.4f | %.3f |\n", damage, opt.Kind, len(a.Layers), a.Params(), share, got.Relative, got.Explained)
	return nil
}
