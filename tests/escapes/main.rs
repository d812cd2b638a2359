//! Every known way out of a sandbox, tried from the inside; `README.md` tells the form.

#![cfg(target_arch = "x86_64")]

#[path = "../support/mod.rs"]
pub(crate) mod support;

#[macro_use]
pub(crate) mod harness;

mod complete;
mod elsewhere;
mod fault;
mod life;
mod ll;
mod mnt;
mod net;
mod ns;
mod prc;
mod proto;
mod ptr;
mod res;
mod sec;
mod server;
mod sys;
mod tty;

use harness::Entry;

/// Every entry, group by group.
pub(crate) const GROUPS: &[&[Entry]] = &[
    ns::ENTRIES,
    mnt::ENTRIES,
    prc::ENTRIES,
    ptr::ENTRIES,
    sec::ENTRIES,
    sys::ENTRIES,
    net::ENTRIES,
    tty::ENTRIES,
    res::ENTRIES,
    ll::ENTRIES,
];
