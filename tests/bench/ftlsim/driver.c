/*
 * Runs the greedy page map of sssl-ftlsim (Desnoyers, github.com/pjd-nu/sssl-ftlsim), the public yardstick of the simulation
 * benchmark, on the load of greedy.c. Its sources stay in a clone of the reader's; sim.py compiles both together.
 *
 *     ftlsim BLOCKS PAGES_PER_BLOCK LOGICAL_BLOCKS WARMUP_WRITES WRITES SEED
 *
 * prints "WRITES CPU_SECONDS WRITE_AMPLIFICATION" of the measured writes.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "ftlsim.h"
#include "runsim.h"

#define KEPT_FREE 4 /* free blocks that collection keeps */

static uint64_t rng;

static uint64_t random64(void)
{
    uint64_t z = (rng += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static void write_at_random(struct greedy *device, uint64_t pages, uint64_t writes)
{
    for (uint64_t i = 0; i < writes; i++)
        device->handle.step(device, (int)(((unsigned __int128)random64() * pages) >> 64));
}

/* What the library calls when it collects; only its statistics would use it. */
void runsim_stats_exit(struct runsim *device, int valid, int block)
{
    (void)device, (void)valid, (void)block;
}

int main(int argc, char **argv)
{
    if (argc != 7)
        return 2;
    int blocks = atoi(argv[1]), pages = atoi(argv[2]), logical = atoi(argv[3]);
    uint64_t warmup = strtoull(argv[4], 0, 10), writes = strtoull(argv[5], 0, 10);
    rng = strtoull(argv[6], 0, 10);
    struct greedy *device = greedy_new(blocks, logical, pages); /* written once from end to end */
    device->target_free = KEPT_FREE;
    write_at_random(device, (uint64_t)logical * pages, warmup);
    device->int_writes = device->ext_writes = 0;
    clock_t before = clock();
    write_at_random(device, (uint64_t)logical * pages, writes);
    double seconds = (double)(clock() - before) / CLOCKS_PER_SEC;
    printf("%llu %f %f\n", (unsigned long long)writes, seconds, (double)device->int_writes / device->ext_writes);
    return 0;
}
