package route

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tree makes files, whose content is what follows a colon or else "x".
func tree(t *testing.T, files ...string) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.Mkdir(root, 0o755))
	for _, file := range files {
		name, content, given := strings.Cut(file, ":")
		if !given {
			content = "x"
		}
		path := filepath.Join(root, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	return root
}

// listed is what was found, a line a segment, then a line a problem, with paths from the root.
func listed(t *testing.T, root string, found *Found) []string {
	t.Helper()
	var lines []string
	for _, s := range found.Segments {
		line := s.Name()
		for _, role := range slices.Sorted(maps.Keys(s.Files)) {
			line += " " + string(role)
		}
		if s.Recording {
			line += " (recording)"
		}
		lines = append(lines, line)
	}
	for _, p := range found.Problems {
		rel, err := filepath.Rel(root, p.Path)
		require.NoError(t, err)
		lines = append(lines, "! "+filepath.ToSlash(rel)+": "+strings.ReplaceAll(p.Err.Error(), root+string(filepath.Separator), ""))
	}
	return lines
}

const (
	dongle = "2c912ca5de3b1ee9"
	log1   = "2025-04-08--22-57-50"
	log2   = "0000025d--6eb6bcbca4"
	lfs    = ":" + lfsMagic + "v1\noid sha256:4d7a\nsize 12345\n"
)

func TestSegmentsAreFoundInEveryLayout(t *testing.T) {
	for _, c := range []struct {
		name  string
		files []string
		want  []string
	}{
		{"of a device", []string{log2 + "--0/rlog.zst", log2 + "--0/fcamera.hevc", log2 + "--10/qlog.zst", log2 + "--2/qcamera.ts", log2 + "--2/ecamera.hevc", log2 + "--2/dcamera.hevc"},
			[]string{log2 + "--0 fcamera rlog", log2 + "--2 dcamera ecamera qcamera", log2 + "--10 qlog"}},
		{"of a device, below the dongle", []string{dongle + "/" + log2 + "--3/rlog"}, []string{dongle + "|" + log2 + "--3 rlog"}},
		{"with the dongle before a bar", []string{dongle + "|" + log1 + "--0/rlog.bz2"}, []string{dongle + "|" + log1 + "--0 rlog"}},
		{"with the dongle before an underscore", []string{dongle + "_" + log1 + "--0/rlog.bz2"}, []string{dongle + "|" + log1 + "--0 rlog"}},
		{"with numbered directories", []string{dongle + "|" + log2 + "/7/qlog.bz2"}, []string{dongle + "|" + log2 + "--7 qlog"}},
		{"flat", []string{dongle + "_" + log2 + "--4--rlog.zst", dongle + "_" + log2 + "--4--fcamera.hevc", log1 + "--5--qlog"},
			[]string{log1 + "--5 qlog", dongle + "|" + log2 + "--4 fcamera rlog"}},
		{"of CI, by directories", []string{"openpilotci/regenAA0FC4ED71E/" + log1 + "/0/rlog.zst", "openpilotci/" + dongle + "/" + log2 + "/4/rlog.zst"},
			[]string{dongle + "|" + log2 + "--4 rlog", "regenAA0FC4ED71E|" + log1 + "--0 rlog"}},
		{"of CI, with names that are no hex", []string{"regenAA0FC4ED71E|" + log1 + "--0/rlog", "fakedata|" + log1 + "--1/rlog", "fakedata/2/rlog"},
			[]string{"fakedata--2 rlog", "fakedata|" + log1 + "--1 rlog", "regenAA0FC4ED71E|" + log1 + "--0 rlog"}},
		{"of commaCarSegments", []string{"segments/" + dongle + "/" + log2 + "/12/rlog.zst", "database.json"}, []string{dongle + "|" + log2 + "--12 rlog"}},
		{"of comma2k19", []string{"Chunk_1/" + dongle + "|" + log1 + "/3/video.hevc", "Chunk_1/" + dongle + "|" + log1 + "/3/raw_log.bz2", "Chunk_1/" + dongle + "|" + log1 + "/3/preview.png",
			"Chunk_1/" + dongle + "|" + log1 + "/3/processed_log/CAN/speed/value", "Chunk_1/" + dongle + "|" + log1 + "/3/global_pose/frame_times"},
			[]string{dongle + "|" + log1 + "--3 global_pose processed_log raw_log video"}},
		{"of a user, named freely", []string{"a/drive--2/rlog", "b/drive/3/rlog", "c/rlog", "rlog", ".git/rlog", "drive--7--rlog.zst"},
			[]string{"a/drive--2 rlog", "b/drive--3 rlog", "c--0 rlog", "data--0 rlog", "drive--7 rlog"}},
		{"with a recording that was cut off", []string{log2 + "--0/rlog.zst", log2 + "--0/rlog.lock:", log2 + "--1/rlog.lock:"}, []string{log2 + "--0 rlog (recording)"}},
		{"with files that Git LFS has not fetched", []string{log2 + "--0/rlog.zst" + lfs, log2 + "--0/rlog.bz2"},
			[]string{log2 + "--0 rlog", "! " + log2 + "--0/rlog.zst: only the pointer of Git LFS is there: git lfs pull fetches the file"}},
		{"with an empty file", []string{log2 + "--0/rlog", log2 + "--0/fcamera.hevc:"}, []string{log2 + "--0 rlog", "! " + log2 + "--0/fcamera.hevc: the file is empty"}},
		{"with frames in other forms", []string{log2 + "--0/fcamera.npz", log2 + "--0/ecamera/0.png", log2 + "--0/dcamera", log2 + "--1/fcamera/0.png", log2 + "--1/fcamera.hevc", log2 + "--1/rlog/x"},
			[]string{log2 + "--0 ecamera fcamera", log2 + "--1 fcamera", "! " + log2 + "--1/fcamera: not used: " + log2 + "--1/fcamera.hevc is the fcamera of " + log2 + "--1 too"}},
		{"with problems, by path", []string{"a/" + log2 + "--0/rlog", "b/" + log2 + "--0/qlog:", "c/" + log2 + "--0/rlog.bz2"},
			[]string{log2 + "--0 rlog", "! a/" + log2 + "--0/rlog: not used: c/" + log2 + "--0/rlog.bz2 is the rlog of " + log2 + "--0 too", "! b/" + log2 + "--0/qlog: the file is empty"}},
		{"with two files of a role", []string{log2 + "--0/rlog", log2 + "--0/rlog.bz2", "copy/" + log2 + "--0/rlog.bz2"},
			[]string{log2 + "--0 rlog", "! " + log2 + "--0/rlog: not used: " + log2 + "--0/rlog.bz2 is the rlog of " + log2 + "--0 too",
				"! copy/" + log2 + "--0/rlog.bz2: not used: " + log2 + "--0/rlog.bz2 is the rlog of " + log2 + "--0 too"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := tree(t, c.files...)
			found, err := Find(t.Context(), root)
			require.NoError(t, err)
			assert.Equal(t, c.want, listed(t, root, found))
		})
	}
}

// TestFind_LogsWithoutMessages hide no good log of their segment. A segment without another one keeps its log, whose
// reader says what is wrong.
func TestFind_LogsWithoutMessages(t *testing.T) {
	raw, _ := smallLog(t)
	z, err := zstd.NewWriter(nil, zstd.WithZeroFrames(true))
	require.NoError(t, err)
	empty, good := string(z.EncodeAll(nil, nil)), string(z.EncodeAll(raw, nil))
	require.NotEmpty(t, empty)
	const log = log2 + "--0/"
	for name, c := range map[string]struct{ files, want []string }{
		"an empty frame beside a raw log": {[]string{log + "rlog.zst:" + empty, log + "rlog:" + string(raw)},
			[]string{log2 + "--0 rlog", "! " + log + "rlog.zst: the log has no message"}},
		"an empty frame beside a qlog": {[]string{log + "rlog.zst:" + empty, log + "qlog.zst:" + good},
			[]string{log2 + "--0 qlog", "! " + log + "rlog.zst: the log has no message"}},
		"no bytes beside a qlog": {[]string{log + "rlog.zst:", log + "qlog.zst:" + good},
			[]string{log2 + "--0 qlog", "! " + log + "rlog.zst: the file is empty"}},
		"a skippable frame beside a qlog": {
			[]string{log + "rlog.zst:" + string(skippable(0, "x")), log + "qlog.zst:" + good},
			[]string{log2 + "--0 qlog", "! " + log + "rlog.zst: the log has no message"}},
		"zeros beside a raw log": {[]string{log + "rlog.zst:" + strings.Repeat("\x00", 99), log + "rlog:" + string(raw)},
			[]string{log2 + "--0 rlog", "! " + log + "rlog.zst: " + log +
				"rlog.zst is damaged at byte 0 of the log: its first bytes are not those of a .zst file"}},
		"a log cut off in its second message": {[]string{log + "rlog:" + string(raw[:len(raw)/2]), log + "qlog.zst:" + good},
			[]string{log2 + "--0 qlog rlog"}},
		"an empty frame alone": {[]string{log + "rlog.zst:" + empty}, []string{log2 + "--0 rlog"}},
		"two without messages": {[]string{log + "rlog.zst:" + empty, log + "qlog.zst:" + empty},
			[]string{log2 + "--0 qlog rlog"}},
	} {
		t.Run(name, func(t *testing.T) {
			root := tree(t, c.files...)
			found, err := Find(t.Context(), root)
			require.NoError(t, err)
			assert.Equal(t, c.want, listed(t, root, found))
		})
	}
}

func TestASegmentIsNamedTheSameFromWithin(t *testing.T) {
	root := tree(t, "a/"+dongle+"/"+log2+"/4/rlog", "b/drive/3/rlog")
	for dir, want := range map[string]string{
		"a": dongle + "|" + log2 + "--4", "a/" + dongle: dongle + "|" + log2 + "--4", "a/" + dongle + "/" + log2: dongle + "|" + log2 + "--4",
		"a/" + dongle + "/" + log2 + "/4": dongle + "|" + log2 + "--4", "b": "drive--3", "b/drive": "drive--3", "b/drive/3": "drive--3",
	} {
		found, err := Find(t.Context(), filepath.Join(root, dir))
		require.NoError(t, err)
		require.Len(t, found.Segments, 1)
		assert.Equal(t, want, found.Segments[0].Name(), dir)
	}
}

func TestLinksAreFollowedOnce(t *testing.T) {
	root := tree(t, "a/"+log2+"--0/rlog")
	elsewhere := tree(t, log1+"--1/rlog")
	for i, target := range []string{elsewhere, elsewhere, root, filepath.Join(root, "gone")} {
		require.NoError(t, os.Symlink(target, filepath.Join(root, "a", fmt.Sprint("link", i))))
	}
	found, err := Find(t.Context(), root)
	require.NoError(t, err)
	require.Len(t, found.Segments, 2)
	assert.Equal(t, filepath.Join(root, "a", "link0", log1+"--1", "rlog"), found.Segments[1].Files[RLog])
	require.Len(t, found.Problems, 1)
	assert.Contains(t, found.Problems[0].Path, "link3")
}

// TestFind_OfLinksWithinTheRoot finds a segment once, by its own name, and what is in hidden directories by links to it.
func TestFind_OfLinksWithinTheRoot(t *testing.T) {
	root := tree(t, "drive/"+log2+"--0/rlog", ".store/x/rlog")
	for link, target := range map[string]string{"a/latest": "drive/" + log2 + "--0", "a/" + log2 + "--1": ".store/x"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, "a"), 0o755))
		require.NoError(t, os.Symlink(filepath.Join(root, target), filepath.Join(root, link)))
	}
	found, err := Find(t.Context(), root)
	require.NoError(t, err)
	require.Equal(t, []string{log2 + "--0 rlog", log2 + "--1 rlog"}, listed(t, root, found))
}

// TestFind_OfALinkedRoot leaves what is above the directory that the link leads to.
func TestFind_OfALinkedRoot(t *testing.T) {
	above := tree(t, "beside/"+log1+"--1/rlog", "drive/"+log2+"--0/rlog")
	require.NoError(t, os.Symlink(above, filepath.Join(above, "drive", "up")))
	root := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(filepath.Join(above, "drive"), root))
	found, err := Find(t.Context(), root)
	require.NoError(t, err)
	require.Len(t, found.Segments, 1)
	assert.Equal(t, filepath.Join(root, log2+"--0", "rlog"), found.Segments[0].Files[RLog])
}

func TestDirectoriesWithoutRoutesAreErrors(t *testing.T) {
	root := tree(t, "readme.txt", "x/rlog.zst"+lfs)
	_, err := Find(t.Context(), root)
	assert.ErrorContains(t, err, root+" has no logs or videos of openpilot")
	assert.ErrorIs(t, err, ErrLFS)
	_, err = Find(t.Context(), filepath.Join(root, "readme.txt"))
	assert.ErrorContains(t, err, "is a file")
	_, err = Find(t.Context(), filepath.Join(root, "gone"))
	assert.ErrorIs(t, err, os.ErrNotExist)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Find(ctx, root)
	assert.True(t, errors.Is(err, context.Canceled))
}
