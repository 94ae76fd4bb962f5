//! How large the pages are in which the system gives the process its memory. Owns the switch for
//! huge pages. Never allocates anything.
//!
//! The allocator asks for huge pages where the system leaves that to the program. One byte in use
//! then makes 2 MiB resident, and a thousand connections have a thousand buffers of which little is
//! ever used.

/// Keeps the system from giving the process huge pages, or lets it again. A program that this process
/// starts inherits what holds at that moment.
#[cfg(target_os = "linux")]
pub(super) fn huge(allowed: bool) {
    // A system that can't be told so gives more memory than is needed, and nothing worse.
    let _unsupported = rustix::thread::disable_transparent_huge_pages(!allowed);
}

#[cfg(not(target_os = "linux"))]
pub(super) fn huge(_allowed: bool) {}
