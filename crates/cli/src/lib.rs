//! What the command line reads of what people write, for whoever tries it with texts of all sorts: the fuzz targets.
//! The command line itself is a program: see `main.rs`.

pub mod config;
pub mod failure;
pub mod private;
pub mod words;
