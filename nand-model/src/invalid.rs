//! Flash that cannot be: what is wrong in the description of a device, or in the bytes of an image.

/// A value that is refused: each message names it, and what it needs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// A count or size of a [`Geometry`](crate::Geometry).
    #[error("geometry: {0}")]
    Geometry(String),
    /// A constant of an [`ErrorLaw`](crate::ErrorLaw).
    #[error("bit errors: {0}")]
    BitErrors(String),
    /// A name or a word line of a [`Pairing`](crate::Pairing).
    #[error("{0}")]
    Pairing(String),
    /// Another figure of a [`Profile`](crate::Profile).
    #[error("{0}")]
    Profile(String),
    /// A field or record of an image.
    #[error("{0}")]
    Image(String),
}

/// Returns an error of this kind if a condition does not hold.
pub(crate) fn ensure(
    holds: bool,
    kind: fn(String) -> Invalid,
    text: impl FnOnce() -> String,
) -> Result<(), Invalid> {
    holds.then_some(()).ok_or_else(|| kind(text()))
}
