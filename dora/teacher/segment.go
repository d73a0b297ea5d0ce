package teacher

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"

	"github.com/spark-compile/spark-compile/runtime"
)

// A segment is a file of records: header, then numbers in f32, little-endian. A record that is cut, or whose header is damaged, ends
// what is read of a segment; the next one is written over it.
//
//	offset  bytes  header
//	0       8      magic
//	8       32     what the entry is found by
//	40      8      length of the numbers in bytes
//	48      4      CRC-32C of the numbers
//	52      4      CRC-32C of what precedes it
const headerBytes = 56

var (
	magic      = []byte("sparkdt1")
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

var errDamaged = errors.New("damaged")

type segment struct {
	file *os.File
	end  int64 // of the records that are whole
}

// record is header and numbers of an entry.
func record(id entryID, x []float32) []byte {
	numbers := runtime.Bytes(x)
	out := append(append(make([]byte, 0, headerBytes+len(numbers)), magic...), id[:]...)
	out = binary.LittleEndian.AppendUint64(out, uint64(len(numbers)))
	out = binary.LittleEndian.AppendUint32(out, crc32.Checksum(numbers, castagnoli))
	out = binary.LittleEndian.AppendUint32(out, crc32.Checksum(out, castagnoli))
	return append(out, numbers...)
}

// header reads one: what the entry is found by, the length of its numbers and their checksum.
func header(h []byte) (id entryID, length uint64, sum uint32, err error) {
	if len(h) < headerBytes || !bytes.Equal(h[:len(magic)], magic) || binary.LittleEndian.Uint32(h[52:]) != crc32.Checksum(h[:52], castagnoli) {
		return id, 0, 0, errDamaged
	}
	copy(id[:], h[8:8+sha256.Size])
	return id, binary.LittleEndian.Uint64(h[40:]), binary.LittleEndian.Uint32(h[48:]), nil
}

// scan goes over the records after the end, which it moves, without reading their numbers.
func (s *segment) scan(found func(id entryID, offset int64, bytes int)) error {
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	h := make([]byte, headerBytes)
	for s.end+headerBytes <= info.Size() {
		if _, err := s.file.ReadAt(h, s.end); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		id, length, _, err := header(h)
		if err != nil || length > uint64(info.Size()-s.end-headerBytes) {
			return nil
		}
		found(id, s.end, int(length))
		s.end += headerBytes + int64(length)
	}
	return nil
}

// read is the numbers of a record.
func (s *segment) read(id entryID, offset int64, size int) ([]float32, error) {
	data := make([]byte, headerBytes+size)
	if _, err := s.file.ReadAt(data, offset); err != nil {
		return nil, err
	}
	of, length, sum, err := header(data)
	numbers := data[headerBytes:]
	if err != nil || of != id || length != uint64(size) || sum != crc32.Checksum(numbers, castagnoli) {
		return nil, errDamaged
	}
	return runtime.View[float32](numbers), nil
}

// trim cuts what no record is, and returns what is left in bytes. The caller holds the directory's lock.
func (s *segment) trim() (int64, error) {
	info, err := s.file.Stat()
	if err == nil && info.Size() > s.end {
		err = s.file.Truncate(s.end)
	}
	return s.end, err
}
