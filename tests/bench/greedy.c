/*
 * Reference of the simulation benchmark: a page-mapping FTL with greedy garbage collection and nothing else. No
 * NAND rules, no emulated time, no spare bytes, no faults, no wear: forward map, reverse map, valid counts, and full blocks on one
 * list per valid count.
 *
 *     greedy BLOCKS PAGES_PER_BLOCK LOGICAL_BLOCKS WARMUP_WRITES WRITES SEED
 *
 * prints "WRITES CPU_SECONDS WRITE_AMPLIFICATION" of the measured writes.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define NONE UINT32_MAX
#define KEPT_FREE 4 /* free blocks that collection keeps */

static uint32_t blocks, pages, logical;
static uint32_t *l2p, *p2l;       /* forward and reverse map */
static uint32_t *valid;           /* live pages per block */
static uint32_t *next, *prev;     /* neighbours on a block's list */
static uint32_t *head;            /* first block per valid count */
static uint8_t *listed;           /* whether a block is on a list */
static uint32_t *free_list, free_count;
static uint32_t frontier, frontier_end; /* next page to program, end of its block */
static uint64_t programs, rng;

static uint64_t random64(void)
{
    uint64_t z = (rng += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static uint32_t random_page(void)
{
    return (uint32_t)(((unsigned __int128)random64() * logical) >> 64);
}

static void list_add(uint32_t block)
{
    uint32_t v = valid[block];
    next[block] = head[v];
    prev[block] = NONE;
    if (head[v] != NONE)
        prev[head[v]] = block;
    head[v] = block;
    listed[block] = 1;
}

static void list_remove(uint32_t block)
{
    if (prev[block] != NONE)
        next[prev[block]] = next[block];
    else
        head[valid[block]] = next[block];
    if (next[block] != NONE)
        prev[next[block]] = prev[block];
    listed[block] = 0;
}

static void invalidate(uint32_t page)
{
    uint32_t block = page / pages;
    p2l[page] = NONE;
    if (listed[block]) {
        list_remove(block);
        valid[block]--;
        list_add(block);
    } else {
        valid[block]--;
    }
}

static void program(uint32_t lpn)
{
    if (frontier == frontier_end) {
        if (frontier_end)
            list_add(frontier_end / pages - 1);
        frontier = free_list[--free_count] * pages;
        frontier_end = frontier + pages;
    }
    l2p[lpn] = frontier;
    p2l[frontier] = lpn;
    valid[frontier_end / pages - 1]++;
    frontier++;
    programs++;
}

static void collect(void)
{
    uint32_t count = 0, block, page;
    while (head[count] == NONE)
        count++;
    block = head[count];
    list_remove(block);
    for (page = block * pages; page < (block + 1) * pages; page++) {
        uint32_t lpn = p2l[page];
        if (lpn == NONE)
            continue;
        p2l[page] = NONE;
        program(lpn);
    }
    valid[block] = 0;
    free_list[free_count++] = block;
}

static void host_write(uint32_t lpn)
{
    while (free_count < KEPT_FREE)
        collect();
    if (l2p[lpn] != NONE)
        invalidate(l2p[lpn]);
    program(lpn);
}

static uint32_t *table(uint64_t entries, uint32_t value)
{
    uint32_t *t = malloc(entries * sizeof *t);
    if (!t)
        exit(1);
    for (uint64_t i = 0; i < entries; i++)
        t[i] = value;
    return t;
}

int main(int argc, char **argv)
{
    if (argc != 7)
        return 2;
    blocks = atoi(argv[1]);
    pages = atoi(argv[2]);
    logical = atoi(argv[3]) * pages;
    uint64_t warmup = strtoull(argv[4], 0, 10), writes = strtoull(argv[5], 0, 10);
    rng = strtoull(argv[6], 0, 10);
    l2p = table(logical, NONE);
    p2l = table((uint64_t)blocks * pages, NONE);
    valid = table(blocks, 0);
    next = table(blocks, NONE);
    prev = table(blocks, NONE);
    head = table(pages + 1, NONE);
    free_list = table(blocks, 0);
    listed = calloc(blocks, 1);
    for (uint32_t b = 0; b < blocks; b++)
        free_list[free_count++] = blocks - 1 - b;
    for (uint32_t lpn = 0; lpn < logical; lpn++)
        host_write(lpn);
    for (uint64_t i = 0; i < warmup; i++)
        host_write(random_page());
    programs = 0;
    clock_t begin = clock();
    for (uint64_t i = 0; i < writes; i++)
        host_write(random_page());
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    printf("%llu %.6f %.4f\n", (unsigned long long)writes, seconds, (double)programs / writes);
    return 0;
}
