package train

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spark-compile/spark-compile/dora"
	"github.com/spark-compile/spark-compile/internal/adapterfile"
	"github.com/spark-compile/spark-compile/internal/memory"
)

// A checkpoint is a directory update-000100 with two files. It appears whole or not at all: it is written under another name, and
// renamed when both files are on the disk.
const (
	checkpointPrefix = "update-"
	adapterFile      = "adapter.safetensors" // as spark-dora init writes it
	stateFile        = "state.safetensors"   // what the device keeps, and the position under stateKey
	stateKey         = "spark-compile.train"
	digestKey        = "spark-compile.sha256" // of the position and the tensors
	partial          = ".partial"
	setAsideSuffix   = ".damaged" // of a checkpoint that training could not go on from
)

// Names of files in the output directory besides checkpoints.
const (
	bestFile   = "best.safetensors" // the adapter with the least validation loss
	lastFile   = "last.safetensors" // the adapter at the end
	reportFile = "report.html"
)

// position is where training stands.
type position struct {
	Format   int               `json:"format"`
	Settings map[string]string `json:"settings"` // that the numbers depend on

	Ranks int `json:"ranks"`

	Update int `json:"update"` // batches that were trained on, whether their update was applied or not
	Epoch  int `json:"epoch"`  // of the next batch
	Batch  int `json:"batch"`  // the next one of the epoch

	Applied int `json:"applied"` // updates that were applied
	Refused int `json:"refused"` // in a row, last

	Base     *Evaluation `json:"base,omitempty"` // of the model without the adapter
	Best     *Evaluation `json:"best,omitempty"`
	BestAt   int         `json:"best_update,omitempty"`
	BestFile []byte      `json:"-"` // bestFile's bytes

	Watch watch `json:"watch"`
}

const positionFormat = 1

// encodeState is the state file.
func encodeState(p position, s dora.Snapshot) ([]byte, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	f := &adapterfile.TensorFile{Tensors: map[string]adapterfile.Tensor{}, Metadata: map[string]string{stateKey: string(text)}}
	for name, data := range s.Kept {
		f.Tensors[name] = adapterfile.Tensor{DType: "U8", Shape: []int{len(data)}, Data: data}
	}
	if p.BestFile != nil {
		f.Tensors[bestFile] = adapterfile.Tensor{DType: "U8", Shape: []int{len(p.BestFile)}, Data: p.BestFile}
	}
	f.Metadata[digestKey] = stateDigest(f)
	return f.Encode()
}

// stateDigest is that of a state file without the digest, as text.
func stateDigest(f *adapterfile.TensorFile) string {
	h := sha256.New()
	fmt.Fprintf(h, "%q\n", f.Metadata[stateKey])
	for _, name := range slices.Sorted(maps.Keys(f.Tensors)) {
		fmt.Fprintf(h, "%q %d\n", name, len(f.Tensors[name].Data))
		h.Write(f.Tensors[name].Data)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// errFormat is that of a checkpoint of another version, which is not damaged.
var errFormat = errors.New("train with the version that wrote it, or begin anew")

// decodeState reads what encodeState wrote. Versions before this one wrote no digest.
func decodeState(data []byte) (p position, s dora.Snapshot, err error) {
	f, err := adapterfile.DecodeTensors(data)
	if err != nil {
		return p, s, err
	}
	if err := memory.Unmarshal([]byte(f.Metadata[stateKey]), &p); err != nil {
		return p, s, fmt.Errorf("metadata %q: %w", stateKey, err)
	}
	if p.Format != positionFormat {
		return p, s, fmt.Errorf("format %d, this version reads %d: %w", p.Format, positionFormat, errFormat)
	}
	for key := range f.Metadata {
		if key != stateKey && key != digestKey {
			return p, s, fmt.Errorf("metadata %q is unknown", key)
		}
	}
	if has := f.Metadata[digestKey]; has != "" && has != stateDigest(f) {
		return p, s, errors.New("it was changed or damaged: its contents differ from their digest")
	}
	if min(p.Ranks, p.Update, p.Epoch, p.Batch, p.Applied, p.Refused, p.BestAt) < 0 {
		return p, s, errors.New("it counts below zero")
	}
	s = dora.Snapshot{Updates: p.Applied, Refused: p.Refused, Kept: map[string][]byte{}}
	for name, t := range f.Tensors {
		if name == bestFile {
			p.BestFile = t.Data
			continue
		}
		s.Kept[name] = t.Data
	}
	return p, s, nil
}

// checkpointName is the directory of a checkpoint.
func checkpointName(update int) string { return fmt.Sprintf("%s%06d", checkpointPrefix, update) }

// writeCheckpoint writes a directory's checkpoint. Where it fails, as on a full disk, those that are there stay.
func writeCheckpoint(dir string, update int, adapter, state []byte) (err error) {
	path := filepath.Join(dir, checkpointName(update))
	temporary := path + partial
	defer func() {
		if err != nil {
			err = fmt.Errorf("checkpoint %s: %w; earlier checkpoints are kept", path, errors.Join(err, os.RemoveAll(temporary)))
		}
	}()
	if err := os.RemoveAll(temporary); err != nil {
		return err
	}
	if err := os.Mkdir(temporary, 0o755); err != nil {
		return err
	}
	for name, data := range map[string][]byte{adapterFile: adapter, stateFile: state} {
		if err := writeSynced(filepath.Join(temporary, name), data); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(path); err != nil { // of a run that was resumed from an earlier one
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func writeSynced(path string, data []byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// checkpoints are the updates of a directory's checkpoints, the last one first.
func checkpoints(dir string) (updates []int, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		number, ok := strings.CutPrefix(e.Name(), checkpointPrefix)
		if k, err := strconv.Atoi(number); ok && err == nil && e.IsDir() {
			updates = append(updates, k)
		}
	}
	slices.SortFunc(updates, func(a, b int) int { return cmp.Compare(b, a) })
	return updates, nil
}

// setAside renames the checkpoints after an update, so that none takes their place: they are damaged, and training goes
// on from the one before.
func setAside(dir string, update int) error {
	updates, err := checkpoints(dir)
	if err != nil {
		return err
	}
	for _, k := range updates {
		if k <= update {
			break
		}
		path := filepath.Join(dir, checkpointName(k))
		free := path + setAsideSuffix
		for n := 2; exists(free); n++ {
			free = fmt.Sprintf("%s%s-%d", path, setAsideSuffix, n)
		}
		if err := os.Rename(path, free); err != nil {
			return fmt.Errorf("setting a damaged checkpoint aside: %w", err)
		}
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// prune removes all but the last checkpoints, and what a killed process left unfinished.
func prune(dir string, keep int) error {
	updates, err := checkpoints(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, k := range updates[min(keep, len(updates)):] {
		errs = append(errs, os.RemoveAll(filepath.Join(dir, checkpointName(k))))
	}
	left, err := filepath.Glob(filepath.Join(dir, checkpointPrefix+"*"+partial))
	errs = append(errs, err)
	for _, path := range left {
		errs = append(errs, os.RemoveAll(path))
	}
	return errors.Join(errs...)
}

// lastCheckpoint reads the state file of the last checkpoint that is whole. Damaged ones after it are named by warn. A
// file that may not be read, does not fit the memory budget or is of another version is not damaged, but an error.
// Without any checkpoint, data is nil.
func lastCheckpoint(dir string, warn func(string)) (path string, data []byte, err error) {
	updates, err := checkpoints(dir)
	if err != nil {
		return "", nil, err
	}
	for _, k := range updates {
		path = filepath.Join(dir, checkpointName(k))
		data, err := readState(filepath.Join(path, stateFile))
		switch {
		case err == nil:
			return path, data, nil
		case errors.As(err, new(*damage)):
			warn(fmt.Sprintf("%s cannot be resumed from: %v; trying the one before", path, err))
		default:
			return "", nil, fmt.Errorf("%s cannot be resumed from: %w", path, err)
		}
	}
	if len(updates) > 0 {
		return "", nil, fmt.Errorf("%s: none of its %d checkpoints can be read: remove them to begin anew", dir, len(updates))
	}
	return "", nil, nil
}

// damage is the fault of a state file that no other memory, user or version reads better.
type damage struct{ error }

// readState reads a state file that can be resumed from.
func readState(path string) ([]byte, error) {
	f, err := memory.OpenRegular(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &damage{errors.New("it has no " + stateFile)}
	case err != nil:
		return nil, err
	}
	defer f.Close()
	data, err := memory.ReadAll(f, f.Size())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", stateFile, err)
	}
	_, _, err = decodeState(data)
	switch {
	case errors.Is(err, memory.ErrBudget), errors.Is(err, errFormat):
		return nil, fmt.Errorf("%s: %w", stateFile, err)
	case err != nil:
		return nil, &damage{fmt.Errorf("%s: %w", stateFile, err)}
	}
	return data, nil
}

// programSetting is the digest of the programs, which differ where other settings do, or the compiler. memorySetting counts only where they do: a step that
// fits into both bounds is the same one.
const (
	programSetting = "program"
	memorySetting  = "--memory"
	dataSetting    = "--data" // the fingerprint
)

// changed says which settings differ from those of a checkpoint, and of the program only if none else does.
func changed(was, now map[string]string) error {
	var errs []string
	for _, name := range slices.Sorted(keys(was, now)) {
		if a, b := was[name], now[name]; a != b && name != programSetting && (name != memorySetting || was[programSetting] != now[programSetting]) {
			text := fmt.Sprintf("%s was %s and is %s", name, cmp.Or(a, "not given"), cmp.Or(b, "not given"))
			if isDigest(a) && isDigest(b) {
				text = name + " has other contents"
			}
			errs = append(errs, text)
		}
	}
	switch {
	case len(errs) > 0:
		return errors.New(strings.Join(errs, "; "))
	case was[programSetting] != now[programSetting]:
		return errors.New("the same settings give another program, so another version of spark-dora wrote the checkpoint")
	}
	return nil
}

// isDigest reports whether a setting is that of a file or of data, by which nobody knows them.
func isDigest(text string) bool {
	_, err := hex.DecodeString(text)
	return err == nil && len(text) == 2*sha256.Size
}

// keys are the names in either map.
func keys(a, b map[string]string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for name := range a {
			if !yield(name) {
				return
			}
		}
		for name := range b {
			if _, ok := a[name]; !ok && !yield(name) {
				return
			}
		}
	}
}
