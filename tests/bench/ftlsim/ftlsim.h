/*
 * What runsim_greedy.c of sssl-ftlsim wants to know of its surroundings. There this is a part of a Python extension; here
 * nobody listens to its statistics.
 */
#pragma once

/* A simulated device, as its driver sees it. */
struct runsim {
    void *private_data;
    void (*step)(void *device, int address);
    int (*get_physpage)(void *device, int block, int page);
};

static inline void runsim_stats_enter(struct runsim *device, int block)
{
    (void)device, (void)block;
}

static inline void runsim_stats_write(struct runsim *device, int address, int block, int page)
{
    (void)device, (void)address, (void)block, (void)page;
}
