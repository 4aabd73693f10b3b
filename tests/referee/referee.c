/* A second simulator of five flash translation layers, written from the papers and not from ftld.
 * It counts operations and keeps no data.
 *
 *     referee SCHEME pages=N blocks=N logical=N threshold=N [passes=N] [KEY=N...] < requests
 *
 * A request is a line `R first count` or `W first count`, in pages. They are served `passes` times
 * (0) and then once more, measured; one JSON object has the counts. `blocks` are good blocks,
 * `threshold` those that collection keeps free. Further keys, and their defaults: `apart` (0:
 * copies and host writes share a block), `area` (128), `cache` (14), `entries` of a mapping page
 * (512), `cached` (8192), `log` (128).
 *
 * The papers leave open what follows. Counts depend on it, so it was found by comparing with ftld,
 * and is the rule here:
 *
 * - A block is taken only if more than `threshold` are free, else victims are collected first. It
 *   is the free block with the fewest erases.
 * - Of victims with equally few valid pages, the one that had so few first. A block that LazyFTL
 *   converts counts from then on.
 * - The pages of a request that go to one block are programmed before the old ones become invalid.
 *   DFTL evicts behind them, too, and looks entries up after it made room.
 * - LazyFTL makes room, then converts while its area is full, and makes room again. The oldest of
 *   the cheapest blocks is converted. A conversion writes a mapping page, then invalidates the old
 *   one, then the data pages that it supersedes.
 * - DFTL: a second use protects an entry, half of them at most. A mapping page that is written
 *   gets all entries that it lacked. A read where there is no mapping page yet caches nothing.
 * - MNFTL: a block without valid pages goes first. Else, of the longest lists, the one whose
 *   newest block was the oldest when its length changed last; a list that is as long after a
 *   collection as before stays where it is.
 * - FAST: first writes go to the data block. A page that does not continue the sequential block of
 *   its logical block merges that, and goes to a random one. Random blocks may fill the log while
 *   there is no sequential one. A partial merge without a copy is a switch.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint32_t u32;
typedef uint64_t u64;
#define NONE UINT32_MAX

enum role { FREE, DATA, MAP, AREA };
enum count { HOST_READS, HOST_PROGRAMS, COPIES, MAP_PROGRAMS, MAP_READS, MAP_COPIES, ERASES, CONVERSIONS, SWITCHES, PARTIALS, FULLS, COUNTS };
static const char *const NAMES[COUNTS] = { "host_reads", "host_programs", "copies", "map_programs", "map_reads", "map_copies", "erases",
    "conversions", "switch_merges", "partial_merges", "full_merges" };
static u64 counts[COUNTS];

/* ---- options: KEY=NUMBER ---- */
static int words;
static char **word;

static u32 option(const char *key, u32 otherwise) {
    size_t length = strlen(key);
    for (int i = 0; i < words; i++)
        if (!strncmp(word[i], key, length) && word[i][length] == '=') return (u32)atol(word[i] + length + 1);
    return otherwise;
}

static void check(int good, const char *what) {
    if (good) return;
    fprintf(stderr, "referee: %s\n", what);
    exit(1);
}

static void *table(size_t entries, size_t bytes, int byte) {
    void *memory = malloc(entries * bytes + 1);
    check(memory != NULL, "out of memory");
    return memset(memory, byte, entries * bytes);
}

#define TABLE(name, entries, byte) name = table(entries, sizeof *name, byte)

/* ---- flash ---- */
static u32 P, B, L, threshold, free_blocks;
/* of a page: its logical or mapping page; NONE if it is not valid */
static u32 *owner;
static u32 *valid, *used, *erases;  /* of a block */
/* of a block: when it was taken, and when it got as few valid pages as it has */
static u64 *opened, *since, now;
static uint8_t *role;

struct stream { u32 block; enum role role; };
static struct stream host = { NONE, DATA }, copy = { NONE, DATA }, cub = { NONE, AREA }, ccb = { NONE, AREA }, cmb = { NONE, MAP };

static u32 take(enum role as) {
    u32 block = NONE;
    for (u32 b = 0; b < B; b++)
        if (role[b] == FREE && (block == NONE || erases[b] < erases[block])) block = b;
    check(block != NONE, "no free block");
    free_blocks--;
    role[block] = (uint8_t)as;
    opened[block] = ++now;
    return block;
}

static void erase(u32 block) {
    check(valid[block] == 0, "a block with valid pages is erased");
    used[block] = 0;
    role[block] = FREE;
    erases[block]++;
    free_blocks++;
    counts[ERASES]++;
}

/* Programs the next page of a stream, which has no block once that is full. */
static u32 program(struct stream *s, u32 who) {
    if (s->block == NONE) s->block = take(s->role);
    u32 block = s->block, page = block * P + used[block]++;
    owner[page] = who;
    valid[block]++;
    if (used[block] == P) {
        since[block] = ++now;
        s->block = NONE;
    }
    return page;
}

static void invalidate(u32 page) {
    if (page == NONE) return;
    check(owner[page] != NONE, "an invalid page is invalidated");
    owner[page] = NONE;
    valid[page / P]--;
    if (used[page / P] == P) since[page / P] = ++now;
}

/* The full block of data or mapping pages with the fewest valid ones. */
static u32 fewest(void) {
    u32 best = NONE;
    for (u32 b = 0; b < B; b++) {
        if ((role[b] != DATA && role[b] != MAP) || used[b] < P) continue;
        if (best == NONE || valid[b] < valid[best] || (valid[b] == valid[best] && since[b] < since[best])) best = b;
    }
    check(best != NONE && valid[best] < P, "no victim");
    return best;
}

/* ---- page map in RAM ---- */
static u32 *map, *superseded, waiting, apart;

static void ram_start(void) {
    TABLE(map, L, 0xff);
    TABLE(superseded, P, 0);
}

/* The old pages of those that were programmed since become invalid. */
static void settle(void) {
    for (u32 i = 0; i < waiting; i++) invalidate(superseded[i]);
    waiting = 0;
}

static void supersede(u32 lpn, u32 page) {
    counts[HOST_PROGRAMS]++;
    superseded[waiting++] = map[lpn];
    map[lpn] = page;
    if (used[page / P] == P) settle();
}

static void ram_collect(void) {
    u32 victim = fewest();
    for (u32 i = victim * P; i < victim * P + P; i++) {
        u32 lpn = owner[i];
        if (lpn == NONE) continue;
        counts[COPIES]++;
        map[lpn] = program(apart ? &copy : &host, lpn);
        invalidate(i);
    }
    erase(victim);
}

static void ram_write(u32 lpn) {
    if (host.block == NONE)
        while (free_blocks <= threshold) ram_collect();
    supersede(lpn, program(&host, lpn));
}

static void ram_read(u32 lpn) {
    if (map[lpn] != NONE) counts[HOST_READS]++;
}

/* ---- LazyFTL (SIGMOD 2011): Algorithms 1 to 3 ---- */
static u32 E, V;                /* entries of a mapping page, mapping pages */
/* the page of a logical page in the area; of one in mapping pages; of a mapping page */
static u32 *umt, *gmt, *gmd;
/* flags of a page in the area: the GMT lacks its entry; the page that the GMT has is to be invalidated */
static uint8_t *update, *stale;
/* changes: of a block, by mapping page */
static u32 area, area_limit, *cached, cached_count, cached_limit, *cost, *changes;

static void map_start(void) {
    E = option("entries", 512);
    V = (L + E - 1) / E;
    TABLE(gmd, V, 0xff);
}

static void lazy_start(void) {
    map_start();
    TABLE(umt, L, 0xff);
    TABLE(gmt, L, 0xff);
    TABLE(update, (size_t)P * B, 0);
    TABLE(stale, (size_t)P * B, 0);
    TABLE(cost, B, 0);
    TABLE(changes, (size_t)B * V, 0);
    area_limit = option("area", 128);
    cached_limit = option("cache", 14);
    TABLE(cached, cached_limit + 1, 0xff);
}

/* Sets the update flag, and counts the mapping pages that a conversion of the block would write. */
static void set_update(u32 page, u32 lpn, uint8_t to) {
    if (update[page] == to) return;
    update[page] = to;
    u32 *n = &changes[(size_t)(page / P) * V + lpn / E];
    if (to ? (*n)++ == 0 : --*n == 0) cost[page / P] += to ? 1 : -1u;
}

/* Mapping pages in RAM, the one used last in front. */
static void load(u32 v) {
    u32 at = 0;
    while (at < cached_count && cached[at] != v) at++;
    if (at == cached_count) {
        if (gmd[v] != NONE) counts[MAP_READS]++;
        if (cached_count < cached_limit) cached_count++;
        else at--;
    }
    memmove(cached + 1, cached, at * sizeof *cached);
    cached[0] = v;
}

static void convert(void) {
    u32 victim = NONE;
    for (u32 b = 0; b < B; b++) {
        if (role[b] != AREA || used[b] < P) continue;
        if (victim == NONE || cost[b] < cost[victim] || (cost[b] == cost[victim] && opened[b] < opened[victim])) victim = b;
    }
    check(victim != NONE, "nothing to convert");
    counts[CONVERSIONS]++;
    for (u32 v = 0; v < V; v++) {
        if (!changes[(size_t)victim * V + v]) continue;
        u32 old = gmd[v];
        load(v);
        gmd[v] = program(&cmb, v);
        counts[MAP_PROGRAMS]++;
        invalidate(old);
        for (u32 lpn = v * E; lpn < v * E + E && lpn < L; lpn++) {
            u32 page = umt[lpn];
            if (page == NONE || !update[page]) continue;
            if (stale[page]) invalidate(gmt[lpn]);
            set_update(page, lpn, 0);
            stale[page] = 0;
            gmt[lpn] = page;
        }
    }
    for (u32 i = victim * P; i < victim * P + P; i++)
        if (owner[i] != NONE) umt[owner[i]] = NONE;
    role[victim] = DATA;
    since[victim] = ++now;
    area--;
}

static void lazy_collect(void) {
    u32 victim = fewest();
    for (u32 i = victim * P; i < victim * P + P; i++) {
        u32 who = owner[i];
        if (who == NONE) continue;
        if (role[victim] == MAP) {
            counts[MAP_COPIES]++;
            gmd[who] = program(&cmb, who);
        } else if (umt[who] != NONE) {
            stale[umt[who]] = 0;
        } else {
            if (ccb.block == NONE) {
                if (area >= area_limit) convert();
                area++;
            }
            counts[COPIES]++;
            umt[who] = program(&ccb, who);
            set_update(umt[who], who, 1);
            stale[umt[who]] = 0;
        }
        invalidate(i);
    }
    erase(victim);
}

static void lazy_write(u32 lpn) {
    for (int room = cub.block != NONE; !room;) {
        while (free_blocks <= threshold) lazy_collect();
        if (area >= area_limit) convert();
        else area++, room = 1;
    }
    u32 page = program(&cub, lpn), before = umt[lpn];
    counts[HOST_PROGRAMS]++;
    set_update(page, lpn, 1);
    stale[page] = before == NONE || stale[before];
    umt[lpn] = page;
    if (before == NONE) return;
    invalidate(before);
    set_update(before, lpn, 0);
    stale[before] = 0;
}

static void lazy_read(u32 lpn) {
    if (umt[lpn] == NONE) {
        if (gmd[lpn / E] == NONE) return;
        load(lpn / E);
        if (gmt[lpn] == NONE) return;
    }
    counts[HOST_READS]++;
}

/* ---- DFTL, as the LazyFTL and MNFTL papers describe it: a cache of single entries ---- */
static struct list { u32 newest, oldest, length; } lists[2]; /* entries used once, and again */
static u32 *newer, *older, entries;
/* of a logical page: 1 + its list, or 0; the mapping page lacks its entry */
static uint8_t *listed, *dirty;

static void dftl_start(void) {
    ram_start();
    map_start();
    TABLE(newer, L, 0xff);
    TABLE(older, L, 0xff);
    TABLE(listed, L, 0);
    TABLE(dirty, L, 0);
    entries = option("cached", 8192);
    lists[0] = lists[1] = (struct list){ NONE, NONE, 0 };
}

static void leave(u32 lpn) {
    struct list *l = &lists[listed[lpn] - 1];
    *(newer[lpn] == NONE ? &l->newest : &older[newer[lpn]]) = older[lpn];
    *(older[lpn] == NONE ? &l->oldest : &newer[older[lpn]]) = newer[lpn];
    l->length--;
    listed[lpn] = 0;
}

static void join(u32 lpn, int to) {
    struct list *l = &lists[to];
    newer[lpn] = NONE;
    older[lpn] = l->newest;
    *(l->newest == NONE ? &l->oldest : &newer[l->newest]) = lpn;
    l->newest = lpn;
    l->length++;
    listed[lpn] = (uint8_t)(to + 1);
}

static void write_back(u32 v) {
    u32 old = gmd[v];
    if (old != NONE) counts[MAP_READS]++;
    for (u32 lpn = v * E; lpn < v * E + E && lpn < L; lpn++) dirty[lpn] = 0;
    gmd[v] = program(&cmb, v);
    counts[MAP_PROGRAMS]++;
    invalidate(old);
}

static void dftl_collect(void) {
    u32 victim = fewest();
    uint8_t *TABLE(moved, V, 0);
    for (u32 i = victim * P; i < victim * P + P; i++) {
        u32 who = owner[i];
        if (who == NONE) continue;
        if (role[victim] == MAP) {
            counts[MAP_COPIES]++;
            gmd[who] = program(&cmb, who);
        } else {
            counts[COPIES]++;
            map[who] = program(apart ? &copy : &host, who);
            if (listed[who]) dirty[who] = 1;
            else moved[who / E] = 1;
        }
        invalidate(i);
    }
    for (u32 v = 0; v < V; v++)
        if (moved[v]) write_back(v);
    free(moved);
    erase(victim);
}

static void lookup(u32 lpn) {
    int again = listed[lpn] != 0;
    if (again) leave(lpn);
    else if (gmd[lpn / E] != NONE) counts[MAP_READS]++;
    join(lpn, again);
    if (lists[1].length <= entries / 2) return;
    u32 last = lists[1].oldest;
    leave(last);
    join(last, 0);
}

/* Ends a run of pages: the cache shrinks to its size. */
static void evict(void) {
    settle();
    while (lists[0].length + lists[1].length > entries) {
        u32 last = lists[0].oldest;
        if (dirty[last] && cmb.block == NONE)
            while (free_blocks <= threshold) dftl_collect();
        if (dirty[last]) write_back(last / E);
        leave(last);
    }
}

static void dftl_write(u32 lpn) {
    if (host.block == NONE)
        while (free_blocks <= threshold) dftl_collect();
    lookup(lpn);
    supersede(lpn, program(&host, lpn));
    dirty[lpn] = 1;
    if (host.block == NONE) evict();
}

static void dftl_read(u32 lpn) {
    if (!listed[lpn] && gmd[lpn / E] == NONE) return;
    lookup(lpn);
    ram_read(lpn);
}

/* ---- MNFTL (DAC 2011): a list of blocks for a logical block, which its pages never leave ---- */
/* the logical block of a block; the newest block and the number of blocks of a logical one */
static u32 *home, *last, *length;
static u64 *rank;

static void unit_start(void) {
    u32 units = (L + P - 1) / P;
    ram_start();
    TABLE(home, B, 0xff);
    TABLE(last, units, 0xff);
    TABLE(length, units, 0);
    TABLE(rank, units, 0);
}

static int unit_full(u32 lbn) { return last[lbn] == NONE || used[last[lbn]] == P; }

static u32 unit_program(u32 lpn) {
    u32 lbn = lpn / P;
    int fresh = unit_full(lbn);
    struct stream s = { fresh ? NONE : last[lbn], DATA };
    u32 page = program(&s, lpn);
    home[last[lbn] = page / P] = lbn;
    if (fresh) length[lbn]++, rank[lbn] = opened[page / P];
    return page;
}

static int unit_before(u32 a, u32 b) {
    u32 x = home[a], y = home[b];
    if (!valid[a] != !valid[b]) return !valid[a];
    if (length[x] != length[y]) return length[x] > length[y];
    if (rank[x] != rank[y]) return rank[x] < rank[y];
    return valid[a] != valid[b] ? valid[a] < valid[b] : since[a] < since[b];
}

static void unit_collect(void) {
    u32 best = NONE;
    for (u32 b = 0; b < B; b++)
        if (role[b] == DATA && used[b] == P && valid[b] < P && (best == NONE || unit_before(b, best))) best = b;
    check(best != NONE, "no victim");
    u32 lbn = home[best], before = length[lbn];
    u64 place = rank[lbn];
    for (u32 i = best * P; i < best * P + P; i++) {
        if (owner[i] == NONE) continue;
        counts[COPIES]++;
        map[owner[i]] = unit_program(owner[i]);
        invalidate(i);
    }
    if (last[lbn] == best) last[lbn] = NONE;
    if (--length[lbn] == before) rank[lbn] = place;
    else if (last[lbn] != NONE) rank[lbn] = opened[last[lbn]];
    erase(best);
}

static void unit_write(u32 lpn) {
    if (unit_full(lpn / P))
        while (free_blocks <= threshold) unit_collect();
    supersede(lpn, unit_program(lpn));
    if ((lpn + 1) % P == 0) settle();
}

/* ---- FAST, as ROSE (IEEE TC 2011) and LazyFTL describe it: data blocks in place, log blocks ---- */
static u32 *data, sw = NONE, sw_lbn, *rw, rw_count, rw_limit;
static uint8_t *written;

static void fast_start(void) {
    ram_start();
    TABLE(data, (L + P - 1) / P, 0xff);
    rw_limit = option("log", 128);
    TABLE(rw, rw_limit, 0xff);
    TABLE(written, (size_t)P * B, 0);
}

static void put(u32 page, u32 lpn) {
    check(!written[page], "a page is programmed twice");
    written[page] = 1;
    owner[page] = lpn;
    used[page / P]++;
    valid[page / P]++;
}

static void discard(u32 block) {
    if (block == NONE) return;
    memset(written + (size_t)block * P, 0, P);
    erase(block);
}

/* Makes `block` the data block of a logical block: its pages that are elsewhere are copied to their places there. */
static void gather(u32 lbn, u32 block, int own) {
    u64 before = counts[COPIES];
    for (u32 lpn = lbn * P; lpn < lbn * P + P && lpn < L; lpn++) {
        u32 from = map[lpn];
        if (from == NONE || from / P == block) continue;
        counts[COPIES]++;
        put(map[lpn] = block * P + lpn % P, lpn);
        invalidate(from);
    }
    discard(data[lbn]);
    data[lbn] = block;
    counts[!own ? FULLS : counts[COPIES] == before ? SWITCHES : PARTIALS]++;
}

static void merge_sw(void) {
    u32 block = sw;
    if (block == NONE) return;
    sw = NONE;
    if (valid[block] == used[block]) {
        gather(sw_lbn, block, 1);
        return;
    }
    if (valid[block]) gather(sw_lbn, take(DATA), 0);
    discard(block);
}

static void merge_rw(void) {
    u32 victim = rw[0];
    for (u32 i = victim * P; i < victim * P + P; i++)
        if (owner[i] != NONE) gather(owner[i] / P, take(DATA), 0);
    discard(victim);
    memmove(rw, rw + 1, --rw_count * sizeof *rw);
}

static void fast_write(u32 lpn) {
    u32 lbn = lpn / P, at = lpn % P, page;
    if (data[lbn] == NONE) data[lbn] = take(DATA);
    if (!written[data[lbn] * P + at]) {
        page = data[lbn] * P + at;
    } else if (at == 0) {
        merge_sw();
        if (rw_count == rw_limit) merge_rw();
        sw = take(AREA);
        sw_lbn = lbn;
        page = sw * P;
    } else if (sw != NONE && sw_lbn == lbn && used[sw] == at) {
        page = sw * P + at;
    } else {
        if (sw_lbn == lbn) merge_sw();
        if (!rw_count || used[rw[rw_count - 1]] == P) {
            if (rw_count + (sw != NONE) == rw_limit) merge_rw();
            rw[rw_count++] = take(AREA);
        }
        page = rw[rw_count - 1] * P + used[rw[rw_count - 1]];
    }
    put(page, lpn);
    counts[HOST_PROGRAMS]++;
    invalidate(map[lpn]);
    map[lpn] = page;
}

/* ---- a run ---- */
static const struct scheme {
    const char *name;
    void (*start)(void), (*read)(u32 lpn), (*write)(u32 lpn), (*end)(void); /* end: of a request */
} SCHEMES[] = {
    { "pagemap", ram_start, ram_read, ram_write, settle },
    { "lazyftl", lazy_start, lazy_read, lazy_write, settle },
    { "dftl", dftl_start, dftl_read, dftl_write, evict },
    { "mnftl", unit_start, ram_read, unit_write, settle },
    { "fast", fast_start, ram_read, fast_write, settle },
};

int main(int argc, char **argv) {
    const struct scheme *s = NULL;
    for (size_t i = 0; argc > 1 && i < sizeof SCHEMES / sizeof *SCHEMES; i++)
        if (!strcmp(argv[1], SCHEMES[i].name)) s = &SCHEMES[i];
    check(s != NULL, "pagemap, lazyftl, dftl, mnftl or fast?");
    words = argc - 2;
    word = argv + 2;
    P = option("pages", 64);
    B = free_blocks = option("blocks", 0);
    L = option("logical", 0);
    threshold = option("threshold", 4);
    apart = option("apart", 0);
    TABLE(owner, (size_t)P * B, 0xff);
    TABLE(valid, B, 0);
    TABLE(used, B, 0);
    TABLE(erases, B, 0);
    TABLE(opened, B, 0);
    TABLE(since, B, 0);
    TABLE(role, B, FREE);
    s->start();
    size_t room = 1 << 16, n = 0;
    struct request { u32 first, count; char kind; } *requests = table(room, sizeof *requests, 0), r;
    while (scanf(" %c %u %u", &r.kind, &r.first, &r.count) == 3) {
        check((r.kind == 'R' || r.kind == 'W') && r.count <= L && r.first <= L - r.count, "not a request of this device");
        if (n == room) requests = realloc(requests, (room *= 2) * sizeof *requests);
        check(requests != NULL, "out of memory");
        requests[n++] = r;
    }
    for (u32 passes = option("passes", 0) + 1; passes > 0; passes--) {
        memset(counts, 0, sizeof counts);
        for (size_t i = 0; i < n; i++) {
            for (u32 lpn = requests[i].first; lpn < requests[i].first + requests[i].count; lpn++)
                (requests[i].kind == 'R' ? s->read : s->write)(lpn);
            s->end();
        }
    }
    for (int i = 0; i < COUNTS; i++) printf("%s\"%s\": %llu", i ? ", " : "{", NAMES[i], (unsigned long long)counts[i]);
    puts("}");
    return 0;
}
