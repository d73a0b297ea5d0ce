package scenario

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora/route"
)

// rlog writes a drive as openpilot logs it, from a device that is mounted straight: a lead at 30 m from 5 s to 20
// s.
func (d *madeDrive) rlog(t *testing.T, path string, damage func(k int, p *route.LivePose), params route.CarParams) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	w, err := route.Create(path)
	require.NoError(t, err)
	write := func(at float64, k route.Kind, message any) {
		require.NoError(t, w.Write(route.Event{Time: uint64((100 + at) * 1e9), Kind: k, Valid: true}, message))
	}
	write(0, route.KindCarParams, params)
	pitch := math.Atan(d.grade)
	for k, r := range d.rows {
		// The yaw rate is about the vertical, which the device sees tilted by its roll and pitch.
		yaw := -r.speed * d.curvature(r.way)
		xyz := func(x, y, z float64) route.XYZ {
			return route.XYZ{X: float32(x), Y: float32(y), Z: float32(z), Valid: true}
		}
		sin, cos := math.Sincos(d.bank)
		p := route.LivePose{
			OrientationNED: xyz(d.bank, pitch, -r.heading), VelocityDevice: xyz(r.speed/math.Cos(pitch), 0, 0),
			AngularVelocityDevice: xyz(-yaw*math.Sin(pitch), yaw*sin*math.Cos(pitch), yaw*cos*math.Cos(pitch)),
		}
		if damage != nil {
			damage(k, &p)
		}
		lead := route.LeadData{Status: r.time >= 5 && r.time < 20, DRel: 30, VLead: float32(r.speed)}
		write(r.time, route.KindRadarState, route.RadarState{LeadOne: lead})
		write(r.time+0.001, route.KindLivePose, p)
	}
	require.NoError(t, w.Close())
}

func TestImportLog_FindsTheRoad(t *testing.T) {
	for name, d := range madeDrives(20) {
		dir := t.TempDir()
		car := route.CarParams{Mass: 1700, Wheelbase: 2.8, SteerRatio: 14, SteerActuatorDelay: 0.2}
		d.rlog(t, filepath.Join(dir, "00000001--0123456789--3", "rlog.zst"), nil, car)
		list, _, err := Load(t.Context(), dir)
		require.NoError(t, err, name)
		require.Len(t, list, 1)
		require.Equal(t, "00000001--0123456789--3", list[0].Name)
		road := list[0].Road
		d.requireRoad(t, road, 5e-6, 1.5e-4)
		s, err := list[0].Draw(1, 0)
		require.NoError(t, err)
		require.Equal(t, float64(float32(2.8)), s.Get("wheelbase"))
		require.InDelta(t, 1, s.Get("car0_present"), 0)
		for k := range road.Lead {
			at := float64(k) * road.Interval
			i, _ := (&recording{time: times(d)}).between(at)
			if at > 5.2 && at < 19.8 {
				require.InDelta(t, d.rows[i].way+30, road.Lead[k], 2, "%v s", at)
			} else if at < 4.8 || at > 20.2 {
				require.Greater(t, road.Lead[k], d.rows[i].way+far)
			}
		}
	}
}

func times(d *madeDrive) (out []float64) {
	for _, r := range d.rows {
		out = append(out, r.time)
	}
	return out
}

func TestImportLog_RefusesWhatIsNoDrive(t *testing.T) {
	drive := made(madeDrive{curvature: func(float64) float64 { return 0 }, hz: 20}, 2)
	for want, c := range map[string]struct {
		damage func(k int, p *route.LivePose)
		car    route.CarParams
	}{
		"rlog: it has no valid livePose": {damage: func(_ int, p *route.LivePose) { p.VelocityDevice.Valid = false }},
		"is valid, and has NaN": {damage: func(_ int, p *route.LivePose) {
			p.OrientationNED.X = float32(math.NaN())
		}},
		"rlog: the car goes 0.0 m in it; want 10 m at least": {damage: func(_ int, p *route.LivePose) { p.VelocityDevice.X = 0 }},
		`rlog: carParams of "COROLLA": mass is 10, want 300 to 5000 kg`: {
			car: route.CarParams{CarFingerprint: "COROLLA", Mass: 10},
		},
	} {
		dir := t.TempDir()
		drive.rlog(t, filepath.Join(dir, "00000001--0123456789--0", "rlog"), c.damage, c.car)
		_, _, err := Load(t.Context(), dir)
		require.ErrorContains(t, err, want)
	}
	_, _, err := Load(t.Context(), t.TempDir())
	require.ErrorContains(t, err, "has no logs or videos of openpilot")
}
