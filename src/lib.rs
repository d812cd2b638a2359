//! A sandbox engine for language models.
pub mod backend;
pub mod cli;
pub mod doctor;
pub mod engine;
pub mod environment;
pub mod kernel;
pub mod mcp;
pub mod outcome;
pub mod plan;
pub mod planner;
pub mod policy;
pub mod request;
pub mod runner;
pub mod settings;
pub mod supervisor;
