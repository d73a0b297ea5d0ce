// A stand-in for libnvidia-ml.so.1 with one GPU. Layouts follow the NVML API reference.
// FAIL is the code of the call that FAILS names, or of all optional calls with FAIL_ALL. OLD keeps only unversioned names;
// NO_NAME and NO_POWER drop a required and an optional one.
#include <stdint.h>
#include <string.h>
#ifndef FAIL
#define FAIL 0
#endif
#ifndef FAILS
#define FAILS ""
#endif
#ifdef FAIL_ALL
#define OPTIONAL return FAIL
#else
#define OPTIONAL if (!strcmp(FAILS, __func__)) return FAIL
#endif
#define REQUIRED if (!strcmp(FAILS, __func__)) return FAIL
#ifdef OLD
#define V(name, version) name
#else
#define V(name, version) name##version
#endif
#ifndef MEMORY
#define MEMORY 1000
#endif
typedef struct { char legacy[16]; uint32_t domain, bus, device, id, subsystem; char busId[32]; } pci;
typedef struct { uint64_t total, free, used; } memory;
typedef struct { uint32_t gpu, memory; } utilization;
int V(nvmlInit, _v2)(void) { REQUIRED; return 0; }
int nvmlShutdown(void) { REQUIRED; return 0; }
int V(nvmlDeviceGetCount, _v2)(uint32_t *n) { REQUIRED; *n = 1; return 0; }
int V(nvmlDeviceGetHandleByIndex, _v2)(uint32_t i, void **d) { REQUIRED; *d = (void *)0x1000; return i ? 2 : 0; }
#ifndef NO_NAME
int nvmlDeviceGetName(void *d, char *s, uint32_t n) { REQUIRED; strncpy(s, "NVIDIA GB10", n); return 0; }
#endif
int nvmlSystemGetDriverVersion(char *s, uint32_t n) { OPTIONAL; strncpy(s, "580.95.05", n); return 0; }
int V(nvmlSystemGetCudaDriverVersion, _v2)(int *v) { OPTIONAL; *v = 13000; return 0; }
int nvmlDeviceGetUUID(void *d, char *s, uint32_t n) { OPTIONAL; strncpy(s, "GPU-1", n); return 0; }
int V(nvmlDeviceGetPciInfo, _v3)(void *d, pci *p) {
	OPTIONAL; memset(p, 0, sizeof *p); p->domain = 15; p->bus = 1; p->id = 0x2e1210de;
	strcpy(p->legacy, "000F:01:00.0"); strcpy(p->busId, "0000000F:01:00.0"); return 0;
}
int nvmlDeviceGetCudaComputeCapability(void *d, int *a, int *b) { OPTIONAL; *a = 12; *b = 1; return 0; }
int nvmlDeviceGetMemoryInfo(void *d, memory *m) { OPTIONAL; m->total = MEMORY; m->free = 600; m->used = 400; return 0; }
int nvmlDeviceGetClockInfo(void *d, int k, uint32_t *v) { OPTIONAL; *v = 2400 + k; return 0; }
int nvmlDeviceGetMaxClockInfo(void *d, int k, uint32_t *v) { OPTIONAL; *v = 3003 + k; return 0; }
#ifndef NO_POWER
int nvmlDeviceGetPowerUsage(void *d, uint32_t *v) { OPTIONAL; *v = 41270; return 0; }
#endif
int nvmlDeviceGetEnforcedPowerLimit(void *d, uint32_t *v) { OPTIONAL; *v = 140000; return 0; }
int nvmlDeviceGetTemperature(void *d, int k, uint32_t *v) { OPTIONAL; *v = 58 + k; return 0; }
int nvmlDeviceGetUtilizationRates(void *d, utilization *u) { OPTIONAL; u->gpu = 93; u->memory = 7; return 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *d, uint64_t *v) { OPTIONAL; *v = 0x44; return 0; }
