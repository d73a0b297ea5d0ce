/* A stand-in for libcuda.so.1, for tests only: keeps memory on the host, records captured work as text, and checks that
 * calls come in an order the real driver accepts (context current, no allocation during capture, launches only while
 * capturing, frees match allocations). fake_log returns what happened; fake_fail makes the n-th call of a name fail. */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int R;
enum { OK = 0, INVALID = 1, OOM = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_IMAGE = 200, INVALID_CONTEXT = 201, INVALID_PTX = 218, NOT_FOUND = 500, CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901, NOT_READY = 600, UNKNOWN = 999 };

static char out[1 << 20];
static size_t used;
static int inited, capturing, allocations, modules, streams, graphs, events, links, contexts, integrated;
/* What a test may change with fake_set: the number of devices, the driver's version, and which kinds of memory host and
 * device see alike. */
static int devices = 1, version = 13000, host_coherent = 1, managed_coherent = 1, managed_offered = 1;
/* Also: how many times a stream says that a graph runs (-1: for ever), an attribute of devices that the driver does not know,
 * whether it knows programmatic launches, and what is wrong with the edges of captured graphs: 1 plain ones instead of
 * programmatic ones, 2 one is missing, 3 one is there twice, 4 all are programmatic. */
static int busy, unknown_attribute, no_programmatic, edges_wrong;
/* Also: whether a query of the capture that cannot return the data of edges fails behind a programmatic launch, and how long the host
 * takes to launch a graph, in microseconds. */
static int lossy_query, launch_us, timed_us;
static int queued; /* a delay keeps the stream busy: graphs may be launched behind each other up to the second event */
static int programmatic_last; /* the kernel captured last was launched with a programmatic edge */
/* The one kernel that the fake runs, hal/cuda's "coherence". Where stale reads are set, it reads what was there the first time:
 * 1 in host-allocated memory, 2 in managed memory, 4 in the host's own, or a sum of these. */
static int stale_reads, page_tables;
static struct { unsigned *from, *to, *first; unsigned words; } reread;
static int left; /* how many times the stream will say so */
static struct { void *from, *to; unsigned char kind; } edges[512];
static int nedges;
static void *behind[64]; /* the nodes that the stream records behind: 0x2000 and the number of the node */
static int nodes;
static size_t nbehind;
static char *host_block, *managed_block;
static char *names[256];
static struct { int params, threads, shared; } limits[256];
static int nnames;
static char *text; /* the PTX loaded last: if it has kernels, what is launched must be one of them, as it is declared */
static __thread int current;
static char fail_name[64];
static int fail_after, fail_code;

static void run_reread(void);
static void note(const char *f, ...) {
  va_list a;
  va_start(a, f);
  if (used < sizeof out - 512) {
    used += vsnprintf(out + used, 400, f, a);
    out[used++] = '\n';
    out[used] = 0;
  }
  va_end(a);
}
const char *fake_log(void) { return out; }
void fake_reset(int unified) { capturing = allocations = modules = streams = graphs = events = links = contexts = 0, used = 0, out[0] = 0, fail_name[0] = 0, integrated = unified;
  devices = 1, version = 13000, host_coherent = managed_coherent = managed_offered = 1;
  busy = unknown_attribute = no_programmatic = edges_wrong = stale_reads = page_tables = left = nedges = 0;
  lossy_query = launch_us = queued = 0, timed_us = 1500;
  while (nnames) free(names[--nnames]);
  free(text), text = 0; }
int fake_set(const char *name, int value) {
  int *to = strcmp(name, "devices") == 0 ? &devices : strcmp(name, "version") == 0 ? &version : strcmp(name, "host coherent") == 0 ? &host_coherent
    : strcmp(name, "managed coherent") == 0 ? &managed_coherent : strcmp(name, "managed offered") == 0 ? &managed_offered
    : strcmp(name, "busy") == 0 ? &busy : strcmp(name, "unknown attribute") == 0 ? &unknown_attribute : strcmp(name, "no programmatic launches") == 0 ? &no_programmatic
    : strcmp(name, "edges wrong") == 0 ? &edges_wrong : strcmp(name, "stale reads") == 0 ? &stale_reads
    : strcmp(name, "page tables") == 0 ? &page_tables : strcmp(name, "lossy query") == 0 ? &lossy_query
    : strcmp(name, "launch microseconds") == 0 ? &launch_us
    : strcmp(name, "timed microseconds") == 0 ? &timed_us : 0;
  if (!to) return INVALID;
  *to = value;
  if (to == &busy && left) left = value; /* what runs may end after all */
  return OK;
}
int fake_contexts(void) { return contexts; }
void fake_fail(const char *name, int after, int code) { snprintf(fail_name, sizeof fail_name, "%s", name), fail_after = after, fail_code = code; }
int fake_balance(void) { return allocations + modules + streams + graphs + events + links; }

static R enter(const char *name, int needs_context) {
  if (strcmp(name, fail_name) == 0 && fail_after-- == 0) { note("%s fails %d", name, fail_code); return fail_code; }
  if (strcmp(name, "cuInit") != 0 && !inited) return NOT_INITIALIZED;
  if (needs_context && !current) { note("%s without a context", name); return INVALID_CONTEXT; }
  return OK;
}
#define ENTER(name, ctx) do { R r_ = enter(name, ctx); if (r_) return r_; } while (0)
/* What the driver would wait for, for ever perhaps. */
#define NOT_RUNNING(name) do { if (left) { note("%s waits for the graph", name); if (left < 0) return UNKNOWN; left = 0; } } while (0)
#define NOT_CAPTURING(name) do { if (capturing) { note("%s during capture", name); return CAPTURE_UNSUPPORTED; } } while (0)

R cuInit(unsigned f) { ENTER("cuInit", 0); inited = 1; return f ? INVALID : OK; }
R cuDriverGetVersion(int *v) { ENTER("cuDriverGetVersion", 0); *v = version; return OK; }
R cuGetErrorName(R e, const char **s) {
  if (strcmp("cuGetErrorName", fail_name) == 0) return fail_code;
  static char buf[32];
  switch (e) {
  case OOM: *s = "CUDA_ERROR_OUT_OF_MEMORY"; break;
  case INVALID_CONTEXT: *s = "CUDA_ERROR_INVALID_CONTEXT"; break;
  case INVALID_PTX: *s = "CUDA_ERROR_INVALID_PTX"; break;
  case CAPTURE_UNSUPPORTED: *s = "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"; break;
  default: snprintf(buf, sizeof buf, "CUDA_ERROR_%d", e); *s = buf;
  }
  return OK;
}
R cuDeviceGetCount(int *n) { ENTER("cuDeviceGetCount", 0); *n = devices; return OK; }
R cuDeviceGet(int *d, int i) { ENTER("cuDeviceGet", 0); *d = i; return i < devices ? OK : INVALID_DEVICE; }
R cuDeviceGetName(char *s, int n, int d) { ENTER("cuDeviceGetName", 0); snprintf(s, n, "Fake GB10"); return OK; }
R cuDeviceGetAttribute(int *v, int a, int d) {
  ENTER("cuDeviceGetAttribute", 0);
  if (a == unknown_attribute) return INVALID;
  *v = a == 75 ? 12 : a == 76 ? 1 : a == 18 ? integrated : a == 97 ? 101376 : a == 16 ? 48 : a == 13 ? 2418000 : a == 38 ? 24 << 20 : a == 19 ? 1
    : a == 83 || a == 89 ? managed_offered : a == 50 ? 15 : a == 33 ? 1 : a == 100 ? page_tables : 0;
  return OK;
}
R cuDeviceTotalMem_v2(size_t *n, int d) { ENTER("cuDeviceTotalMem", 0); *n = 1ull << 37; return OK; }
R cuDevicePrimaryCtxRetain(void **c, int d) { ENTER("cuDevicePrimaryCtxRetain", 0); *c = (void *)0x77; contexts++; note("retain"); return OK; }
R cuDevicePrimaryCtxRelease_v2(int d) { ENTER("cuDevicePrimaryCtxRelease", 0); contexts--; note("release"); return OK; }
R cuCtxSetCurrent(void *c) { ENTER("cuCtxSetCurrent", 0); current = c == (void *)0x77; return OK; }

R cuMemAlloc_v2(uint64_t *p, size_t n) { ENTER("cuMemAlloc", 1); NOT_CAPTURING("cuMemAlloc"); *p = (uint64_t)aligned_alloc(256, (n + 255) & ~255ull); allocations++; note("alloc %zu", n); return *p ? OK : OOM; }
R cuMemFree_v2(uint64_t p) { ENTER("cuMemFree", 1); NOT_CAPTURING("cuMemFree"); NOT_RUNNING("cuMemFree"); if ((char *)p == managed_block) managed_block = 0; free((void *)p); allocations--; note("free"); return OK; }
R cuMemHostAlloc(void **p, size_t n, unsigned f) { ENTER("cuMemHostAlloc", 1); NOT_CAPTURING("cuMemHostAlloc"); *p = host_block = aligned_alloc(256, (n + 255) & ~255ull); allocations++; note("hostalloc %zu flags %u", n, f); return OK; }
R cuMemHostGetDevicePointer_v2(uint64_t *d, void *p, unsigned f) { ENTER("cuMemHostGetDevicePointer", 1); *d = (uint64_t)p; return OK; }
R cuMemAllocManaged(void **p, size_t n, unsigned f) { ENTER("cuMemAllocManaged", 1); NOT_CAPTURING("cuMemAllocManaged"); *p = managed_block = aligned_alloc(256, (n + 255) & ~255ull); allocations++; note("managed %zu flags %u", n, f); return OK; }
R cuMemFreeHost(void *p) { ENTER("cuMemFreeHost", 1); NOT_RUNNING("cuMemFreeHost"); host_block = 0; free(p); allocations--; note("hostfree"); return OK; }
R cuMemcpyHtoD_v2(uint64_t d, const void *s, size_t n) { ENTER("cuMemcpyHtoD", 1); NOT_CAPTURING("cuMemcpyHtoD"); memcpy((void *)d, s, n); note("htod %zu", n); return OK; }
R cuMemcpyDtoH_v2(void *d, uint64_t s, size_t n) { ENTER("cuMemcpyDtoH", 1); memcpy(d, (void *)s, n); note("dtoh %zu", n); return OK; }
R cuMemsetD8_v2(uint64_t d, unsigned char v, size_t n) { ENTER("cuMemsetD8", 1); NOT_CAPTURING("cuMemsetD8"); if (!(!host_coherent && (char *)d >= host_block && (char *)d < host_block + 512) && !(!managed_coherent && (char *)d >= managed_block && (char *)d < managed_block + 512)) memset((void *)d, v, n); note("memset %zu", n); return OK; }

R cuModuleLoadDataEx(void **m, const void *image, unsigned n, int *opt, void **val) {
  ENTER("cuModuleLoadDataEx", 1);
  if (n == 0) { /* a cubin: the fake knows only one magic */
    if (memcmp(image, "CUBIN", 5) != 0) return 209;
    note("load cubin");
    if (strcmp(image, "CUBIN of the driver") != 0) free(text), text = 0; /* else that of the PTX which was linked */
  } else {
    if (strncmp(image, ".version", 8) != 0) { if (n == 2 && opt[0] == 5) strcpy(val[0], "ptxas fatal: no .version"); return INVALID_PTX; }
    note("load ptx");
    free(text), text = strdup(image);
  }
  *m = (void *)0x55;
  modules++;
  return OK;
}
R cuLinkCreate_v2(unsigned n, int *opt, void **val, void **state) { ENTER("cuLinkCreate", 1); *state = (void *)0x44; links++; return n == 2 && opt[0] == 5 ? OK : INVALID; }
R cuLinkAddData_v2(void *state, int type, void *data, size_t size, const char *name, unsigned n, int *opt, void **val) {
  ENTER("cuLinkAddData", 1);
  if (strncmp(data, ".version", 8) != 0) return INVALID_PTX;
  note("link %zu", size);
  free(text), text = strdup(data);
  return type == 1 && ((char *)data)[size - 1] == 0 ? OK : INVALID;
}
R cuLinkComplete(void *state, void **cubin, size_t *size) { ENTER("cuLinkComplete", 1); *cubin = "CUBIN of the driver"; *size = 19; return state == (void *)0x44 ? OK : INVALID; }
R cuLinkDestroy(void *state) { ENTER("cuLinkDestroy", 1); links--; return OK; }
R cuModuleUnload(void *m) { ENTER("cuModuleUnload", 1); modules--; note("unload"); return m == (void *)0x55 ? OK : INVALID; }
R cuModuleGetFunction(void **f, void *m, const char *name) {
  ENTER("cuModuleGetFunction", 1);
  if (strncmp(name, "missing", 7) == 0) return NOT_FOUND;
  if (nnames == 256) return OOM;
  limits[nnames].params = -1, limits[nnames].threads = 1024, limits[nnames].shared = 49152;
  if (text && strstr(text, ".entry ")) {
    char head[300];
    snprintf(head, sizeof head, ".entry %s(", name);
    char *at = strstr(text, head), *end = at ? strstr(at, ")\n") : 0;
    if (!end) { note("no kernel %s", name); return NOT_FOUND; }
    for (limits[nnames].params = 0; (at = strstr(at, ".param .")) && at++ < end;) limits[nnames].params++;
    sscanf(end, ")\n.maxntid %d", &limits[nnames].threads);
  }
  names[nnames] = strdup(name);
  *f = (void *)(uintptr_t)(0x1000 + nnames++);
  return OK;
}
R cuFuncSetAttribute(void *f, int a, int v) { ENTER("cuFuncSetAttribute", 1); NOT_CAPTURING("cuFuncSetAttribute"); if (a == 9) { note("carveout %d of %s", v, names[(uintptr_t)f - 0x1000]); return v < -1 || v > 100 ? INVALID : OK; } note("attribute %d = %d of %s", a, v, names[(uintptr_t)f - 0x1000]); if (a != 8 || v > 101376) return INVALID; limits[(uintptr_t)f - 0x1000].shared = v; return OK; }

R cuStreamCreate(void **s, unsigned f) { ENTER("cuStreamCreate", 1); *s = (void *)0x99; streams++; return OK; }
R cuStreamDestroy_v2(void *s) { ENTER("cuStreamDestroy", 1); capturing = 0; streams--; return OK; }
R cuStreamSynchronize(void *s) { ENTER("cuStreamSynchronize", 1); NOT_CAPTURING("cuStreamSynchronize"); if (s) NOT_RUNNING("cuStreamSynchronize"); note(s ? "synchronize" : "settle"); return OK; }
R cuStreamQuery(void *s) { ENTER("cuStreamQuery", 1); NOT_CAPTURING("cuStreamQuery"); if (left > 0) left--; if (left) return NOT_READY; note("ended"); return s == (void *)0x99 ? OK : INVALID; }
R cuStreamBeginCapture_v2(void *s, int mode) { ENTER("cuStreamBeginCapture", 1); capturing = 1, nodes = 0, nbehind = 0, nedges = 0; free(reread.first), memset(&reread, 0, sizeof reread); note("begin"); return OK; }
R cuStreamEndCapture(void *s, void **g) { ENTER("cuStreamEndCapture", 1); if (!capturing) return INVALID; capturing = 0; *g = (void *)0xaa; graphs++; note("end"); return OK; }
R cuGraphInstantiateWithFlags(void **e, void *g, uint64_t f) { ENTER("cuGraphInstantiate", 1); *e = (void *)0xbb; graphs++; note("instantiate"); return OK; }
R cuGraphUpload(void *e, void *s) { ENTER("cuGraphUpload", 1); NOT_CAPTURING("cuGraphUpload"); note("upload"); return e == (void *)0xbb && s == (void *)0x99 ? OK : INVALID; }
/* Sleeps as long as said: Go's preemption sends signals, which end usleep. */
static void rest(int us) { struct timespec t = {us / 1000000, us % 1000000 * 1000L}; while (us && nanosleep(&t, &t)) {} }
R cuGraphLaunch(void *e, void *s) { ENTER("cuGraphLaunch", 1); rest(launch_us); if (left && !queued) { note("launch over a running graph"); return INVALID; } left = busy < 0 ? -1 : busy ? busy + 1 : 0; if (reread.from) run_reread(); else note("graph"); return e == (void *)0xbb ? OK : INVALID; }
R cuGraphExecDestroy(void *e) { ENTER("cuGraphExecDestroy", 1); NOT_RUNNING("cuGraphExecDestroy"); graphs--; return OK; }
R cuEventCreate(void **e, unsigned f) { ENTER("cuEventCreate", 1); *e = (void *)(uintptr_t)(0xe0 + events++); return f ? INVALID : OK; }
R cuEventRecord(void *e, void *s) { ENTER("cuEventRecord", 1); NOT_CAPTURING("cuEventRecord"); note("event %d", (int)((uintptr_t)e - 0xe0)); if ((uintptr_t)e & 1) queued = 0; return s == (void *)0x99 ? OK : INVALID; }
R cuEventElapsedTime(float *ms, void *a, void *b) { ENTER("cuEventElapsedTime", 1); if ((char *)b - (char *)a != 1) return INVALID; *ms = timed_us / 1e3f; return OK; }
R cuEventDestroy_v2(void *e) { ENTER("cuEventDestroy", 1); events--; return OK; }
R cuGraphDestroy(void *g) { ENTER("cuGraphDestroy", 1); graphs--; return OK; }

static void run_reread(void) {
  int stale = ((char *)reread.from == host_block && stale_reads & 1) || ((char *)reread.from == managed_block && stale_reads & 2)
    || ((char *)reread.from != host_block && (char *)reread.from != managed_block && stale_reads & 4);
  if (!reread.first) memcpy(reread.first = malloc(4 * reread.words), reread.from, 4 * reread.words);
  for (unsigned i = 0; i < reread.words; i++) reread.to[i] = (stale ? reread.first : reread.from)[i] + 1;
}
static void edge(void *from, void *to, int kind) { if (nedges < 512) edges[nedges].from = from, edges[nedges].to = to, edges[nedges++].kind = kind; }
static void record(int programmatic) {
  for (size_t i = 0; i < nbehind; i++) edge(behind[i], (void *)(uintptr_t)(0x2000 + nodes), programmatic);
  behind[0] = (void *)(uintptr_t)(0x2000 + nodes++), nbehind = 1;
}
R cuGraphGetEdges_v2(void *g, void **from, void **to, struct { unsigned char from, to, kind, zero[5]; } *data, size_t *n) {
  ENTER("cuGraphGetEdges", 1);
  NOT_CAPTURING("cuGraphGetEdges");
  if (g != (void *)0xaa || *n < 1) return INVALID;
  if (edges_wrong == 2) nedges--;
  if (edges_wrong == 3) edges[nedges] = edges[nedges - 1], nedges++;
  size_t i = 0;
  for (; i < *n && i < (size_t)nedges; i++) {
    from[i] = edges[i].from, to[i] = edges[i].to;
    memset(data + i, 0, sizeof *data);
    data[i].kind = edges_wrong == 1 ? 0 : edges_wrong == 4 ? 1 : edges[i].kind;
  }
  *n = i;
  return OK;
}
R cuStreamGetCaptureInfo_v3(void *s, int *status, uint64_t *id, void **g, const void ***deps, const void **data, size_t *n) {
  ENTER("cuStreamGetCaptureInfo_v3", 1);
  static const unsigned char zero[64 * 8];
  *status = capturing, *id = 1, *g = (void *)0xaa, *deps = (const void **)behind, *data = zero, *n = nbehind;
  return s == (void *)0x99 ? OK : INVALID;
}
R cuStreamGetCaptureInfo_v2(void *s, int *status, uint64_t *id, void **g, const void ***deps, size_t *n) {
  ENTER("cuStreamGetCaptureInfo", 1);
  if (lossy_query && programmatic_last) return 402;
  *status = capturing, *id = 1, *g = (void *)0xaa, *deps = (const void **)behind, *n = nbehind;
  return s == (void *)0x99 ? OK : INVALID;
}
R cuStreamUpdateCaptureDependencies(void *s, void **deps, size_t n, unsigned flags) {
  ENTER("cuStreamUpdateCaptureDependencies", 1);
  if (!capturing || s != (void *)0x99 || n > 64 || flags != 1) return INVALID;
  char p[256] = "";
  for (size_t i = 0; i < n; i++) {
    uintptr_t node = (uintptr_t)deps[i] - 0x2000;
    if (node >= (uintptr_t)nodes) { note("no node %lx", node); return INVALID; }
    snprintf(p + strlen(p), sizeof p - strlen(p), " %lu", node);
  }
  memmove(behind, deps, n * sizeof *deps), nbehind = n;
  note("after%s", n ? p : " nothing");
  return OK;
}

typedef struct { unsigned g[3], b[3], shared; void *stream; struct { int id, pad; int value[16]; } *attrs; unsigned n; } config;
R cuLaunchKernelEx(const config *c, void *f, void **params, void **extra) {
  ENTER("cuLaunchKernelEx", 1);
  if (!capturing && c->stream == (void *)0x99 && strcmp(names[(uintptr_t)f - 0x1000], "delay") == 0) { queued = 1; note("delay"); return OK; }
  if (!capturing || c->stream != (void *)0x99) { note("launch outside a capture"); return INVALID; }
  int dependent = 0, priority = 0;
  for (unsigned i = 0; i < c->n; i++) {
    if (c->attrs[i].id == 6 && no_programmatic) return INVALID;
    if (c->attrs[i].id == 6) dependent = c->attrs[i].value[0];
    else if (c->attrs[i].id == 8) priority = c->attrs[i].value[0];
    else { note("launch attribute %d", c->attrs[i].id); return INVALID; }
  }
  if (priority) note("priority %d", priority);
  char p[256] = "";
  int n = 0, k = (uintptr_t)f - 0x1000;
  for (; params[n]; n++) snprintf(p + strlen(p), sizeof p - strlen(p), " %llx", *(unsigned long long *)params[n]);
  if (strcmp(names[k], "coherence") == 0) reread.from = *(void **)params[0], reread.to = *(void **)params[1], reread.words = *(unsigned *)params[2];
  else note("launch %s grid %u,%u,%u block %u,%u,%u shared %u dependent %d params%s", names[(uintptr_t)f - 0x1000], c->g[0], c->g[1], c->g[2], c->b[0], c->b[1], c->b[2],
       c->shared, dependent, p);
  if (limits[k].params >= 0 && n != limits[k].params) { note("%d parameters, %s takes %d", n, names[k], limits[k].params); return INVALID; }
  if (c->b[0] * c->b[1] * c->b[2] > limits[k].threads || (int)c->shared > limits[k].shared) { note("%s does not fit", names[k]); return INVALID; }
  if (!c->g[0] || !c->g[1] || !c->g[2] || c->g[1] > 65535 || c->g[2] > 65535) { note("grid of %s", names[k]); return INVALID; }
  if (dependent && nbehind != 1) { note("a programmatic edge from %zu nodes", nbehind); return INVALID; }
  programmatic_last = dependent;
  record(dependent);
  return OK;
}
typedef struct { void *f; unsigned g[3], b[3], shared; void **params, **extra, *kernel, *context; } node_params;
R cuGraphExecKernelNodeSetParams_v2(void *e, void *node, const node_params *p) {
  ENTER("cuGraphExecKernelNodeSetParams", 1);
  NOT_CAPTURING("cuGraphExecKernelNodeSetParams");
  NOT_RUNNING("cuGraphExecKernelNodeSetParams");
  int k = (uintptr_t)p->f - 0x1000;
  if (e != (void *)0xbb || graphs < 2 || k < 0 || k >= nnames || p->extra || p->kernel || p->context) return INVALID;
  note("node %d is %s grid %u,%u,%u block %u,%u,%u shared %u params %llx %llx", (int)((uintptr_t)node - 0x2000), names[k], p->g[0], p->g[1], p->g[2], p->b[0], p->b[1], p->b[2],
       p->shared, *(unsigned long long *)p->params[0], *(unsigned long long *)p->params[1]);
  return OK;
}
R cuMemcpyDtoDAsync_v2(uint64_t d, uint64_t s, size_t n, void *stream) { ENTER("cuMemcpyDtoDAsync", 1); if (!capturing) return INVALID; note("copy %zu", n); record(0); return OK; }
