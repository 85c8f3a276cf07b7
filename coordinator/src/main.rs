//! The coordinator's program; see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    service::program::main(coordinator::run)
}
