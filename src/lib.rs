//! A sandbox engine for language models.
pub mod environment;
pub mod kernel;
pub mod outcome;
pub mod plan;
pub mod policy;
pub mod request;
pub mod runner;
pub mod settings;
