"""Mapping caches of single entries, as short as they can be: the hit ratio that a rule of replacement must have."""

from collections import OrderedDict


def lru(load, entries):
    """The least recently used entry leaves."""
    cache = OrderedDict()
    hits = 0
    for i, (_, page) in enumerate(load.requests):
        if page in cache:
            cache.move_to_end(page)
            hits += i >= load.measured_from
            continue
        cache[page] = None
        if len(cache) > entries:
            cache.popitem(last=False)
    return hits / (len(load.requests) - load.measured_from)


def segmented_lru(load, entries):
    """A second use protects an entry; half the entries may be protected, and others leave first."""
    probation, protected = OrderedDict(), OrderedDict()
    hits = 0
    for i, (_, page) in enumerate(load.requests):
        hit = page in protected or page in probation
        hits += hit and i >= load.measured_from
        if page in protected:
            protected.move_to_end(page)
        elif hit:
            del probation[page]
            protected[page] = None
            if len(protected) > entries // 2:
                probation[protected.popitem(last=False)[0]] = None
        else:
            probation[page] = None
            if len(probation) + len(protected) > entries:
                probation.popitem(last=False)
    return hits / (len(load.requests) - load.measured_from)
