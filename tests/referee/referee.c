/* A second simulator of five flash translation layers, written from the papers and not from ftld.
 * It counts operations and keeps no data.
 *
 *     referee SCHEME pages=N blocks=N logical=N threshold=N [passes=N] [KEY=N...] < requests
 *
 * A request is a line `R first count` or `W first count`, in pages, of a file. They are served
 * `passes` times (0) and then once more, measured; one JSON object has the counts. `blocks` are
 * good blocks, `threshold` those that collection keeps free. Further keys, and their defaults:
 * `apart` (0: copies and host writes share a block), `area` (128), `cache` (14), `entries` of a
 * mapping page (512), `cached` (8192), `log` (128), `late` (0).
 */

/* Rules that the papers leave open. Counts depend on them. They were found by comparing with ftld and reading its code, so equal counts
 * are no evidence for the rules themselves. No paper here contradicts them, except where a rule says so. The paper on DFTL was not
 * available: LazyFTL's and MNFTL's describe it.
 *
 * - all: a free block is taken only if more than `threshold` are free, else victims are collected first; it is the one with the
 *   fewest erases, of several the first
 * - all: of victims with equally few valid pages, the one that had so few first; a block that LazyFTL converts counts from then on
 * - page map, DFTL: the pages of a request that go to one block are programmed before the old ones become invalid
 * - LazyFTL: room is made, then a block is converted if the areas are full, then room is made again; the oldest of the cheapest
 *   blocks is converted
 * - DFTL: after room was made, all pages of a request that go to one block are looked up, then programmed; then the cache shrinks to
 *   its size
 * - DFTL: an entry leaves the cache, then room is made for its mapping page, then the page is written if it still lacks any entry
 * - DFTL: a second use protects an entry, half of them at most; a mapping page that is written gets all entries that it lacked
 * - DFTL: where there is no mapping page yet, a read caches nothing, and an entry is cached behind the program
 * - MNFTL: `threshold` blocks are kept free, as in all schemes; the paper keeps none
 * - MNFTL: a block without valid pages goes first, as the least valid of the device; else one of a longest list, until that is
 *   shorter
 * - MNFTL: of longest lists, the one whose newest block is the oldest; in it, the block with the fewest valid pages, of several the
 *   oldest
 * - FAST: a page that does not continue the sequential block of its logical block merges that, and goes to a random one
 * - FAST: random blocks may fill the log while there is no sequential one; a partial merge without a copy is a switch
 * - requests: replay cuts them at multiples of 512 KiB, or at block ends; a part of a page is a request of its own
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint32_t u32;
typedef uint64_t u64;
#define NONE UINT32_MAX          /* no page, no block; the owner of an erased page */
#define INVALID (UINT32_MAX - 1) /* the owner of an invalid page */

enum role { FREE, DATA, MAP, AREA };
enum count { HOST_READS, HOST_PROGRAMS, COPIES, MAP_PROGRAMS, MAP_READS, MAP_COPIES, ERASES, CONVERSIONS, SWITCHES, PARTIALS, FULLS, COUNTS };
static const char *const NAMES[COUNTS] = { "host_reads", "host_programs", "copies", "map_programs", "map_reads", "map_copies", "erases",
    "conversions", "switch_merges", "partial_merges", "full_merges" };
static u64 counts[COUNTS];

struct scheme {
    const char *name;
    void (*read)(u32 first, u32 count), (*write)(u32 first, u32 count);
    /* Collection: the victim, a copy of a page, and what follows the copies. */
    u32 (*victim)(void);
    void (*copy)(u32 lpn), (*copied)(void);
};
static const struct scheme *scheme;

static void check(int good, const char *what) {
    if (good) return;
    fprintf(stderr, "referee: %s\n", what);
    exit(1);
}

/* ---- flash ---- */
static u32 P, B, L, threshold, free_blocks;
static u32 *owner;                 /* of a page: its logical or mapping page, or as above */
static u32 *valid, *used, *erases; /* of a block */
static u64 *opened, *since, now;   /* of a block: when it was taken, and when it got as few valid pages as it has */
static uint8_t *role;

/* Keys order by a small number, then by a time. */
#define KEY(number, time) ((u64)(number) << 40 | (time))
#define NEVER UINT64_MAX

/* Returns the one of `n` with the lowest key. */
static u32 pick(u32 n, u64 (*key)(u32 i)) {
    u32 best = NONE;
    u64 lowest = NEVER;
    for (u32 i = 0; i < n; i++) {
        u64 other = key(i);
        if (other >= lowest) continue;
        best = i;
        lowest = other;
    }
    check(best != NONE, "no block is left");
    return best;
}

static u64 wear_key(u32 b) { return role[b] == FREE ? erases[b] : NEVER; }

static u32 take(enum role as) {
    u32 block = pick(B, wear_key);
    free_blocks--;
    role[block] = (uint8_t)as;
    opened[block] = ++now;
    return block;
}

static void erase(u32 block) {
    check(valid[block] == 0, "a block with valid pages is erased");
    memset(owner + (size_t)block * P, 0xff, P * sizeof *owner);
    used[block] = 0;
    role[block] = FREE;
    erases[block]++;
    free_blocks++;
    counts[ERASES]++;
}

static void program_at(u32 page, u32 who) {
    u32 block = page / P;
    check(owner[page] == NONE, "a page is programmed twice");
    owner[page] = who;
    valid[block]++;
    if (++used[block] == P) since[block] = ++now;
}

/* Programs the next page of an open block, which is NONE once that is full. */
static u32 program(u32 *block, enum role as, u32 who) {
    if (*block == NONE) *block = take(as);
    u32 page = *block * P + used[*block];
    program_at(page, who);
    if (used[*block] == P) *block = NONE;
    return page;
}

static void invalidate(u32 page) {
    if (page == NONE) return;
    check(owner[page] < INVALID, "a page is invalidated that is not valid");
    owner[page] = INVALID;
    valid[page / P]--;
    if (used[page / P] == P) since[page / P] = ++now;
}

/* ---- mapping pages on flash ---- */
static u32 E, V, *gmd;      /* entries of a mapping page, mapping pages, and where they are */
static u32 *seen, mark = 1; /* of a mapping page: the last search that met it */
static u32 cmb = NONE;

static void map_copy(u32 v) {
    counts[MAP_COPIES]++;
    gmd[v] = program(&cmb, MAP, v);
}

static void map_write(u32 v) {
    u32 old = gmd[v];
    counts[MAP_PROGRAMS]++;
    gmd[v] = program(&cmb, MAP, v);
    invalidate(old);
}

/* ---- collection ---- */
static u64 greedy_key(u32 b) { return (role[b] == DATA || role[b] == MAP) && used[b] == P ? KEY(valid[b], since[b]) : NEVER; }

/* The full block of data or mapping pages with the fewest valid ones. */
static u32 fewest(void) { return pick(B, greedy_key); }

static void make_room(void) {
    while (free_blocks <= threshold) {
        u32 block = scheme->victim();
        check(valid[block] < P, "no victim has an invalid page");
        for (u32 page = block * P; page < block * P + P; page++) {
            if (owner[page] >= INVALID) continue;
            (role[block] == MAP ? map_copy : scheme->copy)(owner[page]);
            invalidate(page);
        }
        if (scheme->copied) scheme->copied();
        erase(block);
    }
}

/* ---- page map in RAM ---- */
static u32 *map, apart, host = NONE, cold = NONE;

static void ram_copy(u32 lpn) {
    counts[COPIES]++;
    map[lpn] = program(apart ? &cold : &host, DATA, lpn);
}

/* Returns how many of the next pages of the host go to one block, for which there is room. */
static u32 run(u32 count) {
    if (host == NONE) make_room();
    u32 room = host == NONE ? P : P - used[host];
    return count < room ? count : room;
}

static void program_run(u32 first, u32 count) {
    u32 page = NONE;
    for (u32 i = 0; i < count; i++) page = program(&host, DATA, first + i);
    for (u32 i = 0; i < count; i++) {
        invalidate(map[first + i]);
        map[first + i] = page + 1 - count + i;
    }
    counts[HOST_PROGRAMS] += count;
}

static void ram_write(u32 first, u32 count) {
    for (u32 n; count > 0; first += n, count -= n) program_run(first, n = run(count));
}

static void ram_read(u32 first, u32 count) {
    for (u32 i = 0; i < count; i++) counts[HOST_READS] += map[first + i] != NONE;
}

/* ---- lists: DFTL's cache, LazyFTL's cache, and the entries that its mapping pages lack ---- */
static struct list { u32 newest, oldest, length; } *lists;
static u32 *newer, *older, *listed; /* of a key; listed: 1 + its list, or 0 */

static void leave(u32 key) {
    struct list *l = &lists[listed[key] - 1];
    *(newer[key] == NONE ? &l->newest : &older[newer[key]]) = older[key];
    *(older[key] == NONE ? &l->oldest : &newer[older[key]]) = newer[key];
    l->length--;
    listed[key] = 0;
}

static void join(u32 key, u32 list) {
    struct list *l = &lists[list];
    newer[key] = NONE;
    older[key] = l->newest;
    *(l->newest == NONE ? &l->oldest : &newer[l->newest]) = key;
    l->newest = key;
    l->length++;
    listed[key] = list + 1;
}

/* ---- LazyFTL (SIGMOD 2011): Algorithms 1 to 3 ---- */
/* of a logical page: where the UMT and the GMT have it, and the invalidate flag; the update flag: a list has it */
static u32 *umt, *gmt;
static uint8_t *stale;
static u32 area, area_limit, pages_cached, late, cub = NONE, ccb = NONE;

/* The GMT is cached in whole pages: list V. */
static void load(u32 v) {
    if (listed[L + v]) leave(L + v);
    else if (gmd[v] != NONE) counts[MAP_READS]++;
    join(L + v, V);
    if (lists[V].length > pages_cached) leave(lists[V].oldest);
}

/* Counts and marks the mapping pages that a conversion of the block writes. */
static u32 cost(u32 block) {
    u32 n = 0;
    mark++;
    for (u32 page = block * P; page < block * P + P; page++) {
        u32 lpn = owner[page];
        if (lpn >= INVALID || !listed[lpn] || seen[lpn / E] == mark) continue;
        seen[lpn / E] = mark;
        n++;
    }
    return n;
}

static u64 conversion_key(u32 b) { return role[b] == AREA && used[b] == P ? KEY(cost(b), opened[b]) : NEVER; }

/* Algorithm 1 replaces the entries of a mapping page in their order, and then writes it. With `late`, it is written first, and the
 * pages that the entries named become invalid in the order in which these changed. */
static void update(u32 v) {
    load(v);
    if (late) map_write(v);
    for (u32 i = 0; i < E; i++) {
        u32 lpn = late ? lists[v].oldest : v * E + i;
        if (lpn >= L || !listed[lpn]) continue;
        if (stale[lpn]) invalidate(gmt[lpn]);
        stale[lpn] = 0;
        gmt[lpn] = umt[lpn];
        leave(lpn);
    }
    if (!late) map_write(v);
}

static void convert(void) {
    u32 block = pick(B, conversion_key);
    cost(block);
    for (u32 v = 0; v < V; v++)
        if (seen[v] == mark) update(v);
    for (u32 page = block * P; page < block * P + P; page++)
        if (owner[page] < INVALID) umt[owner[page]] = NONE;
    role[block] = DATA;
    since[block] = ++now;
    area--;
    counts[CONVERSIONS]++;
}

/* Programs a page in the area, where the UMT has it. */
static void lazy_program(u32 *block, u32 lpn) {
    umt[lpn] = program(block, AREA, lpn);
    if (!listed[lpn]) join(lpn, lpn / E);
}

static void lazy_copy(u32 lpn) {
    stale[lpn] = 0;
    if (umt[lpn] != NONE) return;
    if (ccb == NONE && area == area_limit) convert();
    area += ccb == NONE;
    lazy_program(&ccb, lpn);
    counts[COPIES]++;
}

static void lazy_write(u32 first, u32 count) {
    for (u32 lpn = first; lpn < first + count; lpn++) {
        if (cub == NONE) {
            for (make_room(); area == area_limit; make_room()) convert();
            area++;
        }
        u32 before = umt[lpn];
        lazy_program(&cub, lpn);
        counts[HOST_PROGRAMS]++;
        if (before == NONE) stale[lpn] = 1;
        else invalidate(before);
    }
}

static void lazy_read(u32 first, u32 count) {
    for (u32 lpn = first; lpn < first + count; lpn++) {
        if (umt[lpn] == NONE && gmd[lpn / E] == NONE) continue;
        if (umt[lpn] == NONE) load(lpn / E);
        counts[HOST_READS] += umt[lpn] != NONE || gmt[lpn] != NONE;
    }
}

/* ---- DFTL, as the LazyFTL and MNFTL papers describe it: a cache of single entries ---- */
enum { ONCE, AGAIN };  /* lists: entries used once, and again */
static uint8_t *dirty; /* of a logical page: the mapping page lacks its entry */
static u32 entries_cached;

/* Writes a mapping page with all the entries that it lacks, if any. */
static void write_back(u32 v) {
    u32 n = 0;
    for (u32 lpn = v * E; lpn < v * E + E && lpn < L; lpn++) {
        n += dirty[lpn];
        dirty[lpn] = 0;
    }
    if (n == 0) return;
    if (gmd[v] != NONE) counts[MAP_READS]++;
    map_write(v);
}

static void dftl_copy(u32 lpn) {
    ram_copy(lpn);
    dirty[lpn] = 1;
    if (!listed[lpn]) seen[lpn / E] = mark;
}

static void dftl_copied(void) {
    for (u32 v = 0; v < V; v++)
        if (seen[v] == mark) write_back(v);
    mark++;
}

static void lookup(u32 lpn) {
    if (!listed[lpn]) {
        if (gmd[lpn / E] == NONE) return;
        counts[MAP_READS]++;
        join(lpn, ONCE);
        return;
    }
    leave(lpn);
    join(lpn, AGAIN);
    if (lists[AGAIN].length <= entries_cached / 2) return;
    u32 last = lists[AGAIN].oldest;
    leave(last);
    join(last, ONCE);
}

static void evict(void) {
    while (lists[ONCE].length + lists[AGAIN].length > entries_cached) {
        u32 last = lists[ONCE].oldest;
        leave(last);
        if (!dirty[last]) continue;
        if (cmb == NONE) make_room();
        write_back(last / E);
    }
}

static void dftl_write(u32 first, u32 count) {
    for (u32 n; count > 0; first += n, count -= n) {
        n = run(count);
        for (u32 i = 0; i < n; i++) lookup(first + i);
        program_run(first, n);
        for (u32 lpn = first; lpn < first + n; lpn++) {
            if (!listed[lpn]) join(lpn, ONCE);
            dirty[lpn] = 1;
        }
        evict();
    }
}

static void dftl_read(u32 first, u32 count) {
    for (u32 i = 0; i < count; i++) lookup(first + i);
    ram_read(first, count);
    evict();
}

/* ---- MNFTL (DAC 2011): a list of blocks for a logical block, which its pages never leave ---- */
static u32 units, *home, *last, *length;   /* the logical block of a block; its newest block and their number */
static u32 shrinking = NONE, length_before; /* the logical block that is collected */

static void unit_program(u32 lpn) {
    u32 lbn = lpn / P, block = last[lbn];
    if (block != NONE && used[block] == P) block = NONE;
    length[lbn] += block == NONE;
    map[lpn] = program(&block, DATA, lpn);
    last[lbn] = map[lpn] / P;
    home[last[lbn]] = lbn;
}

static void unit_copy(u32 lpn) {
    counts[COPIES]++;
    unit_program(lpn);
}

static u64 length_key(u32 lbn) { return length[lbn] ? KEY(B - length[lbn], opened[last[lbn]]) : NEVER; }
static u64 unit_key(u32 b) { return home[b] == shrinking && used[b] == P ? KEY(valid[b], opened[b]) : NEVER; }

static u32 unit_victim(void) {
    u32 victim = fewest();
    if (valid[victim] > 0) {
        if (shrinking == NONE || length[shrinking] < length_before) shrinking = pick(units, length_key);
        length_before = length[shrinking];
        victim = pick(B, unit_key);
    }
    length[home[victim]]--;
    return victim;
}

static void unit_write(u32 first, u32 count) {
    for (u32 lpn = first; lpn < first + count; lpn++) {
        u32 newest = last[lpn / P];
        shrinking = NONE;
        if (newest == NONE || used[newest] == P) make_room();
        u32 before = map[lpn];
        unit_program(lpn);
        counts[HOST_PROGRAMS]++;
        invalidate(before);
    }
}

/* ---- FAST, as ROSE (IEEE TC 2011) and LazyFTL describe it: data blocks in place, log blocks ---- */
static u32 *data, sw = NONE, sw_lbn, rw = NONE, logs, log_limit;

/* Makes `block` the data block of a logical block: its pages that are elsewhere are copied to their places there. */
static void gather(u32 lbn, u32 block, enum count kind) {
    u64 before = counts[COPIES];
    for (u32 lpn = lbn * P; lpn < lbn * P + P && lpn < L; lpn++) {
        u32 from = map[lpn];
        if (from == NONE || from / P == block) continue;
        counts[COPIES]++;
        map[lpn] = block * P + lpn % P;
        program_at(map[lpn], lpn);
        invalidate(from);
    }
    if (data[lbn] != NONE) erase(data[lbn]);
    data[lbn] = block;
    role[block] = DATA;
    counts[kind == PARTIALS && counts[COPIES] == before ? SWITCHES : kind]++;
}

static void merge_sw(void) {
    u32 block = sw;
    if (block == NONE) return;
    sw = NONE;
    logs--;
    if (valid[block] == used[block]) {
        gather(sw_lbn, block, PARTIALS);
        return;
    }
    if (valid[block] > 0) gather(sw_lbn, take(DATA), FULLS);
    erase(block);
}

static u64 log_key(u32 b) { return role[b] == AREA && b != sw ? opened[b] : NEVER; }

static u32 take_log(void) {
    if (logs == log_limit) {
        u32 block = pick(B, log_key);
        for (u32 page = block * P; page < block * P + P; page++)
            if (owner[page] < INVALID) gather(owner[page] / P, take(DATA), FULLS);
        erase(block);
        if (rw == block) rw = NONE;
        logs--;
    }
    logs++;
    return take(AREA);
}

/* Returns the page of a log block that takes a page whose place is programmed. */
static u32 log_page(u32 lbn, u32 at) {
    if (at == 0 || (sw_lbn == lbn && sw != NONE && used[sw] != at)) merge_sw();
    if (at == 0) {
        sw = take_log();
        sw_lbn = lbn;
    }
    if (sw != NONE && sw_lbn == lbn) return sw * P + at;
    if (rw == NONE || used[rw] == P) rw = take_log();
    return rw * P + used[rw];
}

static void fast_write(u32 first, u32 count) {
    for (u32 lpn = first; lpn < first + count; lpn++) {
        u32 lbn = lpn / P;
        if (data[lbn] == NONE) data[lbn] = take(DATA);
        u32 page = data[lbn] * P + lpn % P;
        if (owner[page] != NONE) page = log_page(lbn, lpn % P);
        program_at(page, lpn);
        counts[HOST_PROGRAMS]++;
        invalidate(map[lpn]);
        map[lpn] = page;
    }
}

/* ---- a run ---- */
static const struct scheme SCHEMES[] = {
    { "pagemap", ram_read, ram_write, fewest, ram_copy, NULL },
    { "lazyftl", lazy_read, lazy_write, fewest, lazy_copy, NULL },
    { "dftl", dftl_read, dftl_write, fewest, dftl_copy, dftl_copied },
    { "mnftl", ram_read, unit_write, unit_victim, unit_copy, NULL },
    { "fast", ram_read, fast_write, NULL, NULL, NULL },
};

static char **options;

static u32 option(const char *key, u32 otherwise) {
    size_t end = strlen(key);
    for (char **word = options; *word; word++)
        if (!strncmp(*word, key, end) && (*word)[end] == '=') return (u32)atol(*word + end + 1);
    return otherwise;
}

static void *table(size_t entries, size_t bytes, int byte) {
    void *memory = malloc(entries * bytes + 1);
    check(memory != NULL, "out of memory");
    return memset(memory, byte, entries * bytes);
}

/* Allocates a table. Every byte is 0, or 0xff, which is NONE. */
#define TABLE(name, entries, byte) name = table(entries, sizeof *name, byte)

static void start(void) {
    P = option("pages", 64);
    B = free_blocks = option("blocks", 0);
    L = option("logical", 0);
    E = option("entries", 512);
    V = (L + E - 1) / E;
    units = (L + P - 1) / P;
    threshold = option("threshold", 4);
    apart = option("apart", 0);
    area_limit = option("area", 128);
    pages_cached = option("cache", 14);
    late = option("late", 0);
    entries_cached = option("cached", 8192);
    log_limit = option("log", 128);
    TABLE(owner, (size_t)P * B, 0xff);
    TABLE(valid, B, 0);
    TABLE(used, B, 0);
    TABLE(erases, B, 0);
    TABLE(opened, B, 0);
    TABLE(since, B, 0);
    TABLE(role, B, FREE);
    TABLE(gmd, V, 0xff);
    TABLE(seen, V, 0);
    TABLE(map, L, 0xff);
    TABLE(lists, V + 2, 0xff);
    for (u32 i = 0; i < V + 2; i++) lists[i].length = 0;
    TABLE(newer, L + V, 0);
    TABLE(older, L + V, 0);
    TABLE(listed, L + V, 0);
    TABLE(umt, L, 0xff);
    TABLE(gmt, L, 0xff);
    TABLE(stale, L, 0);
    TABLE(dirty, L, 0);
    TABLE(home, B, 0xff);
    TABLE(last, units, 0xff);
    TABLE(length, units, 0);
    TABLE(data, units, 0xff);
}

int main(int argc, char **argv) {
    for (size_t i = 0; argc > 1 && i < sizeof SCHEMES / sizeof *SCHEMES; i++)
        if (!strcmp(argv[1], SCHEMES[i].name)) scheme = &SCHEMES[i];
    check(scheme != NULL, "pagemap, lazyftl, dftl, mnftl or fast?");
    options = argv + 2;
    u32 passes = option("passes", 0);
    start();
    for (u32 pass = 0; pass <= passes; pass++) {
        char kind;
        u32 first, count;
        memset(counts, 0, sizeof counts);
        rewind(stdin);
        while (scanf(" %c %u %u", &kind, &first, &count) == 3) {
            check((kind == 'R' || kind == 'W') && count <= L && first <= L - count, "not a request of this device");
            (kind == 'R' ? scheme->read : scheme->write)(first, count);
        }
    }
    for (int i = 0; i < COUNTS; i++) printf("%s\"%s\": %llu", i ? ", " : "{", NAMES[i], (unsigned long long)counts[i]);
    puts("}");
    return 0;
}
