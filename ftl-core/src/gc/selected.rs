//! The policies of a device: one chooses streams, and the same or another one victims.

use super::placement;
use super::policy::{self, DataBlock, Device, HostWrite, InvalidPage, NewPolicy, PageCopy, Policy};
use crate::author::contract;
use crate::config::Params;
use crate::error::FtlError;
use nand_model::{Geometry, Pbn};

/// Maximal number of streams of either kind: each lane keeps a block open.
pub(super) const STREAMS_MAX: u32 = 16;

/// Policies of a scheme itself, and the device for which they are created.
#[derive(Clone, Copy)]
pub(crate) struct Own {
    /// Names and policies. The first is the scheme's default, for streams and for victims.
    pub(crate) list: &'static [(&'static str, NewPolicy)],
    pub(crate) device: Device,
}

impl Own {
    /// Returns the policies of a scheme without policies of its own, to learn their streams.
    pub(crate) fn none(geometry: &Geometry) -> Own {
        Own::none_of(geometry, 0)
    }

    /// Returns them for a device with this number of logical pages.
    pub(crate) fn none_of(geometry: &Geometry, logical_pages: u32) -> Own {
        let device = Device {
            geometry: *geometry,
            logical_pages,
        };
        Own { list: &[], device }
    }

    fn default_name(&self, of_ftld: &'static str) -> String {
        let first = self.list.first();
        first.map_or(of_ftld, |(name, _)| name).to_owned()
    }

    /// Returns the policy of this name, if the scheme has one.
    fn create(&self, name: &str, params: &Params) -> Result<Option<Box<dyn Policy>>, FtlError> {
        let found = self.list.iter().find(|(known, _)| *known == name);
        let created = found.map(|(_, new)| new(&self.device, params));
        created.transpose()
    }

    /// Returns the names, for a message: `mine, `.
    pub(super) fn names(&self) -> String {
        let names = self.list.iter().map(|(name, _)| format!("{name}, "));
        names.collect()
    }
}

/// Chooses victims.
enum Victims {
    /// The block with the fewest valid pages, without a question.
    Greedy,
    /// The policy that chooses streams.
    Placement,
    /// Another policy.
    Other(Box<dyn Policy>),
}

/// The policies of a device.
pub(crate) struct Policies {
    placement: Box<dyn Policy>,
    victims: Victims,
    /// Numbers of streams of the host and of copies.
    streams: (u32, u32),
    /// Whether one of the policies needs a call for every page.
    needs_every_page: bool,
    /// Time of the last write.
    now: u64,
}

impl Policies {
    /// Returns the policies that the parameters select.
    ///
    /// # Errors
    /// [`FtlError::Config`] if there is no policy of this name, or it cannot work.
    pub(super) fn from_params(params: &Params, own: &Own) -> Result<Policies, FtlError> {
        let default = own.default_name("copies_apart");
        let name: String = params.get(placement::PLACEMENT_PARAM.key, default)?;
        let of_scheme = own.create(&name, params)?;
        let mut needs_every_page = of_scheme.as_ref().is_some_and(|own| own.needs_every_page());
        let is_own = of_scheme.is_some();
        let placement = match of_scheme {
            Some(own) => own,
            None => placement::of_ftld(&name, own)?,
        };
        let is_both = !is_own && placement::CHOOSE_VICTIMS.contains(&name.as_str());
        let default = match is_both {
            true => name.clone(),
            false => own.default_name("greedy"),
        };
        let victims: String = params.get(policy::POLICY_PARAM.key, default)?;
        refuse_contradiction(&name, is_both, &victims)?;
        needs_every_page |= is_both;
        let victims = if (is_own || is_both) && victims == name {
            Victims::Placement
        } else if let Some(other) = own.create(&victims, params)? {
            needs_every_page |= other.needs_every_page();
            Victims::Other(other)
        } else {
            policy::of_ftld(&victims, params, own)?.map_or(Victims::Greedy, Victims::Other)
        };
        let streams = placement.streams();
        let (host, copies) = streams;
        if !(1..=STREAMS_MAX).contains(&host) || copies > STREAMS_MAX {
            let contract = contract::STREAMS;
            let text = format!("{contract}: {name} returned {host} and {copies}");
            return Err(FtlError::Config(text));
        }
        Ok(Policies {
            placement,
            victims,
            streams,
            needs_every_page,
            now: 0,
        })
    }

    /// Returns whether the placement reads the replaced version of a write.
    pub(super) fn need_replaced(&self) -> bool {
        self.needs_every_page || self.placement.needs_replaced()
    }

    /// Returns whether a policy reads the ages of blocks.
    pub(super) fn need_age(&self) -> bool {
        self.needs_every_page || self.placement.needs_age()
    }

    /// Returns the time of the last write.
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// Returns the numbers of streams of the host and of copies.
    pub(super) fn streams(&self) -> (u32, u32) {
        self.streams
    }

    /// Returns whether a policy needs a call for every page.
    #[inline(always)]
    pub(super) fn need_every_page(&self) -> bool {
        self.needs_every_page
    }

    /// Returns whether a policy needs the order of closing.
    pub(super) fn want_order(&self) -> bool {
        match &self.victims {
            Victims::Greedy => false,
            Victims::Placement => self.placement.wants_order(),
            Victims::Other(other) => other.wants_order(),
        }
    }

    /// Returns the bytes of all policies: as a paper would count them, and as allocated.
    pub(super) fn bytes(&self) -> (u64, u64) {
        let (paper, real) = self.placement.bytes();
        match &self.victims {
            Victims::Other(other) => {
                let of_other = other.bytes();
                (paper + of_other.0, real + of_other.1)
            }
            _ => (paper, real),
        }
    }

    /// Returns the policy that chooses victims; `None` is greedy.
    pub(super) fn of_victims(&mut self) -> Option<&mut dyn Policy> {
        match &mut self.victims {
            Victims::Greedy => None,
            Victims::Placement => Some(&mut *self.placement),
            Victims::Other(other) => Some(&mut **other),
        }
    }

    /// Returns the policy for victims, if it is another one and needs a call for every page.
    #[inline(always)]
    fn listener(&mut self) -> Option<&mut dyn Policy> {
        match &mut self.victims {
            Victims::Other(other) if self.needs_every_page => Some(&mut **other),
            _ => None,
        }
    }

    /// Returns the stream of a write of the host.
    #[inline(always)]
    pub(super) fn stream_of_write(&mut self, write: &HostWrite) -> u32 {
        self.now = write.now;
        if let Some(other) = self.listener() {
            other.stream_of_write(write);
        }
        let stream = self.placement.stream_of_write(write);
        let host = self.streams.0;
        contract::check(stream < host, contract::STREAM_OF_WRITE, || {
            format!(
                "{stream} for page {}; the streams are 0 to {}",
                write.lpn,
                host - 1
            )
        });
        stream.min(host - 1)
    }

    /// Returns the stream of a copy. With a single stream, it is the stream of the host.
    #[inline(always)]
    pub(super) fn stream_of_copy(&mut self, copy: &PageCopy) -> u32 {
        if let Some(other) = self.listener() {
            other.stream_of_copy(copy);
        }
        let stream = self.placement.stream_of_copy(copy);
        let (first, count) = match self.streams {
            (host, 0) => (0, host),
            of_copies => of_copies,
        };
        let last = first + count - 1;
        contract::check(
            (first..=last).contains(&stream),
            contract::STREAM_OF_COPY,
            || {
                format!(
                    "{stream} for a page of block {}; the streams are {first} to {last}",
                    copy.block
                )
            },
        );
        stream.clamp(first, last)
    }

    /// Reports an invalid page.
    pub(super) fn on_invalidate(&mut self, page: &InvalidPage) {
        self.now = page.now;
        if let Some(other) = self.listener() {
            other.on_invalidate(page);
        }
        self.placement.on_invalidate(page);
    }

    /// Reports a block that was filled; `times`: pages written, and time, since it was opened.
    pub(super) fn on_seal(&mut self, block: Pbn, stream: u32, times: (u64, u64)) {
        let block = self.data_block(block, stream, times);
        if let Some(other) = self.listener() {
            other.on_seal(&block);
        }
        self.placement.on_seal(&block);
    }

    /// Reports a block whose pages are about to be relocated; `times` as in [`Self::on_seal`].
    pub(super) fn on_collect(&mut self, block: Pbn, stream: u32, times: (u64, u64)) {
        let block = self.data_block(block, stream, times);
        if let Some(other) = self.listener() {
            other.on_collect(&block);
        }
        self.placement.on_collect(&block);
    }

    /// Reports an erased block.
    pub(super) fn on_erase(&mut self, block: Pbn) {
        if let Some(other) = self.listener() {
            other.on_erase(block);
        }
        self.placement.on_erase(block);
    }

    fn data_block(&self, block: Pbn, stream: u32, (lifetime, age): (u64, u64)) -> DataBlock {
        DataBlock {
            block,
            stream,
            lifetime,
            age,
            now: self.now,
        }
    }
}

/// Refuses two policies that exclude each other. `is_both`: the placement chooses victims too.
fn refuse_contradiction(placement: &str, is_both: bool, victims: &str) -> Result<(), FtlError> {
    let key = policy::POLICY_PARAM.key;
    if is_both && victims != placement {
        return Err(FtlError::Config(format!(
            "parameter {key}: {victims} contradicts gc.placement={placement}, which chooses the \
             victims too; leave {key} out"
        )));
    }
    if placement::CHOOSE_VICTIMS.contains(&victims) && victims != placement {
        return Err(FtlError::Config(format!(
            "parameter {key}: {victims} chooses the streams too; set gc.placement={victims} and \
             leave {key} out"
        )));
    }
    Ok(())
}
