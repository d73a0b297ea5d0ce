package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora/route"
	"github.com/spark-compile/spark-compile/internal/memory"
)

// recordings writes drives of such names as files of one format; in those that are true the car is parked. It returns what
// they are loaded by.
type recordings func(t *testing.T, dir string, drives map[string]bool) (names []string)

// formats are those of recorded drives.
var formats = map[string]recordings{
	"comma2k19": func(t *testing.T, dir string, drives map[string]bool) []string {
		for name, parked := range drives {
			shortDrive(parked).comma2k19(t, filepath.Join(dir, "b0c9d2329ad1606b|2018-08-02--08-34-47", name))
		}
		return []string{dir}
	},
	"a route": func(t *testing.T, dir string, drives map[string]bool) []string {
		for name, parked := range drives {
			log := filepath.Join(dir, "00000001--0123456789--"+name, "rlog")
			shortDrive(parked).rlog(t, log, nil, route.CarParams{})
		}
		return []string{dir}
	},
	"csv": func(t *testing.T, dir string, drives map[string]bool) (names []string) {
		for name, parked := range drives {
			path := filepath.Join(dir, name+".csv")
			require.NoError(t, os.WriteFile(path, []byte(shortDrive(parked).csv()), 0o644))
			names = append(names, path)
		}
		return names
	},
}

func shortDrive(parked bool) *madeDrive {
	d := made(madeDrive{curvature: func(float64) float64 { return 0.002 }, hz: 20}, 2)
	for i := range d.rows {
		if parked {
			d.rows[i] = madeRow{time: d.rows[i].time}
		}
	}
	return d
}

// TestLoad_LeavesOutWhatCannotBeUsed says which and why, in a line each, and refuses only where nothing is left.
func TestLoad_LeavesOutWhatCannotBeUsed(t *testing.T) {
	for format, write := range formats {
		t.Run(format, func(t *testing.T) {
			names := write(t, t.TempDir(), map[string]bool{"1": true, "2": false, "3": true, "4": false})
			list, left, err := Load(t.Context(), names...)
			require.NoError(t, err)
			require.Len(t, list, 2)
			require.Len(t, left, 2)
			for _, err := range left {
				require.ErrorContains(t, err, "the car goes 0.0 m in it; want 10 m at least")
				require.ErrorContains(t, err, names[0][:len(names[0])-len("1.csv")], "where it is")
				require.NotContains(t, err.Error(), "\n")
			}
			names = write(t, t.TempDir(), map[string]bool{"1": true, "2": true, "3": true, "4": true, "5": true})
			_, _, err = Load(t.Context(), names...)
			require.ErrorContains(t, err, "none of 5 recorded drives can be used: "+filepath.Dir(names[0]))
			require.ErrorContains(t, err, "; and 2 others")
			require.Equal(t, 3, strings.Count(err.Error(), "0.0 m in it"))
			_, _, err = Load(t.Context(), append(names, "curve")...)
			require.ErrorContains(t, err, "none of 5 recorded drives")
			names = write(t, t.TempDir(), map[string]bool{"1": true})
			_, _, err = Load(t.Context(), names...)
			require.ErrorContains(t, err, "0.0 m in it")
			require.NotContains(t, err.Error(), "none of")
		})
	}
}

// TestLoad_RefusesWhatIsNotThere, since it is a name that was typed wrong, and no drive.
func TestLoad_RefusesWhatIsNotThere(t *testing.T) {
	names := formats["csv"](t, t.TempDir(), map[string]bool{"1": false})
	_, _, err := Load(t.Context(), names[0], filepath.Join(filepath.Dir(names[0]), "11.csv"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, _, err = Load(t.Context(), names[0], filepath.Dir(names[0])+"/none")
	require.ErrorContains(t, err, "/none")
}

// TestLoad_NamesSegmentsWithoutALog, whose log is empty, or that are videos alone.
func TestLoad_NamesSegmentsWithoutALog(t *testing.T) {
	dir := t.TempDir()
	formats["a route"](t, dir, map[string]bool{"1": false})
	for path, text := range map[string]string{"00000001--0123456789--2/rlog.zst": "", "00000001--0123456789--3/fcamera.hevc": "x",
		"00000001--0123456789--1/ecamera.hevc": ""} {
		path = filepath.Join(dir, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	list, left, err := Load(t.Context(), dir)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Len(t, left, 2, "a video that is not read is of no concern")
	require.ErrorContains(t, left[0], "2/rlog.zst: the file is empty")
	require.ErrorContains(t, left[1], "segment 00000001--0123456789--3: it has no rlog or qlog of openpilot, and no global_pose")
}

// TestLoad_NamesCutLogs, of which what comes before counts, if there is enough of it.
func TestLoad_NamesCutLogs(t *testing.T) {
	dir := t.TempDir()
	formats["a route"](t, dir, map[string]bool{"1": false, "2": false, "3": false})
	whole, left, err := Load(t.Context(), dir)
	require.NoError(t, err)
	require.Empty(t, left)
	for segment, share := range map[int]float64{1: 0.9, 3: 0.05} {
		path := filepath.Join(dir, fmt.Sprintf("00000001--0123456789--%d", segment), "rlog")
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.NoError(t, os.Truncate(path, int64(share*float64(info.Size()))))
	}
	list, left, err := Load(t.Context(), dir)
	require.NoError(t, err)
	require.Len(t, list, 2)
	seconds := func(f Family) float64 { return f.Road.Interval * float64(len(f.Road.Speed)-1) }
	require.Less(t, seconds(list[0]), seconds(whole[0]))
	require.Equal(t, whole[1], list[1])
	require.Len(t, left, 2)
	require.Regexp(t, `^of a recorded drive only the beginning counts: .*--1/rlog is damaged at byte \d+ of the log: `, Left(left[0]))
	require.Regexp(t, `^recorded drive left out: .*--3/rlog: .*; .*--3/rlog is damaged at byte \d+ of the log: `, Left(left[1]))
}

// TestLoad_FollowsLinks to a route, a segment and what is above them, and ends.
func TestLoad_FollowsLinks(t *testing.T) {
	for _, format := range []string{"comma2k19", "a route"} {
		t.Run(format, func(t *testing.T) {
			there := t.TempDir()
			formats[format](t, there, map[string]bool{"1": false, "2": false})
			want, _, err := Load(t.Context(), there)
			require.NoError(t, err)
			link := filepath.Join(t.TempDir(), "link")
			require.NoError(t, os.Symlink(there, link))
			require.NoError(t, os.Symlink(there, filepath.Join(there, "again")))
			above := t.TempDir()
			require.NoError(t, os.Symlink(there, filepath.Join(above, "Chunk_1")))
			require.NoError(t, os.Symlink(above, filepath.Join(above, "loop")))
			for _, dir := range []string{there, link, above, link + "/"} {
				list, left, err := Load(t.Context(), dir)
				require.NoError(t, err, dir)
				require.Equal(t, want, list, dir)
				require.Empty(t, left, dir)
			}
		})
	}
}

// interrupted is a context that is cancelled when it was asked so often.
type interrupted struct {
	context.Context
	left int
}

func (c *interrupted) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestLoad_HearsAnInterrupt at each segment and file, and never leaves out a drive for it.
func TestLoad_HearsAnInterrupt(t *testing.T) {
	for format, write := range formats {
		t.Run(format, func(t *testing.T) {
			const drives = 3
			names := write(t, t.TempDir(), map[string]bool{"1": false, "2": false, "3": true})
			asked := 0
			for ; ; asked++ {
				list, _, err := Load(&interrupted{t.Context(), asked}, names...)
				if err == nil {
					require.Len(t, list, drives-1)
					break
				}
				require.ErrorIs(t, err, context.Canceled)
			}
			require.GreaterOrEqual(t, asked, drives)
		})
	}
	segment := filepath.Join(t.TempDir(), "0")
	shortDrive(false).comma2k19(t, segment)
	for asked := range poseFiles {
		_, err := importPoses(&interrupted{t.Context(), asked}, filepath.Join(segment, poseDir), "0")
		require.ErrorIs(t, err, context.Canceled)
	}
}

// TestImporter_ReturnsWhatIsNoFaultOfADrive, such as too little memory.
func TestImporter_ReturnsWhatIsNoFaultOfADrive(t *testing.T) {
	m := &importer{}
	require.ErrorIs(t, m.add(t.Context(), nil, memory.ErrBudget), memory.ErrBudget)
	require.NoError(t, m.add(t.Context(), nil, errors.New("parked")))
	require.ErrorContains(t, m.failed(), "parked")
}
