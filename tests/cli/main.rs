//! The command line, run as people run it: exit codes, streams, signals, terminals.

mod harness;

mod codes;
mod demo;
mod json;
mod signals;
mod streams;
mod terminal;
mod words;
