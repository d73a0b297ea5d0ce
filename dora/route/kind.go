package route

import (
	"fmt"
	"reflect"
	"slices"
	"sync"
)

// Kind is what an event is: the tag of the union in the log's schema.
type Kind uint16

// The kinds that are read.
const (
	KindInitData                 Kind = 0
	KindRoadCameraState          Kind = 1
	KindCAN                      Kind = 4
	KindDeviceState              Kind = 5
	KindControlsState            Kind = 6
	KindRadarState               Kind = 12
	KindRoadEncodeIdx            Kind = 14
	KindSendCAN                  Kind = 16
	KindLiveCalibration          Kind = 18
	KindCarState                 Kind = 21
	KindCarControl               Kind = 22
	KindCameraOdometry           Kind = 62
	KindLateralPlan              Kind = 63
	KindCarParams                Kind = 67
	KindDriverCameraState        Kind = 68
	KindOldDriverMonitoringState Kind = 69
	KindSentinel                 Kind = 71
	KindWideRoadCameraState      Kind = 72
	KindModelV2                  Kind = 73
	KindDriverEncodeIdx          Kind = 74
	KindWideRoadEncodeIdx        Kind = 75
	KindQRoadEncodeIdx           Kind = 88
	KindDrivingModelData         Kind = 126
	KindLivePose                 Kind = 127
	KindSelfdriveState           Kind = 128
	KindLiveDelay                Kind = 144
	KindDriverMonitoringState    Kind = 149
)

// members are the kinds that are read: their names in the schema and the types of their
// messages.
func members() []member {
	return []member{
		{kind: KindInitData, name: "initData", zero: InitData{}},
		{kind: KindRoadCameraState, name: "roadCameraState", zero: FrameData{}},
		{kind: KindCAN, name: "can", zero: CANFrames{}},
		{kind: KindDeviceState, name: "deviceState", zero: DeviceState{}},
		{kind: KindControlsState, name: "controlsState", zero: ControlsState{}},
		{kind: KindRadarState, name: "radarState", zero: RadarState{}},
		{kind: KindRoadEncodeIdx, name: "roadEncodeIdx", zero: EncodeIndex{}},
		{kind: KindSendCAN, name: "sendcan", zero: CANFrames{}},
		{kind: KindLiveCalibration, name: "liveCalibration", zero: LiveCalibration{}},
		{kind: KindCarState, name: "carState", zero: CarState{}},
		{kind: KindCarControl, name: "carControl", zero: CarControl{}},
		{kind: KindCameraOdometry, name: "cameraOdometry", zero: CameraOdometry{}},
		{kind: KindLateralPlan, name: "lateralPlan", zero: LateralPlan{}},
		{kind: KindCarParams, name: "carParams", zero: CarParams{}},
		{kind: KindDriverCameraState, name: "driverCameraState", zero: FrameData{}},
		{kind: KindOldDriverMonitoringState, name: "oldDriverMonitoringState", zero: OldDriverMonitoringState{}},
		{kind: KindSentinel, name: "sentinel", zero: Sentinel{}},
		{kind: KindWideRoadCameraState, name: "wideRoadCameraState", zero: FrameData{}},
		{kind: KindModelV2, name: "modelV2", zero: ModelV2{}},
		{kind: KindDriverEncodeIdx, name: "driverEncodeIdx", zero: EncodeIndex{}},
		{kind: KindWideRoadEncodeIdx, name: "wideRoadEncodeIdx", zero: EncodeIndex{}},
		{kind: KindQRoadEncodeIdx, name: "qRoadEncodeIdx", zero: EncodeIndex{}},
		{kind: KindDrivingModelData, name: "drivingModelData", zero: DrivingModelData{}},
		{kind: KindLivePose, name: "livePose", zero: LivePose{}},
		{kind: KindSelfdriveState, name: "selfdriveState", zero: SelfdriveState{}},
		{kind: KindLiveDelay, name: "liveDelay", zero: LiveDelay{}},
		{kind: KindDriverMonitoringState, name: "driverMonitoringState", zero: DriverMonitoringState{}},
	}
}

// member is a kind's row.
type member struct {
	kind Kind
	name string
	zero any // of the message's type

	typ     reflect.Type
	payload field // the event's pointer to the message
}

// schema is the table by kind, nil where a kind is not read.
var schema = sync.OnceValue(func() []*member {
	compiled := map[reflect.Type]*layout{}
	rows := members()
	byKind := make([]*member, slices.MaxFunc(rows, func(a, b member) int { return int(a.kind) - int(b.kind) }).kind+1)
	for _, m := range rows {
		m.typ = reflect.TypeOf(m.zero)
		m.payload.form, m.payload.of = formOf(m.typ, compiled)
		byKind[m.kind] = &m
	}
	return byKind
})

// row returns a kind's row, or nil if it is not read.
func (k Kind) row() *member {
	if s := schema(); int(k) < len(s) {
		return s[k]
	}
	return nil
}

// String returns the name that the schema had before 2026, or the number of a kind that is not read.
func (k Kind) String() string {
	if m := k.row(); m != nil {
		return m.name
	}
	return fmt.Sprint("kind ", uint16(k))
}
