"""The other simulators, each a program that its reader built as its own documentation says."""

import json
import os
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass

TIMEOUT_S = 3600
# The largest share of the requests that a simulator may leave unserved; the page shows how many
# were.
UNSERVED = 1e-4


@dataclass(frozen=True)
class Counts:
    """Flash operations of the measured part of a load."""

    host_writes: int
    programs: int
    copies: int
    erases: int
    map_programs: int = 0
    lookups: int = 0
    hits: int = 0
    free_blocks: int = 0
    unserved: int = 0

    @property
    def amplification(self):
        return self.programs / self.host_writes

    @property
    def hit_ratio(self):
        return self.hits / self.lookups if self.lookups else None


class Failure(Exception):
    """A simulator did not do what was asked of it."""


def run(command, folder, stdin=""):
    command = [str(word) for word in command]
    try:
        done = subprocess.run(command, cwd=folder, input=stdin, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise Failure(f"{command[0]} did not end in {TIMEOUT_S} s") from None
    return done


class Ftlsim:
    """sssl-ftlsim (Desnoyers): its greedy pool, driven through its own Python module."""

    name = "sssl-ftlsim"
    option = "ftlsim"
    scheme = "greedy pool, driven through its Python module"
    DRIVER = textwrap.dedent(
        """
        import json, sys
        sys.path[:0] = sys.argv[1].split(":")
        import ftlsim, getaddr
        blocks, pages, free, more, before, measured = map(int, sys.argv[2:8])
        device = ftlsim.ftl(blocks, pages)
        device.minfree, device.maxfree = free, free + more
        device.get_input_pool = ftlsim.cvar.write_select_first
        device.get_pool_to_clean = ftlsim.cvar.clean_select_first
        pool = ftlsim.pool(device, "greedy", pages)
        pool.next_pool = pool
        segments = [ftlsim.segment(pages) for _ in range(blocks)]
        for segment in segments:
            segment.thisown = False
        pool.add_segment(segments[0])
        for segment in segments[1:]:
            device.put_blk(segment)
        trace = getaddr.trace(sys.argv[8])
        device.run(trace.handle, before)
        host, programs, erases = device.ext_writes, device.int_writes, sum(s.erasures for s in segments)
        device.run(trace.handle, measured)
        host, programs = device.ext_writes - host, device.int_writes - programs
        print(json.dumps([host, programs, sum(s.erasures for s in segments) - erases]))
        """
    )

    def __init__(self, clone):
        built = sorted(clone.glob("build/lib*/_ftlsim*.so")) + sorted(clone.glob("_ftlsim*.so"))
        if not built:
            raise Failure(f"--ftlsim {clone}: no _ftlsim*.so there; build the Python modules as README.txt says")
        self.path = f"{built[0].parent}:{clone}"

    def run(self, device, load, folder, free, more=0):
        load.addresses(folder / "addresses.txt")
        before = sum(op == "W" for op, _ in load.requests[: load.measured_from])
        shape = (device.blocks, device.pages_per_block, free, more, before, load.host_writes)
        done = run([sys.executable, "-c", self.DRIVER, self.path, *shape, "addresses.txt"], folder)
        if done.returncode != 0:
            raise Failure(f"{self.name} failed: {done.stderr.strip() or done.returncode}")
        host, programs, erases = json.loads(done.stdout)
        if host != load.host_writes:
            raise Failure(f"{self.name} did {host} of {load.host_writes} writes")
        return Counts(host, programs, programs - host, erases)


class Counted:
    """A simulator that counts from the start of a run: two runs, with and without the measured part, and the difference."""

    def run(self, device, load, folder, **rules):
        counted = []
        for part, count in (("before", load.measured_from), ("all", len(load.requests))):
            place = folder / part
            place.mkdir(parents=True, exist_ok=True)
            load.ascii(place / "load.trace", count)
            counted.append(self.once(device, place, count, **rules))
        before, whole = counted
        host = load.host_writes
        change = {key: whole[key] - before[key] for key in whole}
        return Counts(host_writes=host, copies=change["programs"] - host, **change)


class Mqsim(Counted):
    """MQSim (Tavakkol et al., FAST 2018)."""

    name = "MQSim"
    option = "mqsim"
    scheme = "page-level map; ideal mapping table, and a limited one"
    FREE = 10  # max_ongoing_gc_reqs_per_plane: the least that its GC keeps free, whatever its threshold is

    def __init__(self, clone):
        self.program = clone / "MQSim"
        if not self.program.is_file():
            raise Failure(f"--mqsim {clone}: no MQSim there; build it as README.md says")

    @staticmethod
    def xml(tag, values):
        inner = "".join(f"<{key}>{value}</{key}>" if not str(value).startswith("<") else value for key, value in values.items())
        return f"<{tag}>{inner}</{tag}>"

    def once(self, device, folder, count, free=FREE, cache_entries=None, static_wear=False, policy="GREEDY"):
        pages = device.blocks * device.pages_per_block
        # An entry has two page numbers and a bit per sector.
        entry_bytes = -(-(2 * (pages - 1).bit_length() + 8) // 8)
        host = {
            "PCIe_Lane_Bandwidth": 1.0,
            "PCIe_Lane_Count": 4,
            "SATA_Processing_Delay": 1,
            "Enable_ResponseTime_Logging": "false",
            "ResponseTime_Logging_Period_Length": 1_000_000,
        }
        flash = {
            "Flash_Technology": "SLC",
            "CMD_Suspension_Support": "NONE",
            **{f"Page_Read_Latency_{bits}": 1000 for bits in ("LSB", "CSB", "MSB")},
            **{f"Page_Program_Latency_{bits}": 1000 for bits in ("LSB", "CSB", "MSB")},
            "Block_Erase_Latency": 1000,
            "Block_PE_Cycles_Limit": 1_000_000,
            "Suspend_Erase_Time": 1000,
            "Suspend_Program_Time": 1000,
            "Die_No_Per_Chip": 1,
            "Plane_No_Per_Die": 1,
            "Block_No_Per_Plane": device.blocks,
            "Page_No_Per_Block": device.pages_per_block,
            "Page_Capacity": 4096,
            "Page_Metadat_Capacity": 128,
        }
        ssd = {
            "Seed": 1,
            "Enabled_Preconditioning": "false",
            "Memory_Type": "FLASH",
            "HostInterface_Type": "NVME",
            "IO_Queue_Depth": 1024,
            "Queue_Fetch_Size": 512,
            "Caching_Mechanism": "SIMPLE",
            "Data_Cache_Sharing_Mode": "SHARED",
            "Data_Cache_Capacity": 1 << 20,
            "Data_Cache_DRAM_Row_Size": 8192,
            "Data_Cache_DRAM_Data_Rate": 800,
            "Data_Cache_DRAM_Data_Busrt_Size": 4,
            "Data_Cache_DRAM_tRCD": 13,
            "Data_Cache_DRAM_tCL": 13,
            "Data_Cache_DRAM_tRP": 13,
            "Address_Mapping": "PAGE_LEVEL",
            "Ideal_Mapping_Table": "false" if cache_entries else "true",
            "CMT_Capacity": (cache_entries or device.pages) * entry_bytes,
            "CMT_Sharing_Mode": "SHARED",
            "Plane_Allocation_Scheme": "CWDP",
            "Transaction_Scheduling_Policy": "OUT_OF_ORDER",
            "Overprovisioning_Ratio": repr(1 - device.logical_blocks / device.blocks),
            # Half a block more: the simulator rounds the product down to whole blocks.
            "GC_Exec_Threshold": repr((free + 0.5) / device.blocks),
            "GC_Block_Selection_Policy": policy,
            "Use_Copyback_for_GC": "false",
            "Preemptible_GC_Enabled": "false",
            "GC_Hard_Threshold": repr(1 / device.blocks),
            "Dynamic_Wearleveling_Enabled": "false",
            "Static_Wearleveling_Enabled": str(static_wear).lower(),
            "Static_Wearleveling_Threshold": 100,
            "Preferred_suspend_erase_time_for_read": 1000,
            "Preferred_suspend_erase_time_for_write": 1000,
            "Preferred_suspend_write_time_for_read": 1000,
            "Flash_Channel_Count": 1,
            "Flash_Channel_Width": 1,
            "Channel_Transfer_Rate": 333,
            "Chip_No_Per_Channel": 1,
            "Flash_Comm_Protocol": "NVDDR2",
            "Flash_Parameter_Set": self.xml("Flash_Parameter_Set", flash),
        }
        config = {"host": self.xml("Host_Parameter_Set", host), "device": self.xml("Device_Parameter_Set", ssd)}
        head = '<?xml version="1.0" encoding="us-ascii"?>\n'
        (folder / "ssd.xml").write_text(head + self.xml("Execution_Parameter_Set", config))
        flow = {
            "Priority_Class": "HIGH",
            "Device_Level_Data_Caching_Mode": "TURNED_OFF",
            **{f"{part}_IDs": 0 for part in ("Channel", "Chip", "Die", "Plane")},
            "Initial_Occupancy_Percentage": 100,
            "File_Path": "load.trace",
            "Percentage_To_Be_Executed": 100,
            "Relay_Count": 1,
            "Time_Unit": "NANOSECOND",
        }
        scenario = {"flow": self.xml("IO_Flow_Parameter_Set_Trace_Based", flow)}
        work = {"scenario": self.xml("IO_Scenario", scenario)}
        (folder / "load.xml").write_text(head + self.xml("MQSim_IO_Scenarios", work))
        done = run([self.program, "-i", "ssd.xml", "-w", "load.xml"], folder)
        result = folder / "load_scenario_1.xml"
        if not result.is_file():
            raise Failure(f"{self.name} wrote no result (exit code {done.returncode}): {(done.stderr or done.stdout).strip()[-200:]}")
        text = result.read_text()

        def value(key):
            found = re.search(rf'{key}="(\d+)"|<{key}>(\d+)<', text)
            if not found:
                raise Failure(f"{self.name}: no {key} in {result}")
            return int(found[1] or found[2])

        served = re.search(r"total requests serviced: *(\d+)", done.stdout)
        unserved = count + 1 - int(served[1]) if served else count + 1
        if unserved > UNSERVED * count:
            ended = f"ended with exit code {done.returncode}"
            raise Failure(f"{self.name} served {served[1] if served else 'none'} of {count + 1} requests and {ended}")
        counts = {"programs": value("Issued_Flash_Program_CMD"), "erases": value("Issued_Flash_Erase_CMD"), "unserved": unserved}
        if cache_entries:
            counts["map_programs"] = value("Issued_Flash_Program_CMD_For_Mapping")
            counts["lookups"], counts["hits"] = value("Total_CMT_Queries"), value("CMT_Hits")
        return counts


class Ssdsim(Counted):
    """SSDsim 2.1 (Hu et al., ICS 2011)."""

    name = "SSDsim"
    option = "ssdsim"
    scheme = "page-level map"
    PAGES_PER_BLOCK = 64  # fixed in its source

    def __init__(self, clone):
        self.program = clone / "ssd"
        if not self.program.is_file():
            raise Failure(f"--ssdsim {clone}: no ssd there; build it with its Makefile")

    def once(self, device, folder, count, free_pages):
        if device.pages_per_block != self.PAGES_PER_BLOCK:
            raise Failure(f"{self.name} has {self.PAGES_PER_BLOCK} pages per block in its source")
        times = "CLS CLH CS CH WP ALS ALH DS DH WC WH ADL AR CLR RR RP WB RC REA CEA RHZ CHZ RHOH RLOH COH REH IR RHW WHR RST DBSY"
        values = {
            "dram capacity": 0,
            "chip number[0]": 1,
            "channel number": 1,
            "chip number": 1,
            "die number": 1,
            "plane number": 1,
            "block number": device.blocks,
            "page number": device.pages_per_block,
            "subpage page": 8,
            "page capacity": 4096,
            "subpage capacity": 512,
            **{f"t_{time}": 10 for time in times.split()},
            "t_PROG": 1000,
            "t_R": 1000,
            "t_BERS": 1000,
            "erase limit": 1_000_000,
            "address mapping": 1,
            "wear leveling": 0,
            "gc": 1,
            "overprovide": 1 - device.logical_blocks / device.blocks,
            "gc threshold": free_pages / device.pages,
            "gc hard threshold": free_pages / device.pages,
            "buffer management": 0,
            "scheduling algorithm": 1,
            "allocation": 0,
            "static_allocation": 0,
            "dynamic_allocation": 0,
            "advanced command": 0,
            "advanced command priority": 0,
            "greed CB command": 0,
            "greed MPW command": 0,
            "aged": 0,
            "aged ratio": 0,
        }
        (folder / "page.parameters").write_text("".join(f"{key} = {value};\n" for key, value in values.items()))
        statistics = folder / "statistic10.dat"
        statistics.unlink(missing_ok=True)
        done = run([self.program], folder, "load.trace\n")
        text = statistics.read_text(errors="replace") if statistics.is_file() else ""

        def value(key):
            found = re.search(rf"^{key}: *(\d+)", text, re.M)
            if not found:
                raise Failure(f"{self.name}: no {key} in {statistics} (exit code {done.returncode})")
            return int(found[1])

        served = value("read request count") + value("write request count")
        if served != count:
            raise Failure(f"{self.name} served {served} of {count} requests")
        return {"programs": value("write flash count"), "erases": value("erase count")}


class Flashsim:
    """FlashSim with Bjorling's DFTL. Its "page" FTL keeps no map and copies nothing, so its DFTL stands for it."""

    name = "FlashSim"
    option = "flashsim"
    scheme = "DFTL; the whole map cached, and a part"

    def __init__(self, clone):
        self.program = clone / "ufliptrace"
        if not self.program.is_file():
            raise Failure(f"--flashsim {clone}: no ufliptrace there; build it with its Makefile")

    @staticmethod
    def entries_per_page(device):
        bits = device.pages.bit_length() - 1
        return 4096 // -(-bits // 8)

    def run(self, device, load, folder, cache_pages):
        traces = folder / "traces"
        traces.mkdir(parents=True, exist_ok=True)
        # It runs both files, then both again, and has the statistics of each file of the second round.
        load.uflip(traces / "1-before", traces / "2-measured")
        values = {
            "SSD_SIZE": 1,
            "PACKAGE_SIZE": 1,
            "DIE_SIZE": 1,
            "PLANE_SIZE": device.blocks,
            "BLOCK_SIZE": device.pages_per_block,
            "BLOCK_ERASES": 1_000_000,
            "PAGE_SIZE": 4096,
            "PAGE_ENABLE_DATA": 0,
            "MAP_DIRECTORY_SIZE": 0,
            "FTL_IMPLEMENTATION": 3,
            "CACHE_DFTL_LIMIT": cache_pages,
            "PARALLELISM_MODE": 0,
            "VIRTUAL_BLOCK_SIZE": 1,
            "VIRTUAL_PAGE_SIZE": 1,
        }
        (folder / "ssd.conf").write_text("".join(f"{key} {value}\n" for key, value in values.items()))
        log = folder / "output.log"
        log.unlink(missing_ok=True)
        done = run([self.program, f"{traces}{os.sep}"], folder, "\n")
        if done.returncode != 0 or not log.is_file():
            reason = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
            raise Failure(f"{self.name} failed: {reason[0]}")
        # The names of its columns, and a row per file.
        head, *rows = [line.rstrip(";\n").split(";") for line in log.read_text().splitlines()]
        row = dict(zip(head, rows[-1]))
        if int(row["NumIOWrites"]) != load.host_writes:
            raise Failure(f"{self.name} did {row['NumIOWrites']} of {load.host_writes} writes")
        programs, map_programs, copies = int(row["numFTLWrite"]), int(row["numGCWrite"]), int(row["numWLWrite"])
        hits = int(row["numCacheHits"])
        lookups = hits + int(row["numCacheFaults"])
        free = re.search(r"^Free blocks: (\d+)", done.stdout, re.M)
        if not free:
            raise Failure(f"{self.name} printed no number of free blocks")
        return Counts(load.host_writes, programs, copies, int(row["numFTLErase"]), map_programs, lookups, hits, int(free[1]))


PEERS = [Ftlsim, Mqsim, Ssdsim, Flashsim]
