/* The stand-in driver of hal/cuda with the entry points that gorgonia.org/cu uses beyond. */
#include "../../cuda/testdata/fakecuda.c"

R cuCtxCreate_v2(void **c, unsigned f, int d) { ENTER("cuCtxCreate", 0); *c = (void *)0x77; contexts++; current = 1; return f ? INVALID : OK; }
R cuCtxDestroy_v2(void *c) { ENTER("cuCtxDestroy", 0); contexts--; return c == (void *)0x77 ? OK : INVALID; }
R cuCtxSynchronize(void) { ENTER("cuCtxSynchronize", 1); return OK; }
R cuModuleLoadData(void **m, const void *image) {
  ENTER("cuModuleLoadData", 1);
  if (strncmp(image, ".version", 8) != 0) return INVALID_PTX;
  *m = (void *)0x55;
  modules++;
  return OK;
}
R cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream, void **params, void **extra) {
  ENTER("cuLaunchKernel", 1);
  if (stream != (void *)0x99) return INVALID;
  note("launch %s grid %u,%u,%u block %u,%u,%u shared %u params %llx", names[(uintptr_t)f - 0x1000], gx, gy, gz, bx, by, bz, shared, *(unsigned long long *)params[0]);
  return OK;
}
