//! Plans and steps as text.

use crate::swarm::plan::{ChipKind, Device, DiskFault, Down, Inside, Parts, Plan, Restart, Step};
use crate::workload::HostOp;
use ftld_host_disk::{Crash, SyncFault, WriteFault};
use nand_model::{Cut, Pairing};
use std::fmt;
use std::fmt::{Display, Formatter};

impl Display for Plan {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let Device {
            scheme,
            chip,
            pages_per_block,
            dies,
            pages,
            op_percent,
            params,
            worn,
            on_disk,
        } = &self.device;
        writeln!(f, "seed {}", self.seed)?;
        writeln!(
            f,
            "device scheme={} chip={} pages_per_block={pages_per_block} channels={} ways={} pages={pages} \
             op={op_percent} worn={worn} disk={on_disk}",
            scheme.name,
            chip.name(),
            dies.0,
            dies.1
        )?;
        params
            .iter()
            .try_for_each(|(key, value)| writeln!(f, "param {key}={value}"))?;
        self.parts
            .rates
            .iter()
            .try_for_each(|(fault, ppb)| writeln!(f, "chance {} {ppb}", fault.name()))?;
        let Parts {
            wear_out,
            bit_errors,
            ..
        } = self.parts;
        if wear_out > 0 {
            writeln!(f, "wear {wear_out}")?;
        }
        if bit_errors > 0 {
            writeln!(f, "bits {bit_errors}")?;
        }
        if self.parts.in_flight {
            writeln!(f, "in_flight")?;
        }
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            Step::Do(op) => write_request(f, op),
            Step::Cut(cut, restart) => write!(f, "cut {}{restart}", Words(cut)),
            Step::Down(Down::Stop, restart) => write!(f, "down stop{restart}"),
            Step::Down(Down::StopCut(cut), restart) => {
                write!(f, "down stop_cut {}{restart}", Words(cut))
            }
            Step::Down(Down::StopCrash(at, how), restart) => {
                write!(f, "down stop_crash {} {}{restart}", name(at), Words(how))
            }
            Step::Down(Down::Kill, restart) => write!(f, "down kill{restart}"),
            Step::Down(Down::PowerOff, restart) => write!(f, "down power_off{restart}"),
            Step::Down(Down::Crash(how), restart) => {
                write!(f, "down crash {}{restart}", Words(how))
            }
            Step::Age(hours) => write!(f, "age {hours}"),
            Step::Hammer(lpn, times, 1) => write!(f, "hammer {lpn} {times}"),
            Step::Hammer(lpn, times, count) => write!(f, "hammer {lpn} {times} {count}"),
            Step::WrongBits(page, bits, of_map) => {
                write!(
                    f,
                    "wrong_bits {page} {bits}{}",
                    if *of_map { " map" } else { "" }
                )
            }
            Step::LostOob(page, of_map) => {
                write!(f, "lost_oob {page}{}", if *of_map { " map" } else { "" })
            }
            Step::DieFails(die) => write!(f, "die_fails {die}"),
            Step::BlockFails(block, fault) => write!(f, "block_fails {block} {}", fault.name()),
            Step::Disk(DiskFault::Writes(WriteFault {
                after,
                count,
                arrives,
                errno,
                needs_room,
                ..
            })) => {
                let room = if *needs_room { " room" } else { "" };
                write!(
                    f,
                    "disk writes_fail {after} {} {arrives} {errno}{room}",
                    Count(*count)
                )
            }
            Step::Disk(DiskFault::Erases(count, errno)) => {
                write!(f, "disk erases_fail {} {errno}", Count(*count))
            }
            Step::Disk(DiskFault::Syncs(SyncFault { after, count, seed })) => {
                write!(f, "disk syncs_fail {after} {}", Count(*count))?;
                seed.map_or(Ok(()), |seed| write!(f, " {seed}"))
            }
            Step::Disk(DiskFault::Reads(permille, count)) => {
                write!(f, "disk reads_fail {permille} {}", Count(*count))
            }
            Step::Mend => write!(f, "mend"),
            Step::Sync => write!(f, "sync"),
            Step::GiveBack(slots) => write!(f, "give_back {slots}"),
        }
    }
}

fn write_request(f: &mut Formatter, op: &HostOp) -> fmt::Result {
    let fua = |fua: bool| if fua { " fua" } else { "" };
    match *op {
        HostOp::Write {
            lpn,
            count,
            fua: durable,
        } => write!(f, "write {lpn} {count}{}", fua(durable)),
        HostOp::WriteZeroData { lpn, count } => write!(f, "write_zero_data {lpn} {count}"),
        HostOp::WriteZeroes {
            lpn,
            count,
            fua: durable,
        } => write!(f, "write_zeroes {lpn} {count}{}", fua(durable)),
        HostOp::Trim { lpn, count } => write!(f, "trim {lpn} {count}"),
        HostOp::Flush => write!(f, "flush"),
        HostOp::Read { lpn, count } => write!(f, "read {lpn} {count}"),
        HostOp::Idle(budget) => write!(f, "idle {budget}"),
    }
}

impl Display for Restart {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        if let Some(how) = &self.crash {
            write!(f, " ; crash {}", Words(how))?;
        }
        self.inside.iter().try_for_each(|inside| match inside {
            Inside::Cut(cut, None) => write!(f, " ; inside cut {}", Words(cut)),
            Inside::Cut(cut, Some(how)) => {
                write!(f, " ; inside cut {} crash {}", Words(cut), Words(how))
            }
            Inside::Crash(at, how) => write!(f, " ; inside crash {} {}", name(at), Words(how)),
            Inside::Fails(blocks, after, cut) => {
                write!(f, " ; inside fails {blocks} {after} {}", Words(cut))
            }
            Inside::Kill => write!(f, " ; inside kill"),
        })
    }
}

/// The number of failures.
struct Count(u64);

impl Display for Count {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        if self.0 == u64::MAX {
            f.write_str("all")
        } else {
            write!(f, "{}", self.0)
        }
    }
}

/// A value of another crate in words.
struct Words<T>(T);

impl Display for Words<&Cut> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let Cut {
            at_op,
            program,
            partner,
            erase,
            seed,
            ..
        } = self.0;
        write!(
            f,
            "{at_op} {} {} {} {seed}",
            name(program),
            name(partner),
            name(erase)
        )
    }
}

impl Display for Words<&Crash> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        f.write_str(&name(self.0))
    }
}

/// A variant in lower case, its number after a colon: `Unstable(3)` is `unstable:3`.
pub(super) fn name(value: &impl fmt::Debug) -> String {
    let text = format!("{value:?}");
    let (word, number) = text.split_once('(').unwrap_or((&text, ""));
    let mut snake = String::new();
    for (i, letter) in word.char_indices() {
        if letter.is_uppercase() && i > 0 {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    match number.trim_end_matches(')') {
        "" => snake,
        number => format!("{snake}:{number}"),
    }
}

impl ChipKind {
    pub(super) fn name(self) -> String {
        match self {
            ChipKind::Slc => "slc".into(),
            ChipKind::Mlc => "mlc".into(),
            ChipKind::Tlc => "tlc".into(),
            ChipKind::Qlc => "qlc".into(),
            ChipKind::Paired(Pairing::Random { seed, span }) => format!("random:{seed}:{span}"),
            ChipKind::Paired(pairing) => name(&pairing),
        }
    }
}
