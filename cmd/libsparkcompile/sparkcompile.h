/*
 * sparkcompile.h: run what spark-compile compiles, from C. ABI version 1.
 *
 *   sparkcompile_open        a compiled directory or an ONNX file, on a GPU or on the CPU
 *   sparkcompile_run         inputs and outputs in memory of yours
 *   sparkcompile_drive       a step of openpilot's modeld: camera frames in, parsed outputs out
 *   sparkcompile_monitor     a step of its driver monitoring
 *   sparkcompile_sim_open    closed loops by the batch
 *   sparkcompile_close
 *
 * Every function that can fail returns a sparkcompile_code and takes char **error: unless it is NULL, it is set to NULL, or to a text that
 * says what is wrong and what helps, which sparkcompile_free frees. No function ends the process, or keeps a pointer of yours after it
 * has returned.
 *
 * An open model is for one thread at a time: a second one gets SPARKCOMPILE_BUSY. Open it once more for a second thread. The library has
 * threads of its own, so a process that has called it and then forks must not call it in the child; fork first, or start a new program.
 *
 * Link with -lsparkcompile.
 */
#ifndef SPARKCOMPILE_H
#define SPARKCOMPILE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What sparkcompile_abi() of a library returns that this header describes. A later library of the same version only adds functions, and
 * fields at the end of structs that begin with their size. */
#define SPARKCOMPILE_ABI 1

typedef enum {
	SPARKCOMPILE_OK = 0,
	SPARKCOMPILE_BAD_INPUT = 1, /* what you gave is wrong */
	SPARKCOMPILE_CLOSED = 2,    /* no model is open under this handle */
	SPARKCOMPILE_BUSY = 3,      /* another thread uses the model, or the device runs on */
	SPARKCOMPILE_BAD_DEVICE = 4, /* the device, its driver or memory */
	SPARKCOMPILE_BUG = 5        /* ours */
} sparkcompile_code;

/* An open model. 0 is none. No number is used twice, so one that was closed is refused. */
typedef uintptr_t sparkcompile_handle;

typedef enum {
	SPARKCOMPILE_MODEL = 0,     /* for sparkcompile_run */
	SPARKCOMPILE_DRIVING = 1,   /* for sparkcompile_drive */
	SPARKCOMPILE_MONITORING = 2 /* for sparkcompile_monitor */
} sparkcompile_kind;

/* How to open. All zeros but size is right for most. */
typedef struct {
	size_t size;             /* sizeof(sparkcompile_options) */
	int32_t kind;            /* sparkcompile_kind */
	int32_t check;           /* not 0, on the CPU: check memory, races and synchronisation (slow) */
	const char *device;      /* auto, cuda, cuda:N, emu or cpu, which is emu; NULL: auto */
	const char *target;      /* variant of the program; NULL: the device's own */
	const char *cache;       /* directory for compiled ONNX files; off: none; NULL: by the environment (SPARK_CACHE) */
	const char *const *flags; /* of spark-compile, for ONNX files: "--precision", "fp8" … */
	size_t flag_count;
} sparkcompile_options;

/* An input or an output. The strings and the shape are valid until the model is closed. */
typedef struct {
	const char *name;
	const char *dtype;    /* f32, f16, u8, i64 … */
	const int64_t *shape;
	size_t rank;
	size_t bytes;
	int32_t state;        /* not 0: an input that the device keeps from run to run, or the output that becomes its next value */
} sparkcompile_port;

/* A camera's picture as NV12: height rows of luma, stride bytes apart, then from uv on height/2 rows of U and V in turn. */
typedef struct {
	const void *data;
	size_t bytes;
	int32_t width, height; /* in pixels, both even */
	int32_t stride;        /* 0: width */
	int32_t uv;            /* 0: stride * height */
} sparkcompile_picture;

/* A camera without distortion. */
typedef struct {
	double focal;          /* pixels */
	int32_t width, height; /* pixels */
} sparkcompile_intrinsics;

/* What sparkcompile_drive is given. */
typedef struct {
	size_t size;                     /* sizeof(sparkcompile_frame) */
	sparkcompile_picture road, wide; /* of one camera: the same twice */
	uint32_t id;                     /* of the road camera's frame; a gap is of missed frames */
	int32_t desire;                  /* 0 none, 1 and 2 turn, 3 and 4 change lane, 5 and 6 keep, left before right */
	int32_t right_hand_drive;        /* not 0: traffic keeps left */
	int32_t calibrated;              /* 0: what follows up to wide_camera is not known yet */
	double rpy[3];                   /* roll, pitch and yaw of the device against the car, radians */
	sparkcompile_intrinsics road_camera, wide_camera;
	double v_ego;                               /* m/s */
	double lateral_delay, longitudinal_delay;   /* s */
	int64_t captured;                           /* end of exposure, ns; comes back among the numbers, exact up to 2^53 */
} sparkcompile_frame;

/* What sparkcompile_monitor is given. */
typedef struct {
	size_t size;                  /* sizeof(sparkcompile_driver_frame) */
	sparkcompile_picture picture; /* of the driver camera */
	uint32_t id;
	int32_t right_hand_drive;     /* of models that see one seat: the driver sits on the right */
	double rpy[3];                /* of the device, radians */
	sparkcompile_intrinsics camera;
	int64_t captured;             /* ns */
} sparkcompile_driver_frame;

/* What a step says: numbers, and a text in JSON that says what is where among them. Both are valid until the model's next step, or until
 * it is closed. layout_id changes where the text does.
 *   struct              {"plan": …, "lane_lines": …}; the fields are those of Outputs and MonitoringOutputs of the Go package runtime/modeld
 *   list of structs     [ …, … ]
 *   what is not there   null
 *   numbers             {"@": [offset, [dimensions], kind]}; no dimensions: one number. Kind is f, i (an integer) or b (0 or 1)
 * sparkcompile_value finds a part by its path. */
typedef struct {
	const double *values;
	size_t count;
	const char *layout;
	uint64_t layout_id;
} sparkcompile_result;

#ifndef SPARKCOMPILE_NO_PROTOTYPES

/* SPARKCOMPILE_ABI of the library. */
int32_t sparkcompile_abi(void);
/* The library's version; not to be freed. */
const char *sparkcompile_version(void);
/* Frees what a function of this library returned to be freed. NULL is fine. */
void sparkcompile_free(void *p);

/* Opens a directory that spark-compile wrote or an ONNX file, or openpilot's vision model and its policy (two paths). options may be
 * NULL. Compiling an ONNX file takes seconds, the first time. */
int32_t sparkcompile_open(const char *const *paths, size_t count, const sparkcompile_options *options, sparkcompile_handle *handle, char **error);
/* Closes a model. What it said and its ports are gone then. Refused with SPARKCOMPILE_BUSY while a call of another thread runs. */
int32_t sparkcompile_close(sparkcompile_handle handle, char **error);

/* The inputs (outputs = 0) or outputs (1). */
int32_t sparkcompile_ports(sparkcompile_handle handle, int32_t outputs, const sparkcompile_port **ports, size_t *count, char **error);
/* All that is known of the model, as JSON, to be freed: model, precision, target, device, backend, notices, inputs, outputs with their
 * named slices, loop. */
int32_t sparkcompile_describe(sparkcompile_handle handle, char **json, char **error);

/* Runs. inputs and outputs have a pointer for each port, in their order, to port.bytes bytes of yours. Inputs are read where they lie if the
 * device sees the host's memory and they begin at a multiple of 16 bytes, else copied. An input that is NULL is what the model's own memory
 * has (sparkcompile_memory; zeros at first), which a run on memory of yours may change or not; a state that is NULL is what the last run
 * left. An output that is NULL is not wanted. */
int32_t sparkcompile_run(sparkcompile_handle handle, const void *const *inputs, void *const *outputs, char **error);
/* The model's own memory of an input or output, to be written before a run or read behind one without a copy; NULL where the host cannot
 * see it, and of states. Valid until the model is closed. */
int32_t sparkcompile_memory(sparkcompile_handle handle, int32_t outputs, size_t index, void **data, char **error);

/* Reads and writes a state, by its input's name. bytes is the state's size; one with a delay of n runs has n values, or takes one.
 * With data NULL, get sets *bytes to what it takes. */
int32_t sparkcompile_get_state(sparkcompile_handle handle, const char *name, void *data, size_t *bytes, char **error);
int32_t sparkcompile_set_state(sparkcompile_handle handle, const char *name, const void *data, size_t bytes, char **error);
/* Makes all states zero; of a driving loop, forgets everything that was seen. */
int32_t sparkcompile_reset(sparkcompile_handle handle, char **error);

/* A step of modeld, and one of driver monitoring. result may be NULL. */
int32_t sparkcompile_drive(sparkcompile_handle handle, const sparkcompile_frame *frame, sparkcompile_result *result, char **error);
int32_t sparkcompile_monitor(sparkcompile_handle handle, const sparkcompile_driver_frame *frame, sparkcompile_result *result, char **error);
/* A part of what the last step said, such as plan.position (33 × 3 numbers) or lane_lines.1.y (33). Valid as the result is. */
int32_t sparkcompile_value(sparkcompile_handle handle, const char *path, const double **values, size_t *count, char **error);

/* The cameras of a device by openpilot's names of it (tici, tizi, mici, neo) and of the road camera's sensor (ar0231, ox03c10, os04c10,
 * unknown): road, wide and driver. */
int32_t sparkcompile_cameras(const char *device, const char *sensor, sparkcompile_intrinsics cameras[3], char **error);

/* Closed loops by the batch: n loops of each of some scenarios, behind each other. request is JSON:
 *
 *   {"scenarios": ["curve", "mine.yaml"], "n": 100, "seed": 1, "device": "auto"}
 *
 * json, to be freed, says what rows arrays have: scenarios, metrics, observations and params, with names and units. The handle is for the
 * functions sparkcompile_sim_… alone, and one thread at a time. */
int32_t sparkcompile_sim_open(const char *request, sparkcompile_handle *handle, char **json, char **error);
int32_t sparkcompile_sim_close(sparkcompile_handle handle, char **error);
/* The parameters of the loops: [loops, params]. */
int32_t sparkcompile_sim_params(sparkcompile_handle handle, double *params, char **error);
/* Drives all loops by an algorithm of a name, or an ONNX file, to their end: metrics are [loops, metrics]. */
int32_t sparkcompile_sim_run(sparkcompile_handle handle, const char *algorithm, double *metrics, char **error);
/* Starts loops: numbers has for each loop its number among those of its scenario, which decides what is drawn, or -1: it goes on. At first
 * all loops must be started, and with another seed. */
int32_t sparkcompile_sim_reset(sparkcompile_handle handle, const int64_t *numbers, uint64_t seed, char **error);
/* What loops see, [observations, loops]: once in front of each step. */
int32_t sparkcompile_sim_observe(sparkcompile_handle handle, float *observations, char **error);
/* Drives all loops for 50 ms by commands, [2, loops]: curvature in 1/m and acceleration in m/s². alive, [loops], is 0 for those that have
 * ended, which stay as they are; metrics, [loops, metrics], are those so far. */
int32_t sparkcompile_sim_step(sparkcompile_handle handle, const float *commands, uint8_t *alive, double *metrics, char **error);

/* The commands: argv is a program's name, then compile, run, info, bench, dora or sim, and its arguments. Returns its exit code. */
int32_t sparkcompile_main(int32_t argc, const char *const *argv);

/* For tests of leaks: after a garbage collection, how many models are in memory, closed ones included, how many threads of Go's own
 * kind (goroutines) there are, and how many bytes the library holds. */
void sparkcompile_counts(int64_t counts[3]);

#endif /* SPARKCOMPILE_NO_PROTOTYPES */

#ifdef __cplusplus
}
#endif

#endif
