package route

// The types of this file and of model.go are the schema: a field's tag is its name and its place, which is a bit offset in the
// struct's data section or pN, its N-th pointer; a third word is its default. The blank field is the struct itself:
// how many data words and pointers the Writer gives it. Fields that nothing here needs are left out; a reader does not mind.

// InitData is the first message of a segment: the device and its software.
type InitData struct {
	_ struct{} `capnp:"2 21"`

	DeviceType    DeviceType `capnp:"deviceType 0"`
	Dirty         bool       `capnp:"dirty 16"`
	WallTimeNanos uint64     `capnp:"wallTimeNanos 64"` // since 1970
	DongleID      string     `capnp:"dongleId p2"`
	Version       string     `capnp:"version p3"`
	GitCommit     string     `capnp:"gitCommit p8"`
	GitBranch     string     `capnp:"gitBranch p9"`
	GitRemote     string     `capnp:"gitRemote p10"`
	Params        Params     `capnp:"params p14"`
}

// Params are the device's settings.
type Params struct {
	_ struct{} `capnp:"0 1"`

	Entries []Param `capnp:"entries p0"`
}

// Param is a setting of the device.
type Param struct {
	_ struct{} `capnp:"0 2"`

	Key   string `capnp:"key p0"`
	Value []byte `capnp:"value p1"`
}

// DeviceType is the kind of device that recorded the log.
type DeviceType uint16

// The devices whose cameras are known. Neo is the EON.
const (
	Neo  DeviceType = 1
	Tici DeviceType = 4
	PC   DeviceType = 5
	Tizi DeviceType = 6
	Mici DeviceType = 7
)

// Sentinel is the first and the last message of a segment's events.
type Sentinel struct {
	_ struct{} `capnp:"1 0"`

	Type   SentinelType `capnp:"type 0"`
	Signal int32        `capnp:"signal 32"`
}

// SentinelType says what begins or ends at a sentinel.
type SentinelType uint16

// What begins or ends at a sentinel.
const (
	EndOfSegment SentinelType = iota
	EndOfRoute
	StartOfSegment
	StartOfRoute
)

// FrameData is a camera's state at a frame. Timestamps are in ns since boot: the start and end of the frame's readout.
type FrameData struct {
	_ struct{} `capnp:"12 7"`

	FrameID        uint32    `capnp:"frameId 0"`
	EncodeID       uint32    `capnp:"encodeId 32"`
	TimestampEOF   uint64    `capnp:"timestampEof 64"`
	TimestampSOF   uint64    `capnp:"timestampSof 256"`
	Transform      []float32 `capnp:"transform p2"`
	ProcessingTime float32   `capnp:"processingTime 576"` // s
	FrameIDSensor  uint32    `capnp:"frameIdSensor 608"`
	Sensor         Sensor    `capnp:"sensor 640"`
	RequestID      uint32    `capnp:"requestId 704"`
}

// Sensor is a camera's image sensor.
type Sensor uint16

// The sensors; UnknownSensor is also what logs say that are older than the field.
const (
	UnknownSensor Sensor = iota
	AR0231
	OX03C10
	OS04C10
)

// EncodeIndex says where in a video file a frame is: its SegmentID-th, from 0.
type EncodeIndex struct {
	_ struct{} `capnp:"6 0"`

	FrameID      uint32     `capnp:"frameId 0"` // of the camera's FrameData
	Type         EncodeType `capnp:"type 32"`
	EncodeID     uint32     `capnp:"encodeId 64"`
	SegmentNum   int32      `capnp:"segmentNum 96"` // the encoder's count; may differ from the directory's
	SegmentID    uint32     `capnp:"segmentId 128"`
	TimestampSOF uint64     `capnp:"timestampSof 192"`
	TimestampEOF uint64     `capnp:"timestampEof 256"`
	Flags        uint32     `capnp:"flags 320"`
	Len          uint32     `capnp:"len 352"` // bytes
}

// EncodeType is how a frame was encoded.
type EncodeType uint16

// The encodings of current devices.
const (
	FullHEVC    EncodeType = 1
	QCameraH264 EncodeType = 6
)

// DeviceState is the device's own state, of which only the type is read.
type DeviceState struct {
	_ struct{} `capnp:"14 10"`

	DeviceType DeviceType `capnp:"deviceType 656"`
}

// LiveCalibration is how the device is mounted.
type LiveCalibration struct {
	_ struct{} `capnp:"2 8"`

	CalPerc             int8      `capnp:"calPerc 8"`
	CalStatus           CalStatus `capnp:"calStatus 16"`
	RPYCalib            []float32 `capnp:"rpyCalib p4"`            // roll, pitch, yaw of the device, rad
	WideFromDeviceEuler []float32 `capnp:"wideFromDeviceEuler p6"` // rad
	Height              []float32 `capnp:"height p7"`              // m
}

// CalStatus is how far the calibration is.
type CalStatus uint16

// How far the calibration is.
const (
	Uncalibrated CalStatus = iota
	Calibrated
	InvalidCalibration
	Recalibrating
)

// CarState is what the car reports.
type CarState struct {
	_ struct{} `capnp:"10 6"`

	VEgo             float32     `capnp:"vEgo 0"` // m/s
	GasPressed       bool        `capnp:"gasPressed 64"`
	BrakePressed     bool        `capnp:"brakePressed 65"`
	SteeringPressed  bool        `capnp:"steeringPressed 66"`
	Standstill       bool        `capnp:"standstill 67"`
	LeftBlinker      bool        `capnp:"leftBlinker 69"`
	RightBlinker     bool        `capnp:"rightBlinker 70"`
	CANValid         bool        `capnp:"canValid 74"`
	GearShifter      Gear        `capnp:"gearShifter 80"`
	SteeringAngleDeg float32     `capnp:"steeringAngleDeg 128"`
	SteeringTorque   float32     `capnp:"steeringTorque 160"`
	SteeringRateDeg  float32     `capnp:"steeringRateDeg 192"` // deg/s
	AEgo             float32     `capnp:"aEgo 224"`            // m/s²
	VEgoRaw          float32     `capnp:"vEgoRaw 256"`
	YawRate          float32     `capnp:"yawRate 288"` // rad/s
	LeftBlindspot    bool        `capnp:"leftBlindspot 352"`
	RightBlindspot   bool        `capnp:"rightBlindspot 353"`
	CruiseState      CruiseState `capnp:"cruiseState p2"`
}

// CruiseState is the car's cruise control.
type CruiseState struct {
	_ struct{} `capnp:"2 0"`

	Enabled bool    `capnp:"enabled 0"`
	Speed   float32 `capnp:"speed 32"` // m/s
}

// Gear is the position of the gear lever.
type Gear uint16

// The gears that matter to a data set.
const (
	Drive   Gear = 2
	Reverse Gear = 4
)

// CarControl is what openpilot asks of the car.
type CarControl struct {
	_ struct{} `capnp:"4 6"`

	Enabled          bool      `capnp:"enabled 0"`
	LatActive        bool      `capnp:"latActive 2"`
	LongActive       bool      `capnp:"longActive 3"`
	LeftBlinker      bool      `capnp:"leftBlinker 4"`
	RightBlinker     bool      `capnp:"rightBlinker 5"`
	CurrentCurvature float32   `capnp:"currentCurvature 192"` // 1/m
	Actuators        Actuators `capnp:"actuators p2"`
}

// Actuators are the commands of a CarControl.
type Actuators struct {
	_ struct{} `capnp:"5 0"`

	Torque           float32 `capnp:"torque 64"`
	SteeringAngleDeg float32 `capnp:"steeringAngleDeg 96"`
	Accel            float32 `capnp:"accel 128"`     // m/s²
	Curvature        float32 `capnp:"curvature 224"` // 1/m
}

// CarParams is what openpilot knows of the car's model.
type CarParams struct {
	_ struct{} `capnp:"18 14"`

	Brand                        string  `capnp:"brand p0"`
	CarFingerprint               string  `capnp:"carFingerprint p1"`
	OpenpilotLongitudinalControl bool    `capnp:"openpilotLongitudinalControl 9"`
	Mass                         float32 `capnp:"mass 128"`      // kg
	Wheelbase                    float32 `capnp:"wheelbase 160"` // m
	SteerRatio                   float32 `capnp:"steerRatio 224"`
	SteerActuatorDelay           float32 `capnp:"steerActuatorDelay 512"`        // s
	LongitudinalActuatorDelay    float32 `capnp:"longitudinalActuatorDelay 800"` // s
}

// ControlsState is the state of openpilot's control loop; Enabled, Active and State only in logs without SelfdriveState.
type ControlsState struct {
	_ struct{} `capnp:"24 6"`

	Enabled          bool    `capnp:"enabled 704"`
	Active           bool    `capnp:"active 707"`
	State            uint16  `capnp:"state 928"`
	Curvature        float32 `capnp:"curvature 1088"`        // 1/m
	DesiredCurvature float32 `capnp:"desiredCurvature 1408"` // 1/m
}

// SelfdriveState is whether openpilot drives.
type SelfdriveState struct {
	_ struct{} `capnp:"2 3"`

	State            uint16 `capnp:"state 0"` // disabled, preEnabled, enabled, softDisabling, overriding
	Enabled          bool   `capnp:"enabled 16"`
	Active           bool   `capnp:"active 17"`
	Engageable       bool   `capnp:"engageable 18"`
	ExperimentalMode bool   `capnp:"experimentalMode 19"`
}

// RadarState are the leading cars, by radar or model.
type RadarState struct {
	_ struct{} `capnp:"5 6"`

	LeadOne LeadData `capnp:"leadOne p1"` // the nearest
	LeadTwo LeadData `capnp:"leadTwo p2"`
}

// LeadData is a leading car.
type LeadData struct {
	_ struct{} `capnp:"7 0"`

	DRel      float32 `capnp:"dRel 0"`  // m, from the front of the car
	YRel      float32 `capnp:"yRel 32"` // m, left positive
	VRel      float32 `capnp:"vRel 64"` // m/s
	VLead     float32 `capnp:"vLead 128"`
	VLeadK    float32 `capnp:"vLeadK 256"` // filtered
	Status    bool    `capnp:"status 321"` // there is one
	ALeadTau  float32 `capnp:"aLeadTau 352"`
	ModelProb float32 `capnp:"modelProb 384"`
	Radar     bool    `capnp:"radar 322"`
}

// LivePose is how the device moves, in its own frame.
type LivePose struct {
	_ struct{} `capnp:"2 5"`

	OrientationNED        XYZ    `capnp:"orientationNED p0"`        // rad: roll, pitch, yaw
	VelocityDevice        XYZ    `capnp:"velocityDevice p1"`        // m/s
	AccelerationDevice    XYZ    `capnp:"accelerationDevice p2"`    // m/s²
	AngularVelocityDevice XYZ    `capnp:"angularVelocityDevice p3"` // rad/s
	InputsOK              bool   `capnp:"inputsOK 0"`
	PosenetOK             bool   `capnp:"posenetOK 1"`
	SensorsOK             bool   `capnp:"sensorsOK 2"`
	Timestamp             uint64 `capnp:"timestamp 64"` // ns since boot
}

// XYZ is a measurement with its standard deviations.
type XYZ struct {
	_ struct{} `capnp:"4 0"`

	X     float32 `capnp:"x 0"`
	Y     float32 `capnp:"y 32"`
	Z     float32 `capnp:"z 64"`
	XStd  float32 `capnp:"xStd 96"`
	YStd  float32 `capnp:"yStd 128"`
	ZStd  float32 `capnp:"zStd 160"`
	Valid bool    `capnp:"valid 192"`
}

// DriverMonitoringState is what openpilot of 2026 knows of the driver.
type DriverMonitoringState struct {
	_ struct{} `capnp:"1 0"`

	IsRHD      bool   `capnp:"isRHD 3"` // the steering wheel is on the right
	AlertLevel uint16 `capnp:"alertLevel 32"`
}

// OldDriverMonitoringState is what openpilot before 2026 knows of the driver.
type OldDriverMonitoringState struct {
	_ struct{} `capnp:"7 2"`

	FaceDetected bool `capnp:"faceDetected 0"`
	IsDistracted bool `capnp:"isDistracted 1"`
	IsRHD        bool `capnp:"isRHD 2"` // the steering wheel is on the right
}

// CANFrames are the frames of one CAN or SendCAN message.
type CANFrames []CANFrame

// CANFrame is a frame on a bus of the car.
type CANFrame struct {
	_ struct{} `capnp:"1 1"`

	Address uint32 `capnp:"address 0"`
	Src     uint8  `capnp:"src 48"` // the bus
	Data    []byte `capnp:"dat p0"`
}
