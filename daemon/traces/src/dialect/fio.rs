//! I/O logs written by fio with `--write_iolog`, versions 2 and 3. Version 2 has no times except
//! `wait` in microseconds. Version 3 begins every line with microseconds since the start, as fio
//! writes them. Each file is a separate device, numbered in the order of addition.

use super::{BYTES, Parse, TraceFormat, Units, ValueError, no_other_reading};
use crate::convert::to_u64;
use crate::fields::{number, record, shown};
use crate::record::{Op, Record};

pub(super) const DIALECT: TraceFormat = TraceFormat {
    name: "fio",
    title: "fio iolog, version 2 or 3",
    line: "\"fio version 2 iolog\" or 3 in the first line, then [microseconds] FILE ACTION [OFFSET LENGTH]",
    units: Units::new("us", BYTES, BYTES),
    parser: || {
        Box::new(Fio {
            version: None,
            now_us: 0,
            files: Vec::new(),
        })
    },
    other_reading: no_other_reading,
};

struct Fio {
    version: Option<u8>,
    now_us: u64,
    files: Vec<String>,
}

/// Largest number of files in a log; bounds the memory for their names.
const FILES_MAX: usize = 4096;

impl Parse for Fio {
    fn line(&mut self, line: &str) -> Result<Option<Record>, ValueError> {
        match (self.version, line) {
            (Some(version), _) => self.action(version, line),
            (None, "fio version 2 iolog") => {
                self.version = Some(2);
                Ok(None)
            }
            (None, "fio version 3 iolog") => {
                self.version = Some(3);
                Ok(None)
            }
            (None, other) => Err(ValueError::Text(shown(other), "the first line of an iolog")),
        }
    }
}

impl Fio {
    fn action(&mut self, version: u8, line: &str) -> Result<Option<Record>, ValueError> {
        assert!(
            matches!(version, 2 | 3),
            "an action in an iolog of version {version}"
        );
        let mut words: Vec<_> = line.split_ascii_whitespace().collect();
        if version == 3 {
            self.now_us = number("time", words.first().copied().unwrap_or(""))?;
            words.remove(0);
        }
        match words[..] {
            [file, "add"] => self.add(file),
            [file, "open" | "close"] => self.device(file).map(|_| None),
            [file, action, offset, length] => self.request(file, action, offset, length),
            [
                _,
                "read" | "write" | "trim" | "sync" | "datasync" | "wait",
                ..,
            ] => Err(ValueError::Misfit("offset and length are missing".into())),
            _ => Err(ValueError::Misfit("no action".into())),
        }
    }

    fn add(&mut self, file: &str) -> Result<Option<Record>, ValueError> {
        if self.files.len() == FILES_MAX {
            return Err(ValueError::Misfit(format!("more than {FILES_MAX} files")));
        }
        if !self.files.iter().any(|known| known == file) {
            self.files.push(file.into());
        }
        assert!(
            self.files.len() <= FILES_MAX,
            "{} files, limited to {FILES_MAX}",
            self.files.len()
        );
        Ok(None)
    }

    fn device(&self, file: &str) -> Result<u64, ValueError> {
        let known = self.files.iter().position(|known| known == file);
        known
            .map(to_u64)
            .ok_or_else(|| ValueError::column("file", file, "was never added"))
    }

    fn request(
        &mut self,
        file: &str,
        action: &str,
        offset: &str,
        length: &str,
    ) -> Result<Option<Record>, ValueError> {
        let device = self.device(file)?;
        let offset = number(if action == "wait" { "wait" } else { "offset" }, offset)?;
        let op = match action {
            "read" => Op::Read,
            "write" => Op::Write,
            "trim" => Op::Trim,
            "sync" | "datasync" => return Ok(None),
            "wait" => {
                self.now_us = self.now_us.checked_add(offset).ok_or_else(|| {
                    ValueError::Misfit("waits add up to more than there is time".into())
                })?;
                return Ok(None);
            }
            other => {
                let fault = "is not read, write, trim, sync, datasync or wait";
                return Err(ValueError::column("action", other, fault));
            }
        };
        let at = self
            .now_us
            .checked_mul(1_000)
            .ok_or_else(|| ValueError::too_large("time", &self.now_us.to_string()))?;
        record(at, op, device, offset, number("length", length)?).map(Some)
    }
}
