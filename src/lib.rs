//! x

pub mod policy;
