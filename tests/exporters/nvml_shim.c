/* A scripted libnvidia-ml.so.1 for tests: two GPUs, the second without raw NVLink counters. Structures as in nvml.h.
 * The file named by NVML_SHIM_SCENARIO is read at each nvmlInit and nvmlDeviceGetCount:
 *   ok | no_driver (init fails) | gone (count fails) | lost (GPU 1 dies after its power was read) | xid | blank */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, UNINITIALIZED = 1, NOT_SUPPORTED = 3, DRIVER_NOT_LOADED = 9, TIMEOUT = 10, GPU_IS_LOST = 15 };
typedef struct { unsigned index; } device;
static device devices[2] = {{0}, {1}};
static char scenario[32] = "ok";
static int initialised, power_read, xid_told;

static void load(void) {
    const char *path = getenv("NVML_SHIM_SCENARIO");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) return;
    if (fscanf(file, "%31s", scenario) != 1) strcpy(scenario, "ok");
    fclose(file);
    power_read = 0;
}
static int is(const char *name) { return strcmp(scenario, name) == 0; }
static int lost(const device *d) { return is("lost") && d->index == 1 && power_read; }
#define ALIVE(d) if (lost(d)) return GPU_IS_LOST

int nvmlInitWithFlags(unsigned flags) { (void)flags; load(); if (is("no_driver")) return DRIVER_NOT_LOADED; initialised = 1; return OK; }
int nvmlShutdown(void) { initialised = 0; return OK; }
int nvmlSystemGetDriverVersion(char *out, unsigned n) { snprintf(out, n, "570.00"); return OK; }
int nvmlDeviceGetCount_v2(unsigned *out) {
    if (!initialised) return UNINITIALIZED;
    load();
    if (is("gone")) return UNINITIALIZED;
    *out = 2;
    return OK;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned i, device **out) { *out = &devices[i]; return OK; }
int nvmlDeviceGetUUID(device *d, char *out, unsigned n) { ALIVE(d); snprintf(out, n, "GPU-%u", d->index); return OK; }
int nvmlDeviceGetName(device *d, char *out, unsigned n) { ALIVE(d); snprintf(out, n, "NVIDIA \"Shim\" 80GB"); return OK; }
int nvmlDeviceGetMinorNumber(device *d, unsigned *out) { ALIVE(d); *out = d->index + 4; return OK; }
typedef struct { char legacy[16]; unsigned domain, bus, dev, id, subsystem; char bus_id[32]; } pci;
int nvmlDeviceGetPciInfo_v3(device *d, pci *out) { ALIVE(d); snprintf(out->bus_id, 32, "00000000:0%u:00.0", d->index); return OK; }
int nvmlDeviceGetPowerUsage(device *d, unsigned *out) {
    ALIVE(d);
    *out = is("blank") ? 0xFFFFFFFFu : 123456u;
    if (d->index == 1) power_read = 1;
    return OK;
}
int nvmlDeviceGetTemperature(device *d, unsigned sensor, unsigned *out) { (void)sensor; ALIVE(d); *out = 41; return OK; }
int nvmlDeviceGetClockInfo(device *d, unsigned kind, unsigned *out) { ALIVE(d); *out = kind == 1 ? 1410 : 1593; return OK; }
int nvmlDeviceGetTotalEnergyConsumption(device *d, unsigned long long *out) { ALIVE(d); *out = 5551899580ULL; return OK; }
int nvmlDeviceGetPcieThroughput(device *d, unsigned kind, unsigned *out) { ALIVE(d); *out = kind ? 200 : 100; return OK; }
int nvmlDeviceGetPcieReplayCounter(device *d, unsigned *out) { (void)out; ALIVE(d); return NOT_SUPPORTED; }
typedef struct { unsigned gpu, memory; } rates;
int nvmlDeviceGetUtilizationRates(device *d, rates *out) { ALIVE(d); out->gpu = d->index ? 0 : 97; out->memory = 12; return OK; }
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2;
int nvmlDeviceGetMemoryInfo_v2(device *d, memory_v2 *out) {
    ALIVE(d);
    out->total = 81920ULL << 20; out->reserved = 608ULL << 20; out->free = 45459ULL << 20; out->used = 35853ULL << 20;
    return OK;
}
typedef struct {
    unsigned field, scope; long long at, latency; int type, status;
    union { double d; unsigned u; unsigned long long ull; long long sll; } value;
} field_value;
int nvmlDeviceGetFieldValues(device *d, int n, field_value *v) {
    ALIVE(d);
    for (int i = 0; i < n; i++) {
        v[i].status = OK;
        v[i].type = 3;
        memset(&v[i].value, 0xAB, sizeof v[i].value); /* rubbish where the status is not OK: must not be read */
        if (v[i].field == 91) { v[i].type = 1; v[i].value.u = 2; }
        else if (v[i].field < 138 || v[i].field > 141) v[i].status = NOT_SUPPORTED;
        else if (d->index == 1 && v[i].field >= 140) v[i].status = NOT_SUPPORTED;
        else v[i].value.ull = v[i].scope == 0xFFFFFFFFu ? (v[i].field - 130ULL) * 1000 : v[i].scope + 1ULL;
    }
    return OK;
}
typedef struct { device *d; unsigned long long type, data; unsigned gi, ci; } event;
int nvmlEventSetCreate(void **out) { *out = &scenario; return OK; }
int nvmlEventSetFree(void *set) { (void)set; return OK; }
int nvmlDeviceRegisterEvents(device *d, unsigned long long types, void *set) { (void)types; (void)set; return d->index ? NOT_SUPPORTED : OK; }
int nvmlEventSetWait_v2(void *set, event *out, unsigned ms) {
    (void)set; (void)ms;
    if (!is("xid") || xid_told) return TIMEOUT;
    xid_told = 1;
    out->d = &devices[0]; out->type = 8; out->data = 79;
    return OK;
}
