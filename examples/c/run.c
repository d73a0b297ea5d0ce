/* Runs a model on zeros, and prints what it takes and gives:
 *
 *   cc -I cmd/libsparkcompile examples/c/run.c -L DIR -lsparkcompile -Wl,-rpath,DIR -o run
 *   ./run drivingvision
 */
#include <sparkcompile.h>
#include <stdio.h>
#include <stdlib.h>

static char *error;

/* Prints what went wrong and ends the program. */
static void check(int32_t code) {
	if (code == SPARKCOMPILE_OK) return;
	fprintf(stderr, "run: %s\n", error ? error : "failed");
	sparkcompile_free(error);
	exit(2);
}

static void print(const char *what, const sparkcompile_port *p) {
	printf("%s %s %s[", what, p->name, p->dtype);
	for (size_t i = 0; i < p->rank; i++) printf(i ? ",%lld" : "%lld", (long long)p->shape[i]);
	printf("], %zu bytes%s\n", p->bytes, p->state ? ", kept on the device" : "");
}

int main(int argc, char **argv) {
	if (argc < 2 || sparkcompile_abi() != SPARKCOMPILE_ABI) {
		fprintf(stderr, argc < 2 ? "usage: run DIR|MODEL.onnx [DEVICE]\n" : "run: the library is of another version than sparkcompile.h\n");
		return 2;
	}
	const char *path = argv[1];
	sparkcompile_options options = {.size = sizeof options, .device = argc > 2 ? argv[2] : "auto"};
	sparkcompile_handle model;
	check(sparkcompile_open(&path, 1, &options, &model, &error));

	const sparkcompile_port *in, *out;
	size_t ins, outs;
	check(sparkcompile_ports(model, 0, &in, &ins, &error));
	check(sparkcompile_ports(model, 1, &out, &outs, &error));
	void **inputs = calloc(ins + 1, sizeof *inputs), **outputs = calloc(outs + 1, sizeof *outputs);
	for (size_t i = 0; i < ins; i++) {
		print("input", &in[i]);
		if (!in[i].state) inputs[i] = calloc(1, in[i].bytes); /* NULL: it keeps what it has */
	}
	for (size_t i = 0; i < outs; i++) {
		print("output", &out[i]);
		outputs[i] = malloc(out[i].bytes);
	}
	check(sparkcompile_run(model, (const void *const *)inputs, outputs, &error));

	for (size_t i = 0; i < outs; i++) {
		unsigned char *bytes = outputs[i];
		unsigned hash = 2166136261u; /* FNV-1a */
		for (size_t k = 0; k < out[i].bytes; k++) hash = (hash ^ bytes[k]) * 16777619u;
		printf("%s: %08x\n", out[i].name, hash);
		free(outputs[i]);
	}
	for (size_t i = 0; i < ins; i++) free(inputs[i]);
	free(inputs);
	free(outputs);
	check(sparkcompile_close(model, &error));
	return 0;
}
