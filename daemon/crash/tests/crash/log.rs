//! A small append-only log. Records follow each other from byte 4096; the head, in the first block,
//! has their number and end. It knows nothing of `ftld-crash`.

use std::io::{self, Read, Seek, SeekFrom, Write};

/// First byte of the first record.
const FIRST: u64 = 4096;

/// Operations of a file that the log needs.
pub(crate) trait Storage: Read + Write + Seek {
    /// Makes everything written durable.
    fn sync(&mut self) -> io::Result<()>;
}

impl Storage for std::fs::File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

pub(crate) struct Log<S> {
    file: S,
    records: u64,
    end: u64,
    /// Syncs a record before the head counts it.
    careful: bool,
}

fn sum(bytes: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3);
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, step)
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("8 bytes"))
}

impl<S: Storage> Log<S> {
    /// Opens a log; a file of zeros is an empty one.
    pub(crate) fn open(mut file: S, careful: bool) -> io::Result<Log<S>> {
        let mut head = [0; 24];
        file.seek(SeekFrom::Start(0))?;
        file.read_exact(&mut head)?;
        let (records, end) = match head {
            [0, ..] if head == [0; 24] => (0, FIRST),
            _ if sum(&head[..16]) == number(&head[16..]) => {
                (number(&head[..8]), number(&head[8..16]))
            }
            _ => return Err(io::Error::other("the head is damaged")),
        };
        Ok(Log {
            file,
            records,
            end,
            careful,
        })
    }

    /// Appends a record, which is durable when this returns.
    pub(crate) fn append(&mut self, record: &[u8]) -> io::Result<()> {
        let length = record.len() as u64;
        let bytes = [
            &length.to_le_bytes()[..],
            &sum(record).to_le_bytes(),
            record,
        ]
        .concat();
        self.file.seek(SeekFrom::Start(self.end))?;
        self.file.write_all(&bytes)?;
        if self.careful {
            self.file.sync()?;
        }
        self.records += 1;
        self.end += bytes.len() as u64;
        let head = [self.records.to_le_bytes(), self.end.to_le_bytes()].concat();
        self.file.seek(SeekFrom::Start(0))?;
        self.file
            .write_all(&[&head[..], &sum(&head).to_le_bytes()].concat())?;
        self.file.sync()
    }

    /// Reads all records.
    pub(crate) fn records(&mut self) -> io::Result<Vec<Vec<u8>>> {
        self.file.seek(SeekFrom::Start(FIRST))?;
        let mut records = Vec::new();
        for at in 0..self.records {
            let mut head = [0; 16];
            self.file.read_exact(&mut head)?;
            let mut record = vec![0; number(&head[..8]).min(self.end) as usize];
            self.file.read_exact(&mut record)?;
            if record.is_empty() || sum(&record) != number(&head[8..]) {
                return Err(io::Error::other(format!(
                    "record {at} of {} is damaged",
                    self.records
                )));
            }
            records.push(record);
        }
        Ok(records)
    }
}
