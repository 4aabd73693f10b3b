//! Seeded bugs: each breaks one thing that data depends on, at the place where the right thing is done. The suites have to find
//! every one of them (`tests/tests/canaries.rs`), or they would not find such a mistake of ours either.
//!
//! Only builds with the feature `canary` contain them; elsewhere [`sings`] is `false` at compile time and the hooks vanish. In a build
//! that contains them none sings until a test arms it, on its own thread alone.

/// A mistake that can be made on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// FLUSH programs no filler: the LSB pages it should cover wait for their partners.
    UnpaddedFlush,
    /// FLUSH makes data safe, but not the trim records beside it.
    TrimsLeftOutOfFlush,
    /// A program is acknowledged first and done before the chip's next operation.
    AcknowledgedBeforeProgram,
    /// The status of a program is not looked at.
    ProgramFailureIgnored,
    /// The status of an erase is not looked at.
    EraseFailureIgnored,
    /// A collected block is erased while its copies can still be lost.
    ErasedBeforeCopiesAreSafe,
    /// Of the pages that the next program may destroy, the one it surely destroys is not counted.
    OffByOnePage,
    /// A mapping page names pages that can still be lost.
    UnsafePageNamed,
    /// A mount takes the oldest checkpoint that it can read.
    StaleCheckpoint,
    /// A trim record is given up when one checkpoint contains it.
    TrimGivenUpEarly,
    /// A mount finds trim records and does nothing about them.
    TrimResurrected,
    /// A page is taken although its data fails its check.
    TornPageTaken,
    /// A mount leaves pages as they are that the cut may have made unstable.
    SuspectsKept,
    /// What a mount programs counts as soon as one page of filler follows.
    ProvisionalPagesCount,
    /// A block that looks blank after a cut is not erased again.
    BlankLookTrusted,
    /// FLUSH does not wait for a sync of the image.
    FlushWithoutSync,
    /// Every other sync of the image is left out.
    SyncSkipped,
    /// A sync that failed counts as done.
    SyncFailureIgnored,
    /// The room of an erased block is written again before the erase is synced.
    RoomReusedEarly,
    /// After a crash of the host, operations behind a gap in their sequence count.
    GapOverlooked,
}

impl Canary {
    /// All of them.
    pub const ALL: [Canary; 20] = [
        Canary::UnpaddedFlush,
        Canary::TrimsLeftOutOfFlush,
        Canary::AcknowledgedBeforeProgram,
        Canary::ProgramFailureIgnored,
        Canary::EraseFailureIgnored,
        Canary::ErasedBeforeCopiesAreSafe,
        Canary::OffByOnePage,
        Canary::UnsafePageNamed,
        Canary::StaleCheckpoint,
        Canary::TrimGivenUpEarly,
        Canary::TrimResurrected,
        Canary::TornPageTaken,
        Canary::SuspectsKept,
        Canary::ProvisionalPagesCount,
        Canary::BlankLookTrusted,
        Canary::FlushWithoutSync,
        Canary::SyncSkipped,
        Canary::SyncFailureIgnored,
        Canary::RoomReusedEarly,
        Canary::GapOverlooked,
    ];
}

#[cfg(feature = "canary")]
thread_local! {
    static ARMED: std::cell::Cell<Option<Canary>> = const { std::cell::Cell::new(None) };
}

/// From now on this canary sings on this thread, or none.
#[cfg(feature = "canary")]
pub fn arm(canary: Option<Canary>) {
    ARMED.set(canary);
}

/// Whether to make this mistake.
#[cfg(feature = "canary")]
#[inline]
pub fn sings(canary: Canary) -> bool {
    ARMED.get() == Some(canary)
}

/// Whether to make this mistake: never.
#[cfg(not(feature = "canary"))]
#[inline(always)]
pub const fn sings(_: Canary) -> bool {
    false
}
