package cuda

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"unsafe"

	"github.com/spark-compile/spark-compile/internal/atomicfile"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// jitCache caches on disk what the driver compiled from PTX, keyed by the PTX without its kernels' documentation, the
// GPU and the driver's build. A file holds the SHA-256 of a cubin and the cubin; a damaged one is recompiled. A cache
// that cannot be written is ignored.
type jitCache struct {
	dir    string
	driver string // identifies its build
}

func (c jitCache) path(target, text string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "2\x00%s\x00%s\x00%s", c.driver, target, ptx.Undocumented(text)))
	return filepath.Join(c.dir, hex.EncodeToString(sum[:])+".cubin")
}

func (c jitCache) load(path string) []byte {
	raw, err := os.ReadFile(path)
	if err != nil || len(raw) <= sha256.Size {
		return nil
	}
	sum := sha256.Sum256(raw[sha256.Size:])
	if !bytes.Equal(sum[:], raw[:sha256.Size]) {
		return nil
	}
	return raw[sha256.Size:]
}

// store writes a whole file or nothing; processes may store the same cubin at the same time.
func (c jitCache) store(path string, cubin []byte) error {
	sum := sha256.Sum256(cubin)
	return errors.Join(os.MkdirAll(c.dir, 0o755), atomicfile.Write(path, append(sum[:], cubin...)))
}

// loadCached loads PTX through the cache. Where the driver's linker fails that makes cubins, the driver may still
// load the PTX.
func (m *module) loadCached(text string) error {
	c := m.device.cache
	path := c.path(m.device.info.Target, text)
	if cubin := c.load(path); cubin != nil && m.loadCubin(cubin) == nil {
		return nil
	}
	cubin, err := m.device.link(text)
	if err == nil {
		err = m.loadCubin(cubin)
	}
	if err != nil {
		if hopeless(err) {
			return err
		}
		return m.loadPTX(text)
	}
	// The module is loaded. If the cubin cannot be stored, the next process only compiles it again.
	_ = c.store(path, cubin)
	return nil
}

// Link input (CUjitInputType).
const jitInputPTX = 1

// link has the driver compile PTX to a cubin for the current context's device.
func (d *driver) link(text string) (cubin []byte, err error) {
	source := append([]byte(text), 0)
	name := []byte("kernels.ptx\x00")
	log := newJITLog()
	defer goruntime.KeepAlive(log)
	var state uintptr
	if err := d.call("cuLinkCreate", uintptr(len(log.options)), addr(&log.options[0]), addr(&log.values[0]), addr(&state)); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.call("cuLinkDestroy", state)) }()
	err = d.call("cuLinkAddData", state, jitInputPTX, addr(&source[0]), uintptr(len(source)), addr(&name[0]), 0, 0, 0)
	goruntime.KeepAlive(source)
	goruntime.KeepAlive(name)
	if err != nil {
		return nil, log.explain(err)
	}
	var image unsafe.Pointer
	var size uintptr
	if err := d.call("cuLinkComplete", state, addr(&image), addr(&size)); err != nil {
		return nil, log.explain(err)
	}
	return bytes.Clone(unsafe.Slice((*byte)(image), size)), nil
}

// jitLog is a buffer for the messages of the driver's compiler.
type jitLog struct {
	buffer  []byte
	options []int32
	values  []uintptr
}

// JIT options (CUjit_option).
const (
	jitErrorLogBuffer     = 5
	jitErrorLogBufferSize = 6
	jitLogBytes           = 1 << 13
)

func newJITLog() *jitLog {
	l := &jitLog{buffer: make([]byte, jitLogBytes), options: []int32{jitErrorLogBuffer, jitErrorLogBufferSize}}
	l.values = []uintptr{addr(&l.buffer[0]), jitLogBytes}
	return l
}

// explain adds the messages to an error.
func (l *jitLog) explain(err error) error {
	if i := bytes.IndexByte(l.buffer, 0); i > 0 {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(l.buffer[:i])))
	}
	return err
}
