//! The handler of SIGBUS, and the maps that it watches.
//!
//! Invariants: a fault in a watched map sets the map's flag first, then puts a page of zeros in the
//! place of the lost one, so that the interrupted copy ends. Any other fault gets the disposition
//! that was there before. The handler allocates nothing, takes no lock, and keeps errno.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Maximum number of maps at a time: the handler searches all of them.
const WATCHES: usize = 256;

/// A watched map.
#[derive(Debug)]
pub(crate) struct Watch {
    taken: AtomicBool,
    /// Address of the first byte; 0 while nothing is watched.
    base: AtomicUsize,
    /// One past the last byte of its last page.
    end: AtomicUsize,
    lost: AtomicBool,
}

static MAPS: [Watch; WATCHES] = [const {
    Watch {
        taken: AtomicBool::new(false),
        base: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        lost: AtomicBool::new(false),
    }
}; WATCHES];

/// Page size of the host; set before the handler is installed.
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(4096);
/// The disposition before ours.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

impl Watch {
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Ends the watch, before the map is removed.
    pub(crate) fn end(&self) {
        self.base.store(0, Ordering::SeqCst);
        self.taken.store(false, Ordering::Release);
    }

    fn holds(&self, address: usize) -> bool {
        let base = self.base.load(Ordering::SeqCst);
        let end = self.end.load(Ordering::SeqCst);
        // The end changes only while the base is 0.
        base != 0 && (base..end).contains(&address) && self.base.load(Ordering::SeqCst) == base
    }
}

/// Watches a map; `None` if too many are watched.
pub(crate) fn watch(base: usize, bytes: usize) -> Option<&'static Watch> {
    let free = MAPS.iter().find(|map| {
        let take = map
            .taken
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        take.is_ok()
    })?;
    let end = base + bytes.next_multiple_of(PAGE_BYTES.load(Ordering::Relaxed));
    free.lost.store(false, Ordering::SeqCst);
    free.end.store(end, Ordering::SeqCst);
    free.base.store(base, Ordering::SeqCst);
    Some(free)
}

/// Installs the handler, once per process.
///
/// # Errors
///
/// The kernel refuses it.
pub(crate) fn install() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
    INSTALLED
        .get_or_init(|| set_handler().map_err(|error| error.raw_os_error().unwrap_or(0)))
        .map_err(io::Error::from_raw_os_error)
}

fn set_handler() -> io::Result<()> {
    // SAFETY: a query without side effects.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    if let Ok(page @ 1..) = usize::try_from(page) {
        PAGE_BYTES.store(page, Ordering::Relaxed);
    }
    let mut before = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: with no new action, the call only fills `before`.
    if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), before.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: filled by the call above.
    let before = unsafe { before.assume_init() };
    BEFORE.get_or_init(|| before);
    // SAFETY: all zeros is a valid action: the default one, with no flag and an empty mask.
    let mut action = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_sigbus;
    action.sa_sigaction = handler as libc::sighandler_t;
    // On the alternate stack, where the thread has one: the standard library's handler of a stack
    // overflow, to which ours passes other faults, needs it.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the handler has the signature that SA_SIGINFO asks for, and keeps to what a signal
    // handler may do.
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

extern "C" fn on_sigbus(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a valid siginfo, which has an address for SIGBUS.
    let address = unsafe { (*info).si_addr() }.addr();
    if let Some(map) = MAPS.iter().find(|map| map.holds(address)) {
        map.lost.store(true, Ordering::SeqCst);
        if replace_page(address) {
            return;
        }
    }
    pass_on(signal, info, context);
}

/// Puts a page of zeros at this address of a watched map; returns whether it is there.
fn replace_page(address: usize) -> bool {
    let page = PAGE_BYTES.load(Ordering::Relaxed);
    // SAFETY: the thread's errno always exists.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above; the interrupted code may be about to read it.
    let kept = unsafe { *errno };
    // SAFETY: the page is inside a map of this crate, whose bytes are only ever copied out; the
    // reader that faulted holds the map, so its range is not reused.
    let there = unsafe {
        libc::mmap(
            ptr::with_exposed_provenance_mut(address & !(page - 1)),
            page,
            libc::PROT_READ,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            -1,
            0,
        )
    };
    // SAFETY: as above.
    unsafe { *errno = kept };
    there != libc::MAP_FAILED
}

/// Passes the signal to the disposition that was there before.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let before = BEFORE.get();
    let handler = before.map_or(libc::SIG_DFL, |before| before.sa_sigaction);
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // An ignored fault kills, too: the kernel would repeat it forever.
        // SAFETY: all zeros is the default action; the interrupted instruction faults again.
        unsafe {
            let action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
            libc::sigaction(signal, &raw const action, ptr::null_mut());
        }
        return;
    }
    if before.is_some_and(|before| before.sa_flags & libc::SA_SIGINFO != 0) {
        // SAFETY: the action said that its handler has this signature.
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
            unsafe { std::mem::transmute(handler) };
        handler(signal, info, context);
    } else {
        // SAFETY: the action said that its handler has this signature.
        let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
        handler(signal);
    }
}
