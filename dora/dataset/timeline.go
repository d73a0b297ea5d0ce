package dataset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"unsafe"

	"github.com/spark-compile/spark-compile/dora/camera"
	"github.com/spark-compile/spark-compile/dora/route"
	"github.com/spark-compile/spark-compile/internal/memory"
	"github.com/spark-compile/spark-compile/runtime/modeld"
)

// moment is what is known at a frame of the road camera, or of the driver camera, from the messages that the device had logged by then.
type moment struct {
	FrameID    uint32
	Road, Wide int // the frame's number in the cameras' files; -1: there is none. Road is the driver camera's for its models
	SOF        uint64
	Known      bool // a valid calibration
	RPY        [3]float64
	Height     float64 `json:",omitempty"` // of the camera above the road, m; 0: nothing was said of it
	Speed      float64
	Desire     int // -1: nothing was said of it yet
	RightHand  bool
	Delays     [2]float64 // lateral and longitudinal, s
	Curvature  float64    // that the model asked for at the frame, 1/m
	Moves      bool       // Trans and Rot are known
	Trans, Rot [3]float64 // of the camera, m/s and rad/s, on its own calibrated axes
	Global     *global    `json:",omitempty"` // where its set has measured poses
}

// timeline is a segment's log as samples need it.
type timeline struct {
	Device, Sensor string
	Moments        []moment
	Events         map[string]int // messages by kind
	Damage         string         // where the log ends too early; "": nowhere
}

// now is the state while a log is read.
type now struct {
	timeline
	driver     bool // moments are the driver camera's frames
	state      moment
	heard      bool            // a calibration
	unheard    map[uint32]bool // frames before that
	road, wide []camera.Index
	exposed    map[uint32]moment        // by frame of the camera
	latest     uint32                   // of them
	command    float64                  // curvature that controls asked for last, 1/m
	actions    map[uint32]float64       // curvatures that the model asked for, by frame; all 0 in logs before 0.9.7
	odometry   map[uint32][2][3]float64 // by frame
}

// message is an event that outlives its reader. Logs are not sorted by time, so all are read before any is taken.
type message struct {
	Time  uint64
	Kind  route.Kind
	value any // nil: nothing of it is taken
	err   error
}

func messageOf(e *route.Event) *message {
	m := &message{Time: e.Time, Kind: e.Kind}
	if m.Kind == route.KindCAN || m.Kind == route.KindSendCAN { // most of a log
		return m
	}
	m.value, m.err = e.Message()
	if v, ok := m.value.(*route.ModelV2); ok {
		// without its paths, which are nearly all of it
		m.value = &route.ModelV2{FrameID: v.FrameID, Meta: v.Meta, Action: v.Action}
	}
	return m
}

// perMessage is what is kept of a message besides its value, in bytes: itself, and what a frame's adds to the state.
const perMessage = 1 << 10

// bytes is what the message takes of memory, about.
func (m *message) bytes() int64 {
	if m.value == nil {
		return int64(unsafe.Sizeof(*m) + unsafe.Sizeof(m))
	}
	return perMessage + referencedBytes(reflect.ValueOf(m.value))
}

// referencedBytes is the size of what pointers, slices and strings of a value lead to.
func referencedBytes(v reflect.Value) (n int64) {
	switch v.Kind() {
	case reflect.Pointer:
		return int64(v.Elem().Type().Size()) + referencedBytes(v.Elem())
	case reflect.String:
		return int64(v.Len())
	case reflect.Slice:
		n = int64(v.Len()) * int64(v.Type().Elem().Size())
		if k := v.Type().Elem().Kind(); k != reflect.Struct {
			return n
		}
		for i := range v.Len() {
			n += referencedBytes(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			n += referencedBytes(v.Field(i))
		}
	}
	return n
}

// Decode copies the message into a value of its type.
func (m *message) Decode(into any) error {
	if m.err == nil {
		reflect.ValueOf(into).Elem().Set(reflect.ValueOf(m.value).Elem())
	}
	return m.err
}

// readTimeline reads a log. Moments are the road camera's frames or the driver camera's. Messages count in the order of
// their times. A damaged end keeps what came before.
func readTimeline(ctx context.Context, path string, driver bool) (*timeline, error) {
	n := &now{driver: driver, state: moment{Desire: -1}, unheard: map[uint32]bool{},
		timeline: timeline{Sensor: "unknown", Events: map[string]int{}}, exposed: map[uint32]moment{},
		actions: map[uint32]float64{}, odometry: map[uint32][2][3]float64{}}
	var messages []*message
	kept := int64(0)
	damage, err := events(ctx, path, func(e *route.Event) error {
		m := messageOf(e)
		messages = append(messages, m)
		if errors.Is(m.err, memory.ErrBudget) {
			return m.err
		}
		kept += m.bytes()
		return memory.Default().Check(kept, "keeping the messages that samples are made of")
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(messages, func(a, b *message) int { return cmp.Compare(a.Time, b.Time) })
	wrong := ""
	for _, m := range messages {
		n.Events[m.Kind.String()]++
		if err := n.take(m); err != nil {
			wrong = fmt.Sprintf("%s: %v", path, err)
		}
	}
	n.Damage = cmp.Or(damage, wrong)
	n.join()
	return &n.timeline, nil
}

// events calls f for each event of a log, and says where the log ends too early; "": nowhere. An error of f ends it.
func events(ctx context.Context, path string, f func(e *route.Event) error) (damage string, err error) {
	r, err := route.Open(path)
	if err != nil {
		return "", err
	}
	defer r.Close()
	var e route.Event
	for k := 0; ; k++ {
		if k%1024 == 0 && ctx.Err() != nil {
			return "", ctx.Err()
		}
		err := r.Next(&e)
		var cut *route.Damage
		switch {
		case err == io.EOF:
			return "", nil
		case errors.As(err, &cut):
			return cut.Error(), nil
		case err != nil:
			return "", err
		}
		if err := f(&e); err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
	}
}

// maxFrames is how many frames of a camera a log may have: half an hour's. Each is compared with all of
// another camera.
const maxFrames = 1 << 15

// take is what a message changes.
func (n *now) take(e *message) (err error) {
	switch e.Kind {
	case route.KindInitData:
		var m route.InitData
		err = e.Decode(&m)
		n.device(m.DeviceType)
	case route.KindDeviceState:
		var m route.DeviceState
		if err = e.Decode(&m); n.Device == "" {
			n.device(m.DeviceType)
		}
	case route.KindRoadCameraState, route.KindDriverCameraState:
		var m route.FrameData
		if err = e.Decode(&m); err != nil {
			return err
		}
		n.sensor(m.Sensor) // all of a device's are alike
		if n.driver == (e.Kind == route.KindDriverCameraState) {
			n.expose(m.FrameID)
		}
	case route.KindRoadEncodeIdx, route.KindWideRoadEncodeIdx, route.KindDriverEncodeIdx:
		if n.driver != (e.Kind == route.KindDriverEncodeIdx) {
			return nil
		}
		var m route.EncodeIndex
		err = e.Decode(&m)
		list := &n.road
		if e.Kind == route.KindWideRoadEncodeIdx {
			list = &n.wide
		}
		if _, ok := n.exposed[m.FrameID]; err == nil && !ok && e.Kind != route.KindWideRoadEncodeIdx {
			n.expose(m.FrameID) // a qlog has few of the camera's own messages
		}
		if len(*list) == maxFrames {
			return fmt.Errorf("it has more than %d frames of a camera, and a segment has %d", maxFrames, framesOf2k19)
		}
		if err == nil && m.Type == route.FullHEVC {
			*list = append(*list, camera.Index{FrameID: m.FrameID, SegmentID: m.SegmentID, Segment: m.SegmentNum, SOF: m.TimestampSOF})
		}
	case route.KindLiveCalibration:
		var m route.LiveCalibration
		if err = e.Decode(&m); err == nil {
			n.heard = true
			n.state.Known = m.CalStatus == route.Calibrated && len(m.RPYCalib) == 3
			for i, x := range m.RPYCalib[:min(3, len(m.RPYCalib))] {
				n.state.RPY[i] = float64(x)
				n.state.Known = n.state.Known && !math.IsNaN(n.state.RPY[i]) && !math.IsInf(n.state.RPY[i], 0)
			}
			if len(m.Height) > 0 && m.Height[0] > 0 && m.Height[0] < 10 {
				n.state.Height = float64(m.Height[0])
			}
		}
	case route.KindCameraOdometry:
		var m route.CameraOdometry
		if err = e.Decode(&m); err == nil && len(m.Trans) == 3 && len(m.Rot) == 3 {
			n.odometry[m.FrameID] = [2][3]float64{{float64(m.Trans[0]), float64(m.Trans[1]), float64(m.Trans[2])}, {float64(m.Rot[0]), float64(m.Rot[1]), float64(m.Rot[2])}}
		}
	default:
		err = n.drive(e)
	}
	return err
}

// drive is what a message of the car and its driver changes.
func (n *now) drive(e *message) (err error) {
	switch e.Kind {
	case route.KindCarState:
		var m route.CarState
		err = e.Decode(&m)
		n.state.Speed = float64(m.VEgo)
	case route.KindCarParams:
		var m route.CarParams
		err = e.Decode(&m)
		n.state.Delays = [2]float64{float64(m.SteerActuatorDelay), float64(m.LongitudinalActuatorDelay)}
	case route.KindLiveDelay:
		var m route.LiveDelay
		if err = e.Decode(&m); m.LateralDelay > 0 {
			n.state.Delays[0] = float64(m.LateralDelay)
		}
	case route.KindControlsState:
		var m route.ControlsState
		err = e.Decode(&m)
		n.command = float64(m.DesiredCurvature)
	case route.KindDriverMonitoringState:
		var m route.DriverMonitoringState
		err = e.Decode(&m)
		n.state.RightHand = m.IsRHD
	case route.KindOldDriverMonitoringState:
		var m route.OldDriverMonitoringState
		err = e.Decode(&m)
		n.state.RightHand = m.IsRHD
	case route.KindLateralPlan: // of old logs
		var m route.LateralPlan
		err = e.Decode(&m)
		n.state.Desire = int(m.Desire)
	case route.KindModelV2:
		var m route.ModelV2
		if err = e.Decode(&m); err == nil {
			n.change(m.Meta.LaneChangeState, m.Meta.LaneChangeDirection)
			n.actions[m.FrameID] = float64(m.Action.DesiredCurvature)
		}
	case route.KindDrivingModelData: // of a qlog
		var m route.DrivingModelData
		if err = e.Decode(&m); err == nil && n.Events[route.KindModelV2.String()] == 0 {
			n.change(m.Meta.State, m.Meta.Direction)
			n.actions[m.FrameID] = float64(m.Action.DesiredCurvature)
		}
	}
	return err
}

// change rebuilds the desire of a lane change, which is not logged: openpilot asks for it from its start to its finish.
func (n *now) change(state route.LaneChangeState, to route.LaneChangeDirection) {
	if n.Events[route.KindLateralPlan.String()] > 0 {
		return
	}
	n.state.Desire = int(route.NoDesire)
	if state != route.LaneChangeStarting && state != route.LaneChangeFinishing {
		return
	}
	switch to {
	case route.LaneChangeToLeft:
		n.state.Desire = int(route.LaneChangeLeft)
	case route.LaneChangeToRight:
		n.state.Desire = int(route.LaneChangeRight)
	}
}

func (n *now) device(d route.DeviceType) {
	n.Device = map[route.DeviceType]string{route.Neo: "neo", route.Tici: "tici", route.Tizi: "tizi", route.Mici: "mici"}[d]
	if n.Device == "" {
		n.Device = "unknown"
	}
}

func (n *now) sensor(s route.Sensor) {
	names := []string{"unknown", "ar0231", "ox03c10", "os04c10"}
	if s > 0 && int(s) < len(names) { // a camera that does not say leaves what another one said
		n.Sensor = names[s]
	}
}

// expose notes what was known at a frame. What controls asked for last is what the model asked for at the frame before.
func (n *now) expose(frame uint32) {
	n.answer()
	n.latest = frame
	n.exposed[frame] = n.state
	n.unheard[frame] = !n.heard
}

// answer notes what controls asked for after the latest frame.
func (n *now) answer() {
	if m, ok := n.exposed[n.latest]; ok {
		m.Curvature = n.command
		n.exposed[n.latest] = m
	}
}

// lateCalibration is how many frames a segment may have before its first calibration, which comes four times a second in a log, and once in a qlog. Until then
// the device had that of the segment before.
const lateCalibration = 21

// join puts the moments in the order of the camera's frames, with the wide frame that belongs to each.
func (n *now) join() {
	n.answer()
	acts := false
	for _, curvature := range n.actions {
		acts = acts || curvature != 0
	}
	roads, wides := camera.Positions(n.road), camera.Positions(n.wide)
	for at, x := range n.road {
		m := n.exposed[x.FrameID]
		m.FrameID, m.SOF, m.Road, m.Wide = x.FrameID, x.SOF, roads[at], -1
		if k := camera.Pair(x.SOF, n.wide); k >= 0 {
			m.Wide = wides[k]
		}
		if o, ok := n.odometry[x.FrameID]; ok && !n.driver {
			m.Moves, m.Trans, m.Rot = true, o[0], o[1]
		}
		if curvature, ok := n.actions[x.FrameID]; ok && acts {
			m.Curvature = curvature
		}
		n.Moments = append(n.Moments, m)
	}
	slices.SortStableFunc(n.Moments, func(a, b moment) int { return a.Road - b.Road })
	n.Moments = slices.CompactFunc(n.Moments, func(a, b moment) bool { return a.Road == b.Road }) // of an index that the log has twice
	first := slices.IndexFunc(n.Moments, func(m moment) bool { return !n.unheard[m.FrameID] })
	if first <= 0 || first > lateCalibration {
		return
	}
	for i := range n.Moments[:first] {
		n.Moments[i].Known, n.Moments[i].RPY = n.Moments[first].Known, n.Moments[first].RPY
		n.Moments[i].Height = n.Moments[first].Height
	}
}

// calibration has the device's cameras, for pictures of a size: a video may be smaller than what the sensor gives.
func (t *timeline) calibration(road, wide modeld.Picture) (modeld.Calibration, error) {
	c, err := modeld.CamerasOf(t.Device, t.Sensor)
	if err != nil {
		return modeld.Calibration{}, err
	}
	return modeld.Calibration{Road: scaled(c.Road, road), WideCamera: scaled(c.Wide, wide)}, nil
}

func scaled(c modeld.Intrinsics, p modeld.Picture) modeld.Intrinsics {
	return modeld.Intrinsics{Focal: float64(c.Focal * float64(p.Width) / float64(c.Width)), Width: p.Width, Height: p.Height}
}
