"""Real traces, which are data of others: the page has figures, not traces."""

from .rows import Load
from .verdict import Setting

# By stem of the file: what it is, and how the device is filled and aged before it. Steady state where that takes minutes; larger
# devices get a share of a drive write, and their rows say so.
TRACES = {
    "spc_financial1_asu0": ("Financial1 (ASU 0)", "SPC Financial1, unit 0 of 24; UMass trace repository, from emma62042/trace", ("--precondition", "steady")),
    "1and1_windows_mssql": ("mssql", "a production MS-SQL server, one hour; from blkreplay-examples, Debian", ("--precondition", "steady")),
    "1and1_linux_mysql": ("mysql", "a production MySQL server, one hour; same source", ("--age", "0.5")),
    "cloudphysics_libcachesim": ("cloudphysics", "a disk of a virtual machine, two hours; CloudPhysics, as libCacheSim samples it", ("--age", "0.5")),
}
FINANCIAL1, MSSQL, MYSQL = "spc_financial1_asu0", "1and1_windows_mssql", "1and1_linux_mysql"


def load(ftld, stem, *instead):
    """The trace on a device as large as what it touches, filled and aged, or None if it is missing. `instead`: another state."""
    file = ftld.trace(stem)
    label, _, state = TRACES[stem]
    return file and Load(label, str(file), ("--address", "compact", *(instead or state)), True)


def loads(ftld, *stems):
    """The traces among these that are available, by stem."""
    found = {stem: load(ftld, stem) for stem in stems}
    return {stem: one for stem, one in found.items() if one}


def touched(ftld, stem):
    """Bytes of the extents that a trace touches."""
    rows = ftld.compare(f"extents-{stem}", [ftld.trace(stem)], ["pagemap"], "--address", "compact", "--precondition", "new", "--profile", "slc-2k")
    return rows[0]["device"]["size_bytes"]


# The three forms of a real trace, which no paper has: each claim about every load is tested on each.
FORMS = {
    "single": Setting("one pass, on a device that the trace filled"),
    "looped": Setting("passes until the write amplification has settled, then the measured ones"),
    "rotated": Setting("as looped, on a device that is filled, and each pass begins elsewhere"),
}


def forms(ftld, stem):
    """The trace in each form, by the name of the form."""
    found = {form: load(ftld, stem, "--form", form) for form in FORMS}
    return {form: one for form, one in found.items() if one}
