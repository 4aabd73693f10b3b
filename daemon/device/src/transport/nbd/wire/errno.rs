//! Error numbers of the protocol, and the one for an error of the host.

/// Error numbers of the protocol, equal to those of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Errno {
    /// Not permitted.
    Perm = 1,
    /// Input/output error.
    Io = 5,
    /// Out of memory.
    NoMem = 12,
    /// Invalid argument.
    Inval = 22,
    /// No space left.
    NoSpace = 28,
    /// Does not fit one chunk.
    Overflow = 75,
    /// Not supported.
    NotSup = 95,
    /// The server is shutting down.
    Shutdown = 108,
}

impl Errno {
    /// The number on the wire.
    pub(crate) const fn code(self) -> u32 {
        self as u32
    }

    /// Returns the closest protocol error; an I/O error if there is none.
    pub(crate) fn from_io(error: &std::io::Error) -> Errno {
        use std::io::ErrorKind as Kind;
        match (error.raw_os_error(), error.kind()) {
            (Some(22), _) => Errno::Inval,
            (Some(75), _) => Errno::Overflow,
            (Some(95), _) => Errno::NotSup,
            (Some(108), _) => Errno::Shutdown,
            (_, Kind::PermissionDenied | Kind::ReadOnlyFilesystem) => Errno::Perm,
            (_, Kind::OutOfMemory) => Errno::NoMem,
            (_, Kind::InvalidInput) => Errno::Inval,
            (_, Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge) => Errno::NoSpace,
            (_, Kind::Unsupported) => Errno::NotSup,
            _ => Errno::Io,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Error, ErrorKind};

    #[test]
    fn errors_of_the_host_become_protocol_errors() {
        for (raw, errno) in [
            (1, 1),
            (5, 5),
            (12, 12),
            (13, 1),
            (22, 22),
            (28, 28),
            (30, 1),
            (95, 95),
            (108, 108),
            (2, 5),
        ] {
            assert_eq!(
                Errno::from_io(&Error::from_raw_os_error(raw)) as u32,
                errno,
                "errno {raw}"
            );
        }
        assert_eq!(
            Errno::from_io(&Error::new(ErrorKind::InvalidInput, "x")),
            Errno::Inval
        );
        assert_eq!(Errno::from_io(&Error::other("x")), Errno::Io);
    }
}
