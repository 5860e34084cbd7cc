/* A libnvidia-ml.so.1 without a GPU: answers as the script named by FAKE_NVML says.
 *
 * The script has one setting a line:
 *   init CODE                          nvmlInit returns CODE
 *   devices N                          how many GPUs there are (UUIDs GPU-fake-0, GPU-fake-1, ...)
 *   util GPU MEMORY                    utilisation rates, in percent
 *   memory USED TOTAL                  bytes
 *   driver VERSION                     what the driver says of its own version (default 580.95.05)
 *   state POWER SM_CLOCK MEM_CLOCK TEMPERATURE REASONS GENERATION WIDTH PROCESSES
 *   limits SM_CLOCK GENERATION WIDTH   the highest of each (default 1980 5 16)
 *   field ID TYPE START STEP           a field value: START, then STEP more at each reading, wrapped to its TYPE
 *   gpm SM OCCUPANCY TENSOR DRAM       percent (below 0: not supported); without this line there is no GPM
 *   fault FUNCTION CODE [AFTER [GPU]]  FUNCTION (or * for all of a GPU) returns CODE from call number AFTER on,
 *                                      of one GPU or of all
 *   fieldfault ID CODE                 this field's own return code
 *   held B1 B2 ...                     memory of each process, bytes (default 1 MiB each)
 *   event GPU KIND DATA LOOK           at look number LOOK (from 1) for events there is this one
 *   eventkinds MASK                    which kinds of event can be had (default all)
 *
 * Calls are counted per GPU; every call of a GPU's function is appended to the file FAKE_NVML.log. Looks for events
 * are of no GPU and are not appended; a fault of theirs counts looks.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>


typedef uint64_t u64;
typedef union { double d; unsigned ui; unsigned long ul; u64 ull; int64_t sll; int si; unsigned short us; } Value;
typedef struct { uint32_t id, scope; int64_t stamp, latency; uint32_t type, code; Value value; } Field;
typedef struct { u64 total, free, used; } Memory;
typedef struct { unsigned version; u64 total, reserved, free, used; } Memory2;
typedef struct { unsigned pid; u64 used; unsigned gi, ci; } Process;
typedef struct { unsigned id, code; double value; char *names[3]; } Metric;
typedef struct { unsigned version, count; void *one, *two; Metric metrics[]; } MetricsGet;

typedef struct { int *gpu; u64 kind, data; unsigned gi, ci; } Event;

enum { GPUS = 16, MAX = 64 };
enum { INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, TIMEOUT = 10 };

static struct { char name[64]; int code; long after; int gpu; } faults[MAX];
static struct { unsigned id, type, code; u64 start, step; long reads[GPUS]; } fields[MAX];
static struct { char name[64]; long calls[GPUS]; } counts[MAX];
static int n_faults, n_fields, n_counts, n_gpus = 1, init_code, gpm_here;
static struct { int gpu; u64 kind, data; long look; } events[MAX];
static int n_events, n_held, watched[GPUS];
static long looks;
static u64 held[MAX], event_kinds = ~0UL;
static unsigned util[2], state[8], limits[3] = {1980, 5, 16};
static u64 memory[2];
static double gpm[4];
static char driver_version[64] = "580.95.05";
static int gpus[GPUS];
static long gpm_taken[GPUS];

static void script(void)
{
    char line[512], word[64];
    FILE *file = fopen(getenv("FAKE_NVML") ? getenv("FAKE_NVML") : "", "r");
    for (int i = 0; i < GPUS; i++) gpus[i] = i;
    while (file && fgets(line, sizeof line, file)) {
        int at = 0, more = 0;
        if (sscanf(line, "%63s%n", word, &at) != 1) continue;
        char *rest = line + at;
        if (!strcmp(word, "init")) sscanf(rest, "%d", &init_code);
        if (!strcmp(word, "devices")) sscanf(rest, "%d", &n_gpus);
        if (!strcmp(word, "driver")) sscanf(rest, "%63s", driver_version);
        if (!strcmp(word, "util")) sscanf(rest, "%u %u", &util[0], &util[1]);
        if (!strcmp(word, "memory")) sscanf(rest, "%lu %lu", &memory[0], &memory[1]);
        if (!strcmp(word, "eventkinds")) sscanf(rest, "%lu", &event_kinds);
        if (!strcmp(word, "held"))
            for (; sscanf(rest, "%lu%n", &held[n_held], &more) == 1; rest += more) n_held++;
        if (!strcmp(word, "event")) {
            sscanf(rest, "%d %lu %lu %ld", &events[n_events].gpu, &events[n_events].kind, &events[n_events].data,
                   &events[n_events].look);
            n_events++;
        }
        if (!strcmp(word, "state"))
            for (int i = 0; i < 8 && sscanf(rest, "%u%n", &state[i], &more) == 1; i++) rest += more;
        if (!strcmp(word, "limits")) sscanf(rest, "%u %u %u", &limits[0], &limits[1], &limits[2]);
        if (!strcmp(word, "gpm"))
            gpm_here = sscanf(rest, "%lf %lf %lf %lf", &gpm[0], &gpm[1], &gpm[2], &gpm[3]) == 4;
        if (!strcmp(word, "field")) {
            sscanf(rest, "%u %u %lu %lu", &fields[n_fields].id, &fields[n_fields].type, &fields[n_fields].start,
                   &fields[n_fields].step);
            n_fields++;
        }
        if (!strcmp(word, "fieldfault")) {
            sscanf(rest, "%u %u", &fields[n_fields].id, &fields[n_fields].code);
            n_fields++;
        }
        if (!strcmp(word, "fault")) {
            faults[n_faults].gpu = -1;
            sscanf(rest, "%63s %d %ld %d", faults[n_faults].name, &faults[n_faults].code, &faults[n_faults].after,
                   &faults[n_faults].gpu);
            n_faults++;
        }
    }
    if (file) fclose(file);
}

static void note(const char *name, int gpu)
{
    char path[4096];
    snprintf(path, sizeof path, "%s.log", getenv("FAKE_NVML"));
    FILE *file = fopen(path, "a");
    if (file) fprintf(file, "%s %d\n", name, gpu), fclose(file);
}

static long counted(const char *name, int gpu)
{
    int i = 0;
    while (i < n_counts && strcmp(counts[i].name, name)) i++;
    if (i == n_counts) strcpy(counts[n_counts++].name, name);
    return ++counts[i].calls[gpu];
}

/* Counts a call and tells with which code it must fail, if any. */
static int enter(const char *name, const int *handle)
{
    int gpu = *handle;
    long call = counted(name, gpu), all = counted("*", gpu);
    note(name, gpu);
    for (int i = 0; i < n_faults; i++) {
        int any = !strcmp(faults[i].name, "*");
        if (!any && strcmp(faults[i].name, name)) continue;
        if (faults[i].gpu >= 0 && faults[i].gpu != gpu) continue;
        if ((any ? all : call) > faults[i].after) return faults[i].code;
    }
    return 0;
}

#define ENTER(handle)                                  \
    do {                                               \
        int code = enter(__func__, handle);            \
        if (code) return code;                         \
    } while (0)

int nvmlInitWithFlags(unsigned flags) { (void)flags; script(); return init_code; }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { static char text[32]; sprintf(text, "fake error %d", code); return text; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = n_gpus; return 0; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, int **handle)
{
    if ((int)index >= n_gpus) return INVALID;
    *handle = &gpus[index];
    return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, int **handle)
{
    int gpu = -1;
    if (sscanf(uuid, "GPU-fake-%d", &gpu) != 1 || gpu < 0 || gpu >= n_gpus) return NOT_FOUND;
    *handle = &gpus[gpu];
    return 0;
}

int nvmlDeviceGetUUID(int *h, char *uuid, unsigned length)
{
    ENTER(h);
    snprintf(uuid, length, "GPU-fake-%d", *h);
    return 0;
}

/* Of what is asked once, before the looks: not among the calls that are counted for all. */
static int refused(const char *name, int gpu)
{
    for (int i = 0; i < n_faults; i++)
        if (!strcmp(faults[i].name, name) && (faults[i].gpu < 0 || faults[i].gpu == gpu)) return faults[i].code;
    return 0;
}

int nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    snprintf(version, length, "%s", driver_version);
    return refused(__func__, -1);
}

int nvmlDeviceGetName(int *h, char *name, unsigned length)
{
    snprintf(name, length, "NVIDIA Fake %d", *h);
    return refused(__func__, *h);
}

int nvmlDeviceGetEnforcedPowerLimit(int *h, unsigned *out)
{
    *out = 700000;
    return refused(__func__, *h);
}

int nvmlDeviceGetUtilizationRates(int *h, unsigned *out)
{
    ENTER(h);
    out[0] = util[0];
    out[1] = util[1];
    return 0;
}

int nvmlDeviceGetPowerUsage(int *h, unsigned *out) { ENTER(h); *out = state[0]; return 0; }

int nvmlDeviceGetClockInfo(int *h, unsigned type, unsigned *out)
{
    ENTER(h);
    *out = type == 1 ? state[1] : state[2];
    return 0;
}

int nvmlDeviceGetMaxClockInfo(int *h, unsigned type, unsigned *out)
{
    ENTER(h);
    if (type != 1) return NOT_SUPPORTED;
    *out = limits[0];
    return 0;
}

int nvmlDeviceGetTemperature(int *h, unsigned sensor, unsigned *out)
{
    ENTER(h);
    (void)sensor;
    *out = state[3];
    return 0;
}

int nvmlDeviceGetCurrentClocksEventReasons(int *h, u64 *out) { ENTER(h); *out = state[4]; return 0; }
int nvmlDeviceGetCurrPcieLinkGeneration(int *h, unsigned *out) { ENTER(h); *out = state[5]; return 0; }
int nvmlDeviceGetCurrPcieLinkWidth(int *h, unsigned *out) { ENTER(h); *out = state[6]; return 0; }
int nvmlDeviceGetMaxPcieLinkGeneration(int *h, unsigned *out) { ENTER(h); *out = limits[1]; return 0; }
int nvmlDeviceGetMaxPcieLinkWidth(int *h, unsigned *out) { ENTER(h); *out = limits[2]; return 0; }

int nvmlDeviceGetMemoryInfo(int *h, Memory *out)
{
    ENTER(h);
    *out = (Memory){memory[1], memory[1] - memory[0], memory[0]};
    return 0;
}

int nvmlDeviceGetMemoryInfo_v2(int *h, Memory2 *out)
{
    ENTER(h);
    *out = (Memory2){out->version, memory[1], 0, memory[1] - memory[0], memory[0]};
    return 0;
}

int nvmlDeviceGetFieldValues(int *h, int count, Field *values)
{
    ENTER(h);
    for (int v = 0; v < count; v++) {
        values[v].code = NOT_SUPPORTED;
        for (int i = 0; i < n_fields; i++) {
            if (fields[i].id != values[v].id) continue;
            values[v].code = fields[i].code;
            values[v].type = fields[i].type;
            u64 value = fields[i].start + fields[i].step * fields[i].reads[*h]++;
            if (fields[i].type == 1) values[v].value.ui = (unsigned)value;
            else values[v].value.ull = value;
        }
    }
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(int *h, unsigned *count, Process *out)
{
    ENTER(h);
    unsigned here = state[7], room = *count;
    *count = here;
    if (room < here) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < here; i++) out[i] = (Process){1000 + i, n_held ? held[i % n_held] : 1 << 20, 0, 0};
    return 0;
}

int nvmlGpmQueryDeviceSupport(int *h, unsigned *support) { ENTER(h); support[1] = gpm_here; return 0; }
int nvmlGpmSampleAlloc(long **sample) { *sample = calloc(1, sizeof(long)); return 0; }

int nvmlGpmSampleGet(int *h, long *sample)
{
    ENTER(h);
    *sample = ++gpm_taken[*h];
    return 0;
}

int nvmlEventSetCreate(int **set) { *set = watched; return 0; }
int nvmlDeviceGetSupportedEventTypes(int *h, u64 *kinds) { ENTER(h); *kinds = event_kinds; return 0; }

int nvmlDeviceRegisterEvents(int *h, u64 kinds, int *set)
{
    ENTER(h);
    if (kinds & ~event_kinds) return NOT_SUPPORTED;
    set[*h] = 1;
    return 0;
}

int nvmlEventSetWait_v2(int *set, Event *out, unsigned timeout)
{
    /* Waiting would hold the sampler up. */
    if (timeout) return INVALID;
    looks++;
    for (int i = 0; i < n_faults; i++)
        if (!strcmp(faults[i].name, __func__) && looks > faults[i].after) return faults[i].code;
    for (int i = 0; i < n_events; i++) {
        if (!events[i].look || events[i].look > looks || !set[events[i].gpu]) continue;
        *out = (Event){&gpus[events[i].gpu], events[i].kind, events[i].data, ~0U, ~0U};
        events[i].look = 0;
        return 0;
    }
    return TIMEOUT;
}

int nvmlGpmMetricsGet(MetricsGet *request)
{
    static const unsigned ids[] = {2, 3, 5, 10};
    /* The first sample must be the one taken just before the second. */
    if (*(long *)request->one + 1 != *(long *)request->two) return INVALID;
    for (unsigned m = 0; m < request->count; m++) {
        request->metrics[m].code = NOT_SUPPORTED;
        for (int i = 0; i < 4; i++)
            if (request->metrics[m].id == ids[i] && !(gpm[i] < 0)) {
                request->metrics[m].code = 0;
                request->metrics[m].value = gpm[i];
            }
    }
    return 0;
}
