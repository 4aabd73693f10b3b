//! What a machine and the host tell each other over a serial line: a kind, a length of 32 bits, and
//! as many bytes.

use std::io::{self, ErrorKind, Read, Write};

/// A message. Every [`Frame::Ask`] has one [`Frame::Answer`], in order: a part of the answer. The
/// last part is shorter than [`PART_BYTES`]; before it, an empty [`Frame::Ask`] asks for the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// Output of COMMAND.
    Output(Vec<u8>),
    /// A line for the control socket of the device, or the verdict on a state; empty for more.
    Ask(Vec<u8>),
    /// What the host answers; empty if it cannot.
    Answer(Vec<u8>),
    /// The machine's last message, as JSON.
    End(Vec<u8>),
}

/// Bytes of a part of an answer: the machine's line stops at more than 4 KiB that are not read.
pub(super) const PART_BYTES: usize = 1024;
/// Longest content of a frame.
pub(super) const CONTENT_MAX: usize = 1 << 20;

impl Frame {
    /// Reads a frame; `None` at the end of the line.
    ///
    /// # Errors
    /// The line ends within a frame, or what was read is none.
    pub(super) fn read(from: &mut impl Read) -> io::Result<Option<Frame>> {
        let mut head = [0; 5];
        match from.read(&mut head[..1]) {
            Ok(0) => return Ok(None),
            Ok(_) => from.read_exact(&mut head[1..])?,
            Err(error) if error.kind() == ErrorKind::Interrupted => return Frame::read(from),
            Err(error) => return Err(error),
        }
        let [kind, length @ ..] = head;
        let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
        let make = match kind {
            b'o' => Frame::Output,
            b'q' => Frame::Ask,
            b'a' => Frame::Answer,
            b'e' => Frame::End,
            _ => return Err(io::Error::new(ErrorKind::InvalidData, "no kind of a frame")),
        };
        if length > CONTENT_MAX {
            return Err(io::Error::new(ErrorKind::InvalidData, "a frame too long"));
        }
        let mut content = vec![0; length];
        from.read_exact(&mut content)?;
        Ok(Some(make(content)))
    }

    /// Writes the frame; one longer than [`CONTENT_MAX`] is a bug.
    ///
    /// # Errors
    /// The line cannot be written.
    pub(super) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let (kind, content) = match self {
            Frame::Output(bytes) => (b'o', bytes),
            Frame::Ask(bytes) => (b'q', bytes),
            Frame::Answer(bytes) => (b'a', bytes),
            Frame::End(bytes) => (b'e', bytes),
        };
        assert!(content.len() <= CONTENT_MAX, "{} bytes", content.len());
        let length = u32::try_from(content.len()).expect("a bounded content");
        let head = [&[kind][..], &length.to_le_bytes()].concat();
        to.write_all(&[&head[..], content].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives a byte at a time, as a serial line may.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let length = to.len().min(1);
            self.0.read(&mut to[..length])
        }
    }

    #[test]
    fn frames_are_read_as_written() {
        let frames = [
            Frame::Output(b"\xff\0\n".to_vec()),
            Frame::Ask(b"{}".to_vec()),
            Frame::Answer(Vec::new()),
            Frame::End(vec![7; CONTENT_MAX]),
        ];
        let mut bytes = Vec::new();
        for frame in &frames {
            frame.write(&mut bytes).unwrap();
        }
        let mut line = Slow(&bytes);
        for frame in &frames {
            assert_eq!(Frame::read(&mut line).unwrap().as_ref(), Some(frame));
        }
        assert_eq!(Frame::read(&mut line).unwrap(), None);
    }

    #[test]
    fn bytes_that_are_no_frame_are_refused() {
        let kind = |bytes: &[u8]| Frame::read(&mut Slow(bytes)).unwrap_err().kind();
        assert_eq!(kind(b"o\x03\0\0\0ab"), ErrorKind::UnexpectedEof);
        assert_eq!(kind(b"o\x03"), ErrorKind::UnexpectedEof);
        assert_eq!(kind(b"x\0\0\0\0"), ErrorKind::InvalidData);
        assert_eq!(kind(b"o\x01\0\x10\0"), ErrorKind::InvalidData);
        assert_eq!(kind(b"login: "), ErrorKind::InvalidData);
    }
}
