package train

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spark-compile/spark-compile/dora"
	"github.com/spark-compile/spark-compile/dora/collectives"
	"github.com/spark-compile/spark-compile/dora/dataset"
	"github.com/spark-compile/spark-compile/dora/loss"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/atomicfile"
	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/memory"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/runtime"
)

// prepare opens models, data and checkpoint, and compiles the step.
func (r *run) prepare(ctx context.Context) error {
	state, err := r.resumed(ctx)
	if err != nil {
		return err
	}
	if r.opt.Target == "" {
		r.opt.Target = target.Default().Name
		if t, err := target.For(r.opt.Device.Info().Target); err == nil {
			r.opt.Target = t.Name
		}
	}
	file, err := r.load(r.opt.Model)
	if err != nil {
		return err
	}
	if r.model, err = dora.Open(file, onnx.ImportOptions{Batch: r.opt.MicroBatch}); err != nil {
		return err
	}
	terms, err := r.terms(file)
	if err != nil {
		return err
	}
	digests := map[string]string{"--model": r.model.Base, "target": r.opt.Target}
	for flag, path := range map[string]string{"--adapter": r.opt.Adapter, "--teacher": r.opt.Teacher, "--vision": r.opt.Vision} {
		if path == "" {
			continue
		}
		if digests[flag], err = digestOf(path); err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
	}
	settings := r.opt.settings(r.group.Size())
	maps.Copy(settings, digests)
	if state != nil {
		if err := r.unchanged(settings); err != nil {
			return err
		}
	}
	if err := r.fits(file, terms); err != nil { // before data are read for hours
		return err
	}
	if err := r.openData(ctx, file, digests); err != nil {
		return err
	}
	if err := r.openTeacher(ctx, terms); err != nil {
		return err
	}
	if terms, err = r.related(ctx, terms); err != nil {
		return err
	}
	if err := r.compile(ctx, terms); err != nil {
		return err
	}
	if digests[programSetting], err = r.programs(); err != nil {
		return err
	}
	maps.Copy(settings, digests)
	alike := maps.Clone(settings)
	info := r.opt.Device.Info()
	alike["device"] = fmt.Sprintf("%s (%s)", info.Name, info.Backend)
	if err := collectives.Agree(ctx, r.group, alike); err != nil {
		return err
	}
	return r.start(ctx, settings, state)
}

// digestOf is the digest of a file's contents, as text.
func digestOf(path string) (string, error) {
	f, err := memory.OpenRegular(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), err
}

func (r *run) load(path string) (*onnx.Model, error) {
	m, err := onnx.Load(path)
	if err != nil {
		return nil, err
	}
	m.Warn = r.opt.Message
	return m, m.Validate()
}

// resumed reads the checkpoint that training goes on from, on the rank that writes; all ranks get its bytes. Nil: training begins.
func (r *run) resumed(ctx context.Context) ([]byte, error) {
	var data []byte
	if r.first() && !r.opt.DryRun {
		if err := r.alone(); err != nil {
			return nil, err
		}
		if r.opt.Resume {
			path, state, err := lastCheckpoint(r.opt.Output, r.opt.Message)
			if err != nil {
				return nil, err
			}
			if data = state; data != nil {
				r.opt.Message("resuming from " + path)
			}
		}
		if err := r.mayBegin(data != nil); err != nil {
			return nil, err
		}
	}
	data, err := share(ctx, r.group, data)
	if err != nil || len(data) == 0 {
		return nil, err
	}
	if r.pos, _, err = decodeState(data); err != nil {
		return nil, err
	}
	return data, r.adopt()
}

// unchanged compares the settings that are known before data are read and programs compiled, flags and files, with those of the checkpoint.
func (r *run) unchanged(settings map[string]string) error {
	was := maps.Clone(r.pos.Settings)
	maps.DeleteFunc(was, func(name, _ string) bool {
		_, known := settings[name]
		return !known && (!strings.HasPrefix(name, "--") || name == dataSetting)
	})
	return r.same(was, settings)
}

// same says which settings differ from those of the checkpoint. Another number of ranks divides the batch in other ways.
func (r *run) same(was, now map[string]string) error {
	if was = maps.Clone(was); r.pos.Ranks != r.group.Size() {
		for _, name := range dividing() {
			was[name] = now[name]
		}
	}
	if err := changed(was, now); err != nil {
		return fmt.Errorf("--resume: %s was trained with other settings: %w: give the same ones, or another --output", r.opt.Output, err)
	}
	return nil
}

// adopt divides the batch of all ranks anew where their number has changed.
func (r *run) adopt() error {
	if r.pos.Ranks == r.group.Size() {
		return nil
	}
	all, err := strconv.Atoi(r.pos.Settings[batchSetting])
	if err != nil || all%r.group.Size() != 0 {
		return fmt.Errorf("--resume: the checkpoint is of %s with a batch of %s in all, which does not divide among %d", console.Count(r.pos.Ranks, "rank"), r.pos.Settings[batchSetting], r.group.Size())
	}
	r.opt.BatchSize = all / r.group.Size()
	if r.opt.BatchSize%r.opt.MicroBatch != 0 {
		r.opt.MicroBatch, r.opt.TeacherBatch = 0, 0
		r.opt.defaults()
	}
	return nil
}

// share gives all ranks the first one's bytes.
func share(ctx context.Context, g collectives.Group, data []byte) ([]byte, error) {
	size := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
	if err := g.Broadcast(ctx, size); err != nil {
		return nil, err
	}
	if n := binary.LittleEndian.Uint64(size); g.Rank() != 0 {
		data = make([]byte, n)
	}
	if len(data) == 0 {
		return nil, nil
	}
	return data, g.Broadcast(ctx, data)
}

// programs is the digest of all that run: the step, and teacher and vision model where there are any.
func (r *run) programs() (string, error) {
	h := sha256.New()
	for _, p := range append([]*runtime.Program{r.step.Program}, r.companions...) {
		text, err := digest(p)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, text)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// digest is the SHA-256 of a program's files.
func digest(p *runtime.Program) (string, error) {
	files, err := p.Files()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(h, "%s %d\n", name, len(files[name]))
		h.Write(files[name])
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// terms are those of the loss.
func (r *run) terms(file *onnx.Model) (loss.Terms, error) {
	weights, err := loss.Parse(r.opt.Loss)
	if err != nil {
		return nil, err
	}
	return loss.Driving(file, weights)
}

// compile makes the adapter and its step.
func (r *run) compile(ctx context.Context, terms loss.Terms) (err error) {
	if r.adapter, err = r.opt.init(r.model); err != nil {
		return err
	}
	r.opt.Message(fmt.Sprintf("adapter: %d of the %d weights that take one, %d numbers: %.2f %% of the model's weights", len(r.adapter.Layers), len(r.model.Weights),
		r.adapter.Params(), 400*float64(r.adapter.Params())/float64(r.model.Bytes)))
	base := r.opt.Base
	for _, l := range r.adapter.Layers {
		if base == "" && l.Base != "" {
			base = l.Base
		}
	}
	r.step, err = dora.NewStep(ctx, r.model, r.adapter, dora.StepOptions{
		Precision: r.opt.Precision, Base: base, Targets: []string{r.opt.Target}, Loss: terms.Build,
		WeightDecay: r.opt.Decay, ClipNorm: r.opt.Clip, MicroBatches: r.opt.BatchSize / r.opt.MicroBatch, Memory: r.opt.Memory,
		Exchange: r.group.Size() > 1, Evaluate: true,
	})
	if err != nil {
		return err
	}
	if r.trainer, err = r.step.Open(ctx, r.opt.Device); err != nil {
		return err
	}
	r.close = append(r.close, r.trainer.Close)
	r.inputs = r.step.Inputs()
	return nil
}

// cache is a directory for what is kept between runs. "": nothing is.
func (r *run) cache(name string) string {
	switch {
	case r.opt.Cache != "":
		return filepath.Join(r.opt.Cache, name)
	case r.opt.DryRun:
		return ""
	}
	return filepath.Join(r.opt.Output, "cache", name)
}

// openData opens the samples and keeps some from training.
func (r *run) openData(ctx context.Context, file *onnx.Model, digests map[string]string) error {
	inputs, err := dataset.InputsOf(file)
	if err != nil {
		return err
	}
	opt := dataset.Options{Inputs: inputs, Cache: r.cache("frames"), Warn: r.opt.Message, Progress: r.opt.Reading}
	if r.opt.Vision != "" {
		if err := r.openVision(ctx, &opt); err != nil {
			return err
		}
	}
	set := r.opt.Set
	if set == nil {
		if set, err = dataset.Open(ctx, r.opt.Data, opt); err != nil {
			return err
		}
		r.close = append(r.close, set.Close)
	}
	if set.Len() == 0 {
		return fmt.Errorf("%s: it has no samples: logs without cameras show a model nothing", r.opt.Data)
	}
	digests[dataSetting] = set.Fingerprint()
	r.training = set
	if r.opt.Val > 0 {
		if r.training, r.held, err = dataset.Split(set, r.opt.Val, r.opt.Seed); err != nil {
			return err
		}
	}
	all := r.opt.BatchSize * r.group.Size()
	if r.each = r.training.Len() / all; r.each == 0 {
		return fmt.Errorf("%s: %s to train on, and an update takes %d: give more data or a smaller --batch-size", r.opt.Data, console.Count(r.training.Len(), "sample"), all)
	}
	r.schedule = schedule{r.opt.Schedule, r.opt.Rate, r.opt.Warmup, r.each * r.opt.Epochs}
	r.every, r.evaluate = r.opt.CheckpointEvery, r.opt.EvaluateEvery
	if r.schedule.warmup >= r.schedule.updates {
		return fmt.Errorf("--warmup %d: there are %s in all", r.opt.Warmup, console.Count(r.schedule.updates, "update"))
	}
	return nil
}

// start puts the step where training begins or goes on.
func (r *run) start(ctx context.Context, settings map[string]string, state []byte) error {
	if state == nil {
		r.pos = position{Format: positionFormat, Settings: settings, Ranks: r.group.Size()}
		return r.together(ctx)
	}
	pos, snapshot, err := decodeState(state)
	if err != nil {
		return err
	}
	if pos.Ranks != r.group.Size() { // whose step is another program
		for _, name := range dividing() {
			pos.Settings[name] = settings[name]
		}
	}
	if err := r.same(pos.Settings, settings); err != nil {
		return err
	}
	if pos.Epoch > r.opt.Epochs || pos.Batch >= r.each {
		return fmt.Errorf("--resume: %s is at batch %d of epoch %d, and there are %d epochs of %d batches: "+
			"remove it to go on from the one before", checkpointName(pos.Update), pos.Batch, pos.Epoch, r.opt.Epochs, r.each)
	}
	if err := r.trainer.Restore(snapshot); err != nil {
		return fmt.Errorf("--resume: %s: %w: remove it to go on from the one before", checkpointName(pos.Update), err)
	}
	r.pos, r.pos.Ranks, r.written = pos, r.group.Size(), pos.Update
	if !r.first() {
		return nil
	}
	if err := setAside(r.opt.Output, pos.Update); err != nil {
		return err
	}
	path := filepath.Join(r.opt.Output, bestFile)
	if pos.BestFile == nil {
		if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	return atomicfile.Write(path, pos.BestFile)
}

// together gives all ranks the first one's adapter.
func (r *run) together(ctx context.Context) error {
	if r.group.Size() == 1 {
		return nil
	}
	s, err := r.trainer.Snapshot()
	if err != nil {
		return err
	}
	data, err := encodeState(r.pos, s)
	if err != nil {
		return err
	}
	if data, err = share(ctx, r.group, data); err != nil {
		return err
	}
	if _, s, err = decodeState(data); err != nil {
		return err
	}
	return r.trainer.Restore(s)
}
