/* A second simulator of the flash translation layers, written from the papers alone. See README.md beside it. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint32_t u32;
typedef uint64_t u64;
#define NONE UINT32_MAX

enum role { FREE, DATA, MAP, AREA, ROLES };
enum count { HOST_READS, HOST_PROGRAMS, COPIES, MAP_PROGRAMS, MAP_READS, MAP_COPIES, ERASES, CONVERSIONS, SWITCHES, PARTIALS, FULLS, COUNTS };
static const char *NAMES[COUNTS] = { "host_reads", "host_programs", "copies", "map_programs", "map_reads", "map_copies", "erases",
    "conversions", "switch_merges", "partial_merges", "full_merges" };
static u64 counts[COUNTS];

/* ---- options: NAME=NUMBER ---- */
static int words;
static char **word;

static long option(const char *name, long otherwise) {
    size_t length = strlen(name);
    for (int i = 0; i < words; i++)
        if (!strncmp(word[i], name, length) && word[i][length] == '=') return atol(word[i] + length + 1);
    return otherwise;
}

static void *table(size_t entries, size_t bytes, int byte) {
    void *memory = malloc(entries * bytes + 1);
    if (!memory) exit(2);
    return memset(memory, byte, entries * bytes);
}

static void check(int good, const char *what) {
    if (!good) { fprintf(stderr, "referee: %s\n", what); exit(1); }
}

/* ---- flash: pages are programmed in order, a block at a time ---- */
static u32 P, B, L, threshold, when;
static u32 *owner;                 /* of a page: its logical or mapping page; NONE once invalid */
static u32 *valid, *used, *erases; /* of a block */
static u64 *sealed, *changed, *opened, ticks;
static uint8_t *role;
static u32 pool_count; /* free blocks */

struct stream { u32 block; enum role role; };

static u32 take(enum role as) {
    check(pool_count > 0, "no free block");
    u32 block = NONE;
    for (u32 b = 0; b < B; b++)
        if (role[b] == FREE && (block == NONE || erases[b] < erases[block])) block = b;
    pool_count--;
    role[block] = (uint8_t)as;
    opened[block] = ++ticks;

    return block;
}

static void erase(u32 block) {
    check(valid[block] == 0, "erase of a block with valid pages");
    used[block] = 0;
    role[block] = FREE;
    erases[block]++;
    counts[ERASES]++;
    pool_count++;
}

static int full(const struct stream *s) { return s->block == NONE; }

static u32 program(struct stream *s, u32 who) {
    if (full(s)) s->block = take(s->role);
    u32 page = s->block * P + used[s->block]++;
    owner[page] = who;
    valid[s->block]++;
    if (used[s->block] == P) {
        sealed[s->block] = ++ticks;
        changed[s->block] = when == 0 ? ticks : when == 2 ? 0 : when == 3 ? opened[s->block] : when == 4 ? (1ull<<40) - ticks : ticks;
        s->block = NONE;
    }
    return page;
}

static void invalidate(u32 page) {
    if (page == NONE) return;
    check(owner[page] != NONE, "a page is invalid already");
    owner[page] = NONE;
    valid[page / P]--;
    if (used[page / P] == P) changed[page / P] = ++ticks;
}

/* The full block of these roles with the fewest valid pages; of equal ones by `tie`. */
static u32 tie;
static u32 fewest(unsigned roles) {
    u32 best = NONE;
    for (u32 b = 0; b < B; b++) {
        if (!(roles >> role[b] & 1) || used[b] < P) continue;
        if (best != NONE && valid[b] > valid[best]) continue;
        if (best == NONE || valid[b] < valid[best]) { best = b; continue; }
        if (tie == 0 ? sealed[b] < sealed[best] : tie == 1 ? sealed[b] > sealed[best] : tie == 2 ? erases[b] < erases[best] : tie == 4 ? changed[b] < changed[best] : tie == 5 ? changed[b] > changed[best] : tie == 6 ? opened[b] < opened[best] : 0) best = b;
    }
    return best;
}

#define LOG(what, block, n) do { if (option("log", 0)) fprintf(stderr, "%s %u %u %lu\n", what, block, n, (unsigned long)counts[HOST_PROGRAMS]); } while (0)
/* ---- a scheme ---- */
struct scheme {
    const char *name;
    void (*start)(void);
    void (*read)(u32 page), (*write)(u32 page), (*trim)(u32 page);
};

/* ---- page map in RAM: greedy collection ---- */
static u32 *map;
static struct stream host = { NONE, DATA }, copy = { NONE, DATA };
static u32 late, late_old[4096];
static u32 apart, margin, ctie, order, mtie, mswd;

static void move(u32 victim, struct stream *to) {
    LOG("gc", victim, valid[victim]);
    for (u32 i = victim * P; i < victim * P + P; i++) {
        u32 who = owner[i];
        if (who == NONE) continue;
        counts[COPIES]++;
        u32 page = program(to, who);
        invalidate(i);
        map[who] = page;
    }
    erase(victim);
}

static void ram_start(void) {
    map = table(L, sizeof *map, 0xff);
    apart = (u32)option("apart", 0);
    margin = (u32)option("margin", 0);
    when = (u32)option("when", 0);
}

static void ram_end(void) {
    for (u32 i = 0; i < late; i++) invalidate(late_old[i]);
    late = 0;
}

static void ram_write(u32 lpn) {
    if (when == 1 ? pool_count < threshold : full(&host)) {
        while (pool_count <= threshold + margin) {
            u32 victim = fewest(1u << DATA);
            check(victim != NONE && valid[victim] < P, "no victim");
            move(victim, apart ? &copy : &host);
        }
    }
    u32 page = program(&host, lpn);
    counts[HOST_PROGRAMS]++;
    late_old[late++] = map[lpn];
    map[lpn] = page;
    if (when || host.block == NONE) ram_end();
}

static void ram_read(u32 lpn) { if (map[lpn] != NONE) counts[HOST_READS]++; }
static void ram_trim(u32 lpn) { invalidate(map[lpn]); map[lpn] = NONE; }

/* ---- LazyFTL (SIGMOD 2011): Algorithms 1 to 3 ---- */
static u32 E, V;             /* entries of a mapping page, mapping pages */
static u32 *umt, *gmt, *gmd; /* pages by logical page, by logical page as mapping pages on flash say, by mapping page */
static uint8_t *update, *stale; /* of a page in the area: its entry is not in the GMT; the GMT's page is to be invalidated */
static struct stream cub = { NONE, AREA }, ccb = { NONE, AREA }, cmb = { NONE, MAP };
static u32 area, area_limit, *cached, cached_count, cached_limit;

/* Mapping pages in RAM, the last used first; one that is not there is read. */
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

static u32 *cost, *entries_of;
static u64 *reached;

static void set_update(u32 page, u32 lpn, int now) {
    if (update[page] == now) return;
    update[page] = (uint8_t)now;
    u32 b = page / P, *n = &entries_of[(size_t)b * V + lpn / E];
    if (now ? (*n)++ == 0 : --*n == 0) {
        cost[b] += now ? 1 : -1u;
        if (used[b] == P && !now) reached[b] = ++ticks;
    }
}

static void convert(void) {
    u32 victim = NONE, least = NONE;
    uint8_t *touched = table(V, 1, 0);
    for (u32 b = 0; b < B; b++) {
        if (role[b] != AREA || used[b] < P) continue;
        if (cost[b] < least || (cost[b] == least && (ctie == 1 ? opened[b] < opened[victim] : ctie == 0 ? sealed[b] < sealed[victim] : reached[b] < reached[victim]))) { least = cost[b]; victim = b; }
    }
    check(victim != NONE, "nothing to convert");
    counts[CONVERSIONS]++;
    LOG("convert", victim, least);
    for (u32 i = victim * P; i < victim * P + P; i++)
        if (owner[i] != NONE && update[i]) touched[owner[i] / E] = 1;
    for (u32 v = 0; v < V; v++) {
        if (!touched[v]) continue;
        load(v);
        u32 old = gmd[v];
        gmd[v] = program(&cmb, v);
        counts[MAP_PROGRAMS]++;
        if (order) invalidate(old);
        for (u32 lpn = v * E; lpn < v * E + E && lpn < L; lpn++) {
            u32 page = umt[lpn];
            if (page == NONE || !update[page]) continue;
            if (stale[page]) invalidate(gmt[lpn]);
            set_update(page, lpn, 0);
            stale[page] = 0;
            gmt[lpn] = page;
        }
        if (!order) invalidate(old);
    }
    for (u32 i = victim * P; i < victim * P + P; i++)
        if (owner[i] != NONE) umt[owner[i]] = NONE;
    role[victim] = DATA;
    changed[victim] = ++ticks;
    area--;
    free(touched);
}

static void lazy_collect(void) {
    u32 victim = fewest(1u << DATA | 1u << MAP);
    check(victim != NONE, "no victim");
    u64 before = counts[COPIES] + counts[MAP_COPIES];
    for (u32 i = victim * P; i < victim * P + P; i++) {
        u32 who = owner[i];
        if (who == NONE) continue;
        if (role[victim] == MAP) {
            counts[MAP_COPIES]++;
            gmd[who] = program(&cmb, who);
        } else if (umt[who] != NONE) {
            stale[umt[who]] = 0;
        } else {
            if (full(&ccb)) {
                if (area >= area_limit) convert();
                area++;
            }
            if (owner[i] == NONE) continue;
            counts[COPIES]++;
            u32 page = program(&ccb, who);
            umt[who] = page;
            set_update(page, who, 1);
            if (full(&ccb)) reached[page / P] = ++ticks;
            stale[page] = 0;
        }
        invalidate(i);
    }
    LOG("gc", victim, (u32)(counts[COPIES] + counts[MAP_COPIES] - before));
    erase(victim);
}

static void lazy_write(u32 lpn) {
    if (full(&cub)) {
        for (;;) {
            while (pool_count <= threshold + margin) lazy_collect();
            if (area < area_limit) break;
            convert();
        }
        area++;
    }
    u32 page = program(&cub, lpn), before = umt[lpn];
    counts[HOST_PROGRAMS]++;
    set_update(page, lpn, 1);
    if (full(&cub)) reached[page / P] = ++ticks;
    stale[page] = before == NONE || stale[before];
    if (before != NONE) {
        invalidate(before);
        set_update(before, lpn, 0);
        stale[before] = 0;
    }
    umt[lpn] = page;
}

static void lazy_read(u32 lpn) {
    if (umt[lpn] == NONE) {
        if (gmd[lpn / E] == NONE) return;
        load(lpn / E);
        if (gmt[lpn] == NONE) return;
    }
    counts[HOST_READS]++;
}

static void map_start(void) {
    E = (u32)option("entries", 512);
    V = (L + E - 1) / E;
    margin = (u32)option("margin", 0);
    gmd = table(V, sizeof *gmd, 0xff);
}

static void lazy_start(void) {
    map_start();
    umt = table(L, sizeof *umt, 0xff);
    gmt = table(L, sizeof *gmt, 0xff);
    update = table((size_t)P * B, 1, 0);
    stale = table((size_t)P * B, 1, 0);
    cost = table(B, sizeof *cost, 0);
    reached = table(B, sizeof *reached, 0);
    entries_of = table((size_t)B * V, sizeof *entries_of, 0);
    area_limit = (u32)option("area", 128);
    cached_limit = (u32)option("cache", 14);
    cached = table(cached_limit + 1, sizeof *cached, 0xff);
    ctie = (u32)option("ctie", 0);
    order = (u32)option("order", 0);
}

/* ---- DFTL, as the LazyFTL and MNFTL papers describe it: a cache of single entries ---- */
struct list { u32 newest, oldest, length; };
static struct list lists[2];             /* entries used once, and again */
static u32 *newer, *older, *moved, entries, protected_limit;
static uint8_t *where, *dirty;           /* of a logical page: list + 1, or 0; the mapping page on flash is older */

static void unlink_entry(u32 lpn) {
    struct list *l = &lists[where[lpn] - 1];
    *(newer[lpn] == NONE ? &l->newest : &older[newer[lpn]]) = older[lpn];
    *(older[lpn] == NONE ? &l->oldest : &newer[older[lpn]]) = newer[lpn];
    l->length--;
    where[lpn] = 0;
}

static void link_entry(u32 lpn, int to) {
    struct list *l = &lists[to];
    newer[lpn] = NONE;
    older[lpn] = l->newest;
    *(l->newest == NONE ? &l->oldest : &newer[l->newest]) = lpn;
    l->newest = lpn;
    l->length++;
    where[lpn] = (uint8_t)(to + 1);
}

/* Reads a mapping page, writes it with all changed entries in the cache. */
static void write_back(u32 v) {
    u32 old = gmd[v];
    if (old != NONE) counts[MAP_READS]++;
    for (u32 lpn = v * E; lpn < v * E + E && lpn < L; lpn++) dirty[lpn] = 0;
    gmd[v] = program(&cmb, v);
    counts[MAP_PROGRAMS]++;
    invalidate(old);
}

static int by_lpn(const void *a, const void *b) {
    u32 x = owner[*(const u32 *)a], y = owner[*(const u32 *)b];
    if (mswd == 2) x /= E, y /= E;
    if (mswd == 3) { if (!where[x] != !where[y]) return where[x] ? -1 : 1; return *(const u32 *)a < *(const u32 *)b ? -1 : 1; }
    return x < y ? -1 : x > y ? 1 : *(const u32 *)a < *(const u32 *)b ? -1 : 1;
}

static void dftl_collect(void) {
    u32 victim = fewest(1u << DATA | 1u << MAP), left = 0, n = 0, pages[1024];
    check(victim != NONE, "no victim");
    LOG("gc", victim, valid[victim]);
    for (u32 i = victim * P; i < victim * P + P; i++)
        if (owner[i] != NONE) pages[n++] = i;
    if (role[victim] == DATA && mswd) qsort(pages, n, sizeof *pages, by_lpn);
    for (u32 k = 0; k < n; k++) {
        u32 i = pages[k], who = owner[i];
        if (role[victim] == MAP) {
            counts[MAP_COPIES]++;
            gmd[who] = program(&cmb, who);
        } else {
            counts[COPIES]++;
            map[who] = program(apart ? &copy : &host, who);
            if (where[who]) dirty[who] = 1;
            else moved[left++] = who / E;
        }
        invalidate(i);
    }
    for (u32 v = 0; left && v < V; v++)
        for (u32 i = 0; i < left; i++)
            if (moved[i] == v) { write_back(v); break; }
    erase(victim);
}

static void dftl_room(void) { ram_end(); while (pool_count <= threshold + margin) dftl_collect(); }

static void lookup(u32 lpn) {
    if (where[lpn]) {
        unlink_entry(lpn);
        link_entry(lpn, 1);
        if (lists[1].length > protected_limit) { u32 last = lists[1].oldest; unlink_entry(last); link_entry(last, 0); }
        return;
    }
    if (gmd[lpn / E] != NONE) counts[MAP_READS]++;
    link_entry(lpn, 0);
}

static void evict(void) {
    while (lists[0].length + lists[1].length > entries) {
        u32 last = lists[0].length ? lists[0].oldest : lists[1].oldest;
        if (dirty[last]) {
            if (mtie & 2 && full(&cmb)) dftl_room();
            if (dirty[last]) write_back(last / E);
        }
        unlink_entry(last);
    }
}

static void dftl_write(u32 lpn) {
    if (mtie & 1 && full(&host)) dftl_room();
    lookup(lpn);
    if (!(mtie & 1) && full(&host)) dftl_room();
    u32 page = program(&host, lpn);
    counts[HOST_PROGRAMS]++;
    late_old[late++] = map[lpn];
    map[lpn] = page;
    dirty[lpn] = 1;
    if ((mtie & 4) || host.block == NONE) { ram_end(); if (mtie & 8) evict(); }
}

static void dftl_read(u32 lpn) {
    if (!where[lpn] && gmd[lpn / E] == NONE) return;
    lookup(lpn);
    if (map[lpn] != NONE) counts[HOST_READS]++;
}

static void dftl_start(void) {
    ram_start();
    map_start();
    newer = table(L, sizeof *newer, 0xff);
    older = table(L, sizeof *older, 0xff);
    moved = table(P, sizeof *moved, 0);
    where = table(L, 1, 0);
    dirty = table(L, 1, 0);
    mtie = (u32)option("mtie", 2);
    mswd = (u32)option("mswd", 0);
    entries = (u32)option("entries_cached", 8192);
    protected_limit = (u32)option("protected", entries / 2);
    lists[0] = lists[1] = (struct list){ NONE, NONE, 0 };
}

/* ---- MNFTL (DAC 2011): a list of blocks per logical block; pages in order, copies in the same list ---- */
static u64 *grown;
static u32 ahead;
static u32 *home, *last, *links; /* of a block its logical block; of a logical block its newest block, its number of blocks */

static u32 unit_program(u32 lpn) {
    u32 lbn = lpn / P;
    struct stream s = { last[lbn] == NONE || used[last[lbn]] == P ? NONE : last[lbn], DATA };
    int fresh = full(&s);
    links[lbn] += (u32)fresh;
    u32 page = program(&s, lpn);
    if (fresh) grown[lbn] = opened[page / P];
    home[last[lbn] = page / P] = lbn;
    return page;
}

static u64 oldest(u32 lbn) {
    u64 least = UINT64_MAX;
    for (u32 b = 0; b < B; b++)
        if (role[b] && home[b] == lbn && opened[b] < least) least = opened[b];
    return least;
}

static void unit_collect(void) {
    u32 best = NONE;
    for (u32 b = 0; b < B; b++) {
        if (role[b] != DATA || used[b] < P || valid[b] == P || (order && last[home[b]] == b)) continue;
        if (best != NONE) {
            u32 h = home[b], g = home[best];
            if (mtie == 2) { if (valid[b] > valid[best] || (valid[b] == valid[best] && changed[b] > changed[best])) continue; }
            else if (!order && !valid[b] != !valid[best]) { if (valid[b]) continue; }
            else if (links[h] < links[g]) continue;
            else if (links[h] == links[g]) {
                if (h != g && (mtie == 1 ? opened[last[h]] > opened[last[g]] : mtie == 3 ? grown[h] > grown[g] : mtie == 4 ? oldest(h) > oldest(g) : mtie == 5 ? opened[b] > opened[best] : h > g)) continue;
                if (h == g && (valid[b] > valid[best] || (valid[b] == valid[best] && changed[b] > changed[best]))) continue;
            }
        }
        best = b;
    }
    check(best != NONE, "no victim");
    LOG("gc", best, valid[best]);
    u32 length = links[home[best]];
    u64 since = grown[home[best]];
    for (u32 i = best * P; i < best * P + P; i++) {
        u32 who = owner[i];
        if (who == NONE) continue;
        counts[COPIES]++;
        map[who] = unit_program(who);
        invalidate(i);
    }
    links[home[best]]--;
    grown[home[best]] = links[home[best]] == length ? since : last[home[best]] == NONE ? 0 : opened[last[home[best]]];
    if (last[home[best]] == best) last[home[best]] = NONE;
    erase(best);
}

static void unit_write(u32 lpn) {
    u32 lbn = lpn / P;
    if (order == 2 && (last[lbn] == NONE || used[last[lbn]] == P))
        for (u32 i = lpn; i < lpn + ahead && i / P == lbn; i++) { invalidate(map[i]); map[i] = NONE; }
    if (last[lbn] == NONE || used[last[lbn]] == P)
        while (pool_count <= threshold + margin) unit_collect();
    u32 page = unit_program(lpn);
    counts[HOST_PROGRAMS]++;
    late_old[late++] = map[lpn];
    map[lpn] = page;
    if (order == 1 || used[page / P] == P || page / P != last[lbn] || (lpn + 1) % P == 0) ram_end();
}

static void unit_start(void) {
    u32 units = (L + P - 1) / P;
    ram_start();
    home = table(B, sizeof *home, 0xff);
    last = table(units, sizeof *last, 0xff);
    links = table(units, sizeof *links, 0);
    grown = table(units, sizeof *grown, 0);
    order = (u32)option("order", 0);
    mtie = (u32)option("mtie", 1);
}

/* ---- FAST, as ROSE (IEEE TC 2011) and the LazyFTL paper describe it: data blocks in place, one sequential and many random log blocks ---- */
static u32 *data, sw = NONE, sw_lbn, *rw, rw_count, rw_limit;
static uint8_t *written; /* of a page */

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

/* Copies the pages of a logical block that are elsewhere to their places in `block`, which becomes its data block. */
static void gather(u32 lbn, u32 block, enum count kind) {
    u64 before = counts[COPIES];
    for (u32 i = 0; i < P && lbn * P + i < L; i++) {
        u32 from = map[lbn * P + i];
        if (from == NONE || from / P == block) continue;
        counts[COPIES]++;
        put(map[lbn * P + i] = block * P + i, lbn * P + i);
        invalidate(from);
    }
    if (kind == PARTIALS && counts[COPIES] == before) kind = SWITCHES;
    discard(data[lbn]);
    data[lbn] = block;
    role[block] = DATA;
    counts[kind]++;
    LOG(NAMES[kind], lbn, 0);
}

static void merge_sw(void) {
    if (sw == NONE) return;
    u32 block = sw;
    sw = NONE;
    if (valid[block] == used[block]) gather(sw_lbn, block, used[block] == P ? SWITCHES : PARTIALS);
    else {
        if (valid[block]) gather(sw_lbn, take(DATA), FULLS);
        discard(block);
    }
}

static void merge_rw(void) {
    u32 victim = rw[0];
    for (u32 i = victim * P; i < victim * P + P; i++) {
        if (owner[i] == NONE) continue;
        u32 lbn = owner[i] / P;
        gather(lbn, take(DATA), FULLS);
        if (mswd && sw != NONE && sw_lbn == lbn) { discard(sw); sw = NONE; }
    }
    discard(victim);
    memmove(rw, rw + 1, --rw_count * sizeof *rw);
}

static void fast_write(u32 lpn) {
    u32 lbn = lpn / P, at = lpn % P, page;
    counts[HOST_PROGRAMS]++;
    if (data[lbn] == NONE) data[lbn] = take(DATA);
    if (!written[data[lbn] * P + at]) page = data[lbn] * P + at;
    else if (at == 0) {
        merge_sw();
        sw = take(AREA);
        sw_lbn = lbn;
        page = sw * P;
    } else if (sw != NONE && sw_lbn == lbn && used[sw] == at) page = sw * P + at;
    else {
        if (sw != NONE && sw_lbn == lbn && !order) merge_sw();
        if (!rw_count || used[rw[rw_count - 1]] == P) {
            if (rw_count == rw_limit) merge_rw();
            rw[rw_count++] = take(AREA);
        }
        page = rw[rw_count - 1] * P + used[rw[rw_count - 1]];
    }
    put(page, lpn);
    invalidate(map[lpn]);
    map[lpn] = page;
}

static void fast_start(void) {
    u32 units = (L + P - 1) / P;
    ram_start();
    data = table(units, sizeof *data, 0xff);
    rw_limit = (u32)option("log", 128) - 1;
    rw = table(rw_limit + 1, sizeof *rw, 0xff);
    written = table((size_t)P * B, 1, 0);
    order = (u32)option("order", 0);
    mswd = (u32)option("mswd", 0);
}

static const struct scheme SCHEMES[] = {
    { "pagemap", ram_start, ram_read, ram_write, ram_trim },
    { "lazyftl", lazy_start, lazy_read, lazy_write, NULL },
    { "mnftl", unit_start, ram_read, unit_write, ram_trim },
    { "fast", fast_start, ram_read, fast_write, ram_trim },
    { "dftl", dftl_start, dftl_read, dftl_write, NULL },
};

int main(int argc, char **argv) {
    words = argc - 2;
    word = argv + 2;
    const struct scheme *s = NULL;
    for (size_t i = 0; argc > 1 && i < sizeof SCHEMES / sizeof *SCHEMES; i++)
        if (!strcmp(argv[1], SCHEMES[i].name)) s = &SCHEMES[i];
    if (!s) { fprintf(stderr, "usage: referee SCHEME pages=N blocks=N logical=N threshold=N ...\n"); return 2; }
    P = (u32)option("pages", 64);
    B = (u32)option("blocks", 0);
    L = (u32)option("logical", 0);
    threshold = (u32)option("threshold", 4);
    tie = (u32)option("tie", 0);
    owner = table((size_t)P * B, sizeof *owner, 0xff);
    valid = table(B, sizeof *valid, 0);
    used = table(B, sizeof *used, 0);
    erases = table(B, sizeof *erases, 0);
    sealed = table(B, sizeof *sealed, 0);
    changed = table(B, sizeof *changed, 0);
    opened = table(B, sizeof *opened, 0);
    role = table(B, 1, FREE);
    pool_count = B;
    s->start();
    /* The requests are read once and served `passes` times before they are measured once. */
    size_t room = 1 << 16, n = 0;
    struct request { u32 first, count; char kind; } *requests = table(room, sizeof *requests, 0);
    char line[128];
    while (fgets(line, sizeof line, stdin)) {
        struct request r;
        if (sscanf(line, "%c %u %u", &r.kind, &r.first, &r.count) != 3) continue;
        check(r.count <= L && r.first <= L - r.count, "a request beyond the device");
        if (n == room && !(requests = realloc(requests, (room *= 2) * sizeof *requests))) return 2;
        requests[n++] = r;
    }
    if (option("fill", 0))
        for (u32 page = 0; page < L; page++) s->write(page);
    for (long left = option("passes", 0); left >= 0; left--) {
        memset(counts, 0, sizeof counts);
        for (size_t i = 0; i < n; i++) {
            for (u32 page = requests[i].first; page < requests[i].first + requests[i].count; page++)
                ahead = requests[i].first + requests[i].count - page,
                (requests[i].kind == 'R' ? s->read : requests[i].kind == 'W' ? s->write : s->trim)(page);
            if (late) ram_end();
            if (entries) evict();
        }
    }
    for (int i = 0; i < COUNTS; i++) printf("%s\"%s\": %llu", i ? ", " : "{", NAMES[i], (unsigned long long)counts[i]);
    puts("}");
    return 0;
}
