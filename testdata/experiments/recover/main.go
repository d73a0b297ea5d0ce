// Command recover damages the trained driver-monitoring network on purpose, trains adapters of it by distillation from the
// original, and prints how much of the original they bring back on inputs that training never saw, beside what PyTorch and
// PEFT reach with the same initial values, steps and inputs. `make measure-adapters` runs it.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spark-compile/spark-compile/dora"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/passes"
	"github.com/spark-compile/spark-compile/testdata/experiments/recovery"
	"github.com/spark-compile/spark-compile/testdata/gen/damage"
)

type options struct {
	models, damage, kinds, peft, by, results string
	steps, bases                             string
	seed                                     uint64
	stages                                   [2]recovery.Stage
	develop, told, verbose                   bool
	draws, rank, largest                     int
}

func main() {
	o := options{stages: recovery.Stages}
	flag.StringVar(&o.models, "models", "../shared/models", "directory of the shared models")
	flag.StringVar(&o.damage, "damage", "mendable,noise,int8,nvfp4", "damages")
	flag.StringVar(&o.kinds, "kinds", "dora,lora,magnitude", "kinds of adapters")
	flag.StringVar(&o.peft, "peft", "", "Python with the packages of testdata/experiments/recover/reference.py; none: without PEFT's rows")
	flag.StringVar(&o.by, "by", recovery.ByLoss, "what chooses layers and ranks: norms, outputs or loss, or several of them")
	flag.StringVar(&o.results, "results", "", "file to which rows are added; those that it has are not made again")
	flag.StringVar(&o.steps, "precision", "", "precisions of steps; with it or -base a table by these is printed")
	flag.StringVar(&o.bases, "base", "", "how steps store frozen weights: wide, or a name of dora.StepOptions.Base, with a colon behind it if fitted to inputs, or several of them")
	flag.BoolVar(&o.told, "told", false, "rank 2 in the layers that mendable damages, instead of a choice")
	flag.IntVar(&o.rank, "rank", damage.Rank, "greatest rank of a layer")
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

// settings name what all rows of a run share.
func (o *options) settings() string {
	return fmt.Sprintf("%+v seed=%d draws=%d rank=%d largest=%d develop=%t told=%t", o.stages, o.seed, o.draws, o.rank, o.largest, o.develop, o.told)
}

func (o *options) run(ctx context.Context) (err error) {
	if o.results == "" {
		dir, err := os.MkdirTemp("", "recover")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		o.results = filepath.Join(dir, "rows")
	}
	results, err := recovery.OpenResults(o.results)
	if err != nil {
		return err
	}
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
	chosen, err := damage.Undone(n.Original, recovery.Share, o.seed)
	if err != nil {
		return err
	}
	if o.arithmetics() == nil {
		fmt.Print(recovery.Heading)
	} else {
		fmt.Print(recovery.BaseHeading)
	}
	for _, word := range strings.Split(o.damage, ",") {
		t := &table{options: o, results: results, network: n, chosen: chosen, damage: damage.Kind(word)}
		if err := t.make(ctx); err != nil {
			return err
		}
		for _, by := range o.arithmetics() {
			if err := t.beside(ctx, by); err != nil {
				return err
			}
		}
	}
	return nil
}

// arithmetics are those that steps are asked to compute in; nil: the table is not about them.
func (o *options) arithmetics() (out []recovery.Arithmetic) {
	if o.steps == "" && o.bases == "" {
		return nil
	}
	for _, p := range strings.Split(cmp.Or(o.steps, "fp32"), ",") {
		for _, base := range strings.Split(cmp.Or(o.bases, wide), ",") {
			by := recovery.Arithmetic{Precision: p, Base: base}
			if base == wide {
				by.Base = ""
			}
			out = append(out, by)
		}
	}
	return out
}

// wide is the word for the file's own weights.
const wide = "wide"

// table is that of a damage.
type table struct {
	*options
	results *recovery.Results
	network *recovery.Network
	chosen  []*dora.Weight // that mendable damages

	damage   damage.Kind
	strength float64
	damaged  *dora.Model
}

// make prints all rows of steps in fp32. Those that the results have are not made again.
func (t *table) make(ctx context.Context) error {
	if t.arithmetics() != nil {
		return nil
	}
	row := recovery.Row{Damage: t.damage, Settings: t.settings()}
	before, err := t.results.Row(row, func(r *recovery.Row) error {
		if err := t.apply(ctx); err != nil {
			return err
		}
		var err error
		r.Strength = t.strength
		r.Quality, err = t.network.Unseen.Model(ctx, t.damaged)
		return err
	})
	if err != nil {
		return err
	}
	before.Print(os.Stdout)
	for _, by := range strings.Split(t.by, ",") {
		var sensitivity map[string]float64
		for _, kind := range strings.Split(t.kinds, ",") {
			for _, trainer := range []string{"", "PEFT"} {
				if trainer != "" && (t.peft == "" || kind == string(dora.Magnitude)) {
					continue
				}
				row.Adapter, row.Chosen, row.Trainer = kind, by, trainer
				got, err := t.results.Row(row, func(r *recovery.Row) (err error) {
					if err := t.apply(ctx); err != nil {
						return err
					}
					if sensitivity == nil && !t.told {
						if sensitivity, err = t.network.Sensitivity(ctx, t.damaged, recovery.Arithmetic{}, by); err != nil {
							return err
						}
					}
					return t.train(ctx, r, recovery.Arithmetic{}, sensitivity)
				})
				if err != nil {
					return err
				}
				got.Print(os.Stdout)
			}
		}
	}
	return nil
}

// beside prints the rows of steps that compute in one way.
func (t *table) beside(ctx context.Context, in recovery.Arithmetic) error {
	row := recovery.Row{Damage: t.damage, Settings: t.settings(), Arithmetic: in}
	rounded := false
	apply := func() (err error) { // once
		if err := t.apply(ctx); err != nil || rounded {
			return err
		}
		in, err = t.network.RoundBase(ctx, t.damaged, in)
		rounded = true
		return err
	}
	none, err := t.results.Row(row, func(r *recovery.Row) error {
		if err := apply(); err != nil {
			return err
		}
		got, err := t.network.Untrained(ctx, t.damaged, in)
		r.Quality, r.Constants = got.Quality, got.Constants
		return err
	})
	if err != nil {
		return err
	}
	none.PrintBase(os.Stdout)
	var sensitivity map[string]float64
	for _, kind := range strings.Split(t.kinds, ",") {
		row.Adapter, row.Chosen = kind, t.by
		got, err := t.results.Row(row, func(r *recovery.Row) (err error) {
			if err := apply(); err != nil {
				return err
			}
			if sensitivity == nil && !t.told {
				if sensitivity, err = t.network.Sensitivity(ctx, t.damaged, in, t.by); err != nil {
					return err
				}
			}
			return t.train(ctx, r, in, sensitivity)
		})
		if err != nil {
			return err
		}
		got.PrintBase(os.Stdout)
	}
	return nil
}

// judge trains an adapter and measures it: as its step computes it, merged into the file as it was trained, and into the file's
// own weights.
func (t *table) judge(ctx context.Context, r *recovery.Row, a *dora.Adapter, in recovery.Arithmetic) error {
	got, err := t.network.Train(ctx, t.damaged, a, in, t.stages[:], t.seed, tell)
	if err != nil || r.Precision == "" {
		r.Quality = got.Quality
		return err
	}
	r.Quality, r.Constants = got.Quality, got.Constants
	if r.Merged, err = t.network.Merged(ctx, t.damaged, a); err != nil {
		return err
	}
	for _, l := range a.Layers {
		l.Base = ""
	}
	r.Cleared, err = t.network.Merged(ctx, t.damaged, a)
	return err
}

// apply damages the network, once.
func (t *table) apply(ctx context.Context) (err error) {
	if t.damaged == nil {
		n := t.network
		t.damaged, t.strength, err = recovery.Apply(ctx, t.damage, n.Original, n.Seen, t.chosen, recovery.Target, t.seed)
	}
	return err
}

// train trains an adapter, and fills in its row.
func (t *table) train(ctx context.Context, r *recovery.Row, in recovery.Arithmetic, sensitivity map[string]float64) error {
	opt := dora.InitOptions{Kind: passes.AdapterKind(r.Adapter), MaxSize: recovery.Share, Rank: t.rank, Seed: t.seed, Sensitivity: sensitivity}
	if t.told {
		opt.MaxSize, opt.Targets = 0, recovery.Names(t.chosen)
	}
	a, err := dora.Init(t.damaged, opt)
	if err != nil {
		return err
	}
	if t.verbose {
		for _, l := range a.Layers {
			tell(fmt.Sprint(l.Module, " ", l.Kind, " ", l.Rank))
		}
	}
	tell(fmt.Sprintf("%s, %s %s, by %s %v", t.damage, r.Adapter, r.Trainer, r.Chosen, r.Arithmetic))
	if r.Trainer != "" {
		return t.peftRow(ctx, r, a)
	}
	text, err := a.Encode()
	if err != nil {
		return err
	}
	r.Layers, r.Numbers, r.Share = len(a.Layers), a.Params(), float64(len(text))/float64(t.network.Original.Bytes)
	return t.judge(ctx, r, a, in)
}
