"""Markdown of tests/results/validation.md: the tables, and the rule behind every difference; and the table of docs/VALIDATION.md."""

import re

HEAD = """\
# Other simulators on the same device

Command: `{command}`\\
State: {state}\\
Outcome: {outcome}

Written by `tests/validation.py` from measured figures; do not edit. ftld and {count} other simulators
ran the same requests on the same device. The script runs programs of other people, from clones in
which the reader built them as their documentation says; nothing of them is part of ftld.

{peers}
## The shared device

| | |
|---|---|
| geometry | {blocks:,} blocks of {pages} pages of 4 KiB, one plane of one die on one channel, so nothing is striped |
| logical size | {logical:,} blocks: {op:.1f} % of the logical size is spare |
| map | page-level, all in RAM |
| GC | the block with the fewest valid pages; it starts when fewer than {free} blocks are free; copies and host writes share one open block |
| load | every page once in order, {warm_up} drive writes that are not counted, {measured} that are: one page of 4 KiB per write, uniform, or by Zipf's law with an exponent of 0.9 and popular pages anywhere |
| time | one request at a time: the next one comes long after GC of a block has ended |

The pages are drawn once. ftld, MQSim and SSDsim read the same trace file; sssl-ftlsim and FlashSim
read the same pages in their own formats. Features of ftld that the others lack are off:
`ckpt.interval=0`, `wear.policy=none`, `nand.pair_policy=none`, no page pairing. `gc.placement=single` and
`gc.free_threshold={free}` are the shared rules. Wear levelling is off in MQSim, too; the other three have none.

"""

STOPS = """\
## The rule that moves most: when GC stops

sssl-ftlsim and SSDsim collect one victim whenever a block is full, so every block gets the copies of a victim
and, behind them, the host writes for which room is left: old and new pages mix. ftld collects until
one more block is free than it keeps: several victims fill whole blocks with copies, then the host
fills a whole block. So copies are apart from host writes even with `gc.placement=single`. A uniform load does not
notice; under Zipf's law it is worth as much as a separate stream. sssl-ftlsim can be told to stop a
block later:

"""

HITS = """\
## DFTL: the hit ratio

A cache of single mapping entries; half the requests read; popularity by Zipf's law (0.9). Two models
of a few lines (`tests/validation/caches.py`) have the hit ratio that a rule of replacement must have: LRU, and the
segmented LRU of ftld's `dftl` (an entry used twice is protected, at most half of them).

"""


# Differences explained below by a rule that ftld cannot be told to follow; any other fails the run.
EXPLAINED = {
    ("ftlsim", "Zipf 0.9"),
    ("ssdsim", "Zipf 0.9"),
    ("mqsim", "uniform"),
    ("mqsim", "Zipf 0.9"),
    ("flashsim", "Zipf 0.9"),
}


def table(heads, lines):
    text = "| " + " | ".join(heads) + " |\n|" + "---|" * len(heads) + "\n"
    return text + "".join("| " + " | ".join(str(cell) for cell in line) + " |\n" for line in lines) + "\n"


def percent(ours, theirs):
    return f"{(ours / theirs - 1) * 100:+.2f} %"


def page_map_section(maps, limit):
    text, wrong = "## Write amplification of a page map\n\n", []
    lines, steps = [], []
    for load, peer, theirs, followed in maps:
        shared, last = followed[0][1], followed[-1][1]
        waf = theirs.amplification
        same = "the shared ones" if len(followed) == 1 else f"{len(followed) - 1} more"
        figures = [f"{waf:.3f}", f"{theirs.copies:,}", f"{theirs.erases:,}", f"{shared.amplification:.3f}", percent(shared.amplification, waf)]
        lines.append([load, peer.name, *figures, same, f"{last.amplification:.3f}", percent(last.amplification, waf)])
        if abs(last.amplification / waf - 1) > limit and (peer.option, load) not in EXPLAINED:
            wrong.append(f"{load}, {peer.name}: ftld with its rules has {last.amplification:.3f}, not {waf:.3f} within {limit:.0%}")
        if len(followed) > 1:
            for text_of_rule, counts in followed:
                cells = [f"{counts.amplification:.3f}", f"{counts.copies:,}", f"{counts.erases:,}", percent(counts.amplification, waf)]
                steps.append([load, peer.name, text_of_rule, *cells])
    heads = ["load", "simulator", "WAF", "copies", "erases", "ftld", "difference", "rules of the simulator", "ftld with them", "difference"]
    text += table(heads, lines)
    if steps:
        text += "Rules that another simulator has in its source, added to ftld one after another:\n\n"
        text += table(["load", "simulator", "ftld with", "WAF", "copies", "erases", "to the simulator"], steps)
    return text, wrong


def stop_section(rows, limit):
    lines, wrong = [], []
    for load, free, first, later, counts in rows:
        waf = later.amplification
        cells = [f"{first.amplification:.3f}", f"{waf:.3f}", f"{counts.amplification:.3f}", percent(counts.amplification, waf)]
        lines.append([load, free, *cells, f"{later.erases:,}", f"{counts.erases:,}"])
        if abs(counts.amplification / waf - 1) > limit:
            wrong.append(f"{load}, {free} free blocks: ftld has {counts.amplification:.3f}, not {waf:.3f} within {limit:.0%}")
    heads = ["load", "free blocks", "sssl-ftlsim", "a block later", "ftld", "difference", "erases, a block later", "erases, ftld"]
    return STOPS + table(heads, lines), wrong


def hit_section(rows, names, limit):
    lines, wrong, stopped = [], [], []
    for device, entries, theirs, lru, segmented, counts in rows:
        cells = []
        collects = "GC" if counts.erases else "no GC"
        for name in names:
            result = theirs[name]
            if isinstance(result, str):
                cells += ["stopped", "-"]
                stopped.append(f"{device.logical_blocks:,} logical blocks: {result}.")
                continue
            cells += [f"{result.hit_ratio:.4f}", f"{result.map_programs:,}"]
            if abs(result.hit_ratio / lru - 1) > limit:
                wrong.append(f"{name}, {entries} entries: hit ratio {result.hit_ratio:.4f}, LRU has {lru:.4f}")
        if abs(counts.hit_ratio / segmented - 1) > limit:
            wrong.append(f"dftl, {entries} entries: hit ratio {counts.hit_ratio:.4f}, segmented LRU has {segmented:.4f}")
        device_cells = [f"{device.logical_blocks:,} of {device.blocks:,} blocks, {collects}", f"{entries:,}"]
        mine = [f"{segmented:.4f}", f"{counts.hit_ratio:.4f}", f"{counts.map_programs:,}"]
        lines.append([*device_cells, f"{lru:.4f}", *cells, *mine])
    heads = ["device", "entries", "LRU"]
    for name in names:
        heads += [name, "mapping pages"]
    text = HITS + table([*heads, "segmented LRU", "ftld `dftl`", "mapping pages"], lines)
    return text + "".join(f"{line}\n" for line in stopped) + ("\n" if stopped else ""), wrong


def why(maps, hits):
    """The rules behind the differences, as read in the sources and measured above."""
    points = []
    seen = {peer.option for _, peer, _, _ in maps}
    if seen & {"ftlsim", "ssdsim"}:
        points.append(
            "**sssl-ftlsim, SSDsim**: one victim at a time, as measured above; told to stop as ftld does,\n"
            "  sssl-ftlsim has ftld's figures. The rest are ties between victims; SSDsim counts free\n"
            "  pages, not blocks."
        )
    if "mqsim" in seen:
        unserved = max(theirs.unserved for _, peer, theirs, _ in maps if peer.option == "mqsim")
        points.append(
            "**MQSim**: `max_ongoing_gc_reqs_per_plane` is 10 in its source, and GC keeps that many blocks free,\n"
            "  however low `GC_Exec_Threshold` is. Each plane has three open blocks: for data, for copies, and for\n"
            "  mapping pages, which do not exist when the whole map is in RAM. None of the three can be set, so\n"
            "  they were added to ftld instead. Its preconditioning is off: it computes how full blocks are and\n"
            f"  writes nothing. Here it writes the same pages as the others. It leaves up to {unserved} of 630,786 requests unserved.\n"
            "  The rest: it does not count blocks whose erase is under way as free, so it starts too many victims: 7.5\n"
            "  are under way on average when it decides. In a copy in which they count, 1.9 are, and the programs\n"
            "  of the whole run change by -3.2 % (uniform) and +5.7 % (Zipf), which brings it to within 2 % of ftld."
        )
    if "flashsim" in seen:
        points.append(
            "**FlashSim**: its page-level FTL keeps no map and copies nothing, so this is its DFTL with a cache for\n"
            "  the whole map. GC runs when 90 % of all blocks are in use (its source calls that a magic number), five\n"
            "  victims at a time, each time a host write fills a block. So a tenth of all blocks stays free, most\n"
            "  of the spare of this device. After five victims the host fills the rest of a block, so pages mix less\n"
            "  than with one victim at a time and more than in ftld: under Zipf's law it is between the two columns\n"
            "  for as many free blocks above. Its mapping pages are counted, but take no flash."
        )
    points.append(
        "Without effect here: wear levelling (off or absent), static allocation of pages to planes (one plane),\n"
        "  requests during GC (none)."
    )
    if hits:
        points.append(
            "**Hit ratio**: MQSim and FlashSim evict by LRU, ftld's `dftl` by segmented LRU, as DFTL's authors\n"
            "  propose. Each has the hit ratio of its rule. FlashSim's GC enters moved pages into the cache as clean\n"
            "  entries that leave first. So they do not change its hit ratio, and GC never writes a mapping page;\n"
            "  ftld's does, for moved pages whose entries are not cached; they count as copies, not in the last column."
        )
    return "## Why they differ\n\n" + "".join(f"- {point}\n" for point in points)


def outcome(maps, stops):
    """The differences in write amplification, in a line."""

    def span(pairs):
        parts = [ours / theirs - 1 for ours, theirs in pairs]
        return f"{min(parts) * 100:+.2f} to {max(parts) * 100:+.2f} %"

    text = f"write amplification beside {', '.join({peer.name: None for _, peer, _, _ in maps})}: "
    text += span((followed[-1][1].amplification, theirs.amplification) for _, _, theirs, followed in maps) + " with their rules"
    if stops:
        text += ", " + span((counts.amplification, later.amplification) for *_, later, counts in stops) + " where GC stops alike, too"
    return text


# The table of docs/VALIDATION.md.
SUMMARY = re.compile(r"(?<=<!-- begin amplification -->\n\n).*?(?=\n\n<!-- end amplification -->)", re.DOTALL)


def summary(record):
    """Some columns of the record's first table of write amplifications."""
    _, _, rest = record.partition("## Write amplification of a page map\n\n")
    rows = [line.strip("| ").split(" | ") for line in rest.partition("\n\n")[0].splitlines()]
    chosen = [[row[0], row[1], row[2], row[5], row[8], row[9]] for row in rows[2:]]
    return table(["load", "simulator", "its WAF", "ftld, shared rules", "ftld, its rules", "difference"], chosen).rstrip()


def compose(device, revisions, drive_writes, maps, stops, hits, limit, state="-"):
    """Returns the record, and a line for every difference that the rules do not explain."""
    of = {peer.name: peer for _, peer, _, _ in maps}
    peers = table(["simulator", "commit", "scheme"], [[name, revisions[name], of[name].scheme] for name in of])
    options = " ".join(f"--{peer.option} DIR" for peer in of.values())
    warm_up, measured = drive_writes
    text = HEAD.format(
        count=len(of), command=f"tests/validation.py {options}", peers=peers, blocks=device.blocks, pages=device.pages_per_block,
        state=state, outcome=outcome(maps, stops), logical=device.logical_blocks, op=(device.blocks / device.logical_blocks - 1) * 100, free=4, warm_up=warm_up, measured=measured,
    )
    parts = [page_map_section(maps, limit)]
    if stops:
        parts.append(stop_section(stops, limit))
    names = list(dict.fromkeys(name for _, _, theirs, *_ in hits for name in theirs))
    if hits:
        parts.append(hit_section(hits, names, limit))
    text += "".join(part for part, _ in parts) + why(maps, hits)
    return text, [line for _, wrong in parts for line in wrong]
