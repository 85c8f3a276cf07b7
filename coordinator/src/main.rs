//! The coordinator's program; see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    coordinator::plan::main(std::env::args_os())
        .unwrap_or_else(|| service::program::main(coordinator::run))
}
